//! `dist/man` holds a manual page for each command, which says what its `--help` says. They are made here:
//! `UPDATE_EXAMPLE=1 cargo test -p prepage --test manual` writes them anew.

use clap::{Command, CommandFactory};
use clap_mangen::Man;
use clap_mangen::roff::{Roff, roman};
use prepage::commands;
use prepage::service::Options;
use std::collections::BTreeMap;
use std::path::Path;

/// The pages by their files' names.
type Pages = BTreeMap<String, String>;

fn pages() -> Pages {
    let mut pages = Pages::new();
    let programs = [(commands::command_line(), "1"), (Options::command(), "8")];
    for (program, section) in programs {
        let mut program = program.disable_help_subcommand(true);
        program.build();
        add(&program, section, &mut pages);
    }
    pages
}

fn add(command: &Command, section: &str, pages: &mut Pages) {
    for part in command.get_subcommands() {
        add(part, section, pages);
    }
    // Columns and examples are to stay as they are.
    let after = command.get_after_long_help().map(ToString::to_string);
    let bare = command
        .clone()
        .after_long_help(None::<&str>)
        .version(None::<&str>);
    let source = concat!("prepage ", env!("CARGO_PKG_VERSION"));
    let man = Man::new(bare).section(section).source(source);
    let mut page = Vec::new();
    man.render(&mut page).expect("render it");
    let page = String::from_utf8(page).expect("text");
    let rest = rest(&after.unwrap_or_default(), &man.get_filename());
    pages.insert(man.get_filename(), page + &rest.to_roff());
}

/// What follows the options in the help, and where else to look.
fn rest(after: &str, own: &str) -> Roff {
    let mut rest = Roff::new();
    let mut heading = "";
    let mut columns = false;
    for line in after.lines() {
        let was_columns = std::mem::replace(&mut columns, line.starts_with(' '));
        let (named, text) = match line.split_once(':') {
            Some((named, "")) if !columns => (named, ""),
            Some(("Exit status", text)) => ("Exit status", text.trim_start()),
            _ if was_columns && !columns && !line.is_empty() => ("Notes", line),
            _ if heading.is_empty() => ("Notes", line),
            _ => (heading, line),
        };
        if columns && !was_columns {
            // As wide as a terminal, like the help.
            rest.control("nf", []).control("in", ["0"]);
        } else if was_columns && !columns {
            rest.control("fi", []).control("in", []);
        }
        if named != heading {
            rest.control("SH", [named.to_uppercase().as_str()]);
            heading = named;
        }
        match text {
            "" => rest.control("PP", []),
            text => rest.text([roman(text)]),
        };
    }
    if columns {
        rest.control("fi", []).control("in", []);
    }
    rest.control("SH", ["SEE ALSO"]);
    let others = ["prepage.1", "prepaged.8"].into_iter();
    let named = others.filter(|other| *other != own).map(|other| {
        let (name, section) = other.rsplit_once('.').expect("a section");
        format!("{name}({section})")
    });
    rest.text([roman(named.collect::<Vec<_>>().join(", "))]);
    rest
}

#[test]
fn the_manual_says_what_the_help_says() {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../dist/man");
    let wanted = pages();
    if std::env::var_os("UPDATE_EXAMPLE").is_some() {
        let _ = std::fs::remove_dir_all(&directory);
        std::fs::create_dir(&directory).expect("make the directory");
        for (name, page) in &wanted {
            std::fs::write(directory.join(name), page).expect("write a page");
        }
    }
    let files = std::fs::read_dir(&directory).expect("the manual is there");
    let kept = files.map(|file| {
        let path = file.expect("listed").path();
        let name = path.file_name().expect("a file").to_string_lossy();
        let page = std::fs::read_to_string(&path).expect("readable");
        (name.into_owned(), page)
    });
    let kept: Pages = kept.collect();
    assert!(
        kept == wanted,
        "dist/man says something else than the commands: UPDATE_EXAMPLE=1 cargo test -p prepage --test manual writes it anew"
    );
}
