//! The command line of `prepage run`, as it is commonly given: read without the parser of all commands, which is a third
//! of a megabyte that a launch with a cold page cache would wait for.

use super::{RunArguments, parse_word};
use std::ffi::{OsStr, OsString};

/// The words after `run`; `None` where they are for the parser of all commands: help, mistakes, and what is seldom given
/// (an option that is joined with its value, or repeated). What is read here, that parser reads in the same way.
pub fn plain(words: &[OsString]) -> Option<RunArguments> {
    let store = std::env::var_os("PREPAGE_STORE");
    // Empty, it is a mistake.
    plain_with(words, store.filter(|store| !store.is_empty()))
}

fn plain_with(words: &[OsString], store: Option<OsString>) -> Option<RunArguments> {
    let mut arguments = RunArguments::default();
    let (mut words, mut record) = (words.iter(), None);
    loop {
        let rest = words.as_slice();
        let word = words.next()?;
        match word.to_str() {
            Some("--") => arguments.command = words.as_slice().to_vec(),
            Some("-v" | "--verbose") => set_once(&mut arguments.verbose)?,
            Some("--cold") => set_once(&mut arguments.cold)?,
            Some("--order") => give(&mut arguments.order, word_of(words.next()?)?)?,
            Some("--start") => give(&mut arguments.start, word_of(words.next()?)?)?,
            Some("--record") => give(&mut record, word_of(words.next()?)?)?,
            Some("--store") => give(&mut arguments.store, value(words.next()?)?.into())?,
            Some("--config") => give(&mut arguments.config, value(words.next()?)?.into())?,
            Some("--report") => give(&mut arguments.report, value(words.next()?)?.into())?,
            _ if is_option(word) => return None,
            _ => arguments.command = rest.to_vec(),
        }
        if !arguments.command.is_empty() {
            break;
        }
    }
    arguments.record = record.unwrap_or_default();
    arguments.store = arguments.store.or(store.map(Into::into));
    Some(arguments)
}

fn is_option(word: &OsStr) -> bool {
    word.as_encoded_bytes().starts_with(b"-")
}

/// A value that the other parser takes for one, too.
fn value(word: &OsString) -> Option<&OsStr> {
    (!word.is_empty() && !is_option(word)).then_some(word)
}

fn word_of<'a, T: serde::Deserialize<'a>>(word: &'a OsString) -> Option<T> {
    parse_word(value(word)?.to_str()?).ok()
}

fn give<T>(option: &mut Option<T>, value: T) -> Option<()> {
    option.replace(value).is_none().then_some(())
}

fn set_once(flag: &mut bool) -> Option<()> {
    (!std::mem::replace(flag, true)).then_some(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::{Args, FromArgMatches};

    /// What the parser of all commands reads.
    fn parsed(words: &[OsString]) -> Option<RunArguments> {
        let command = RunArguments::augment_args(clap::Command::new("run").no_binary_name(true));
        let matches = command.try_get_matches_from(words).ok()?;
        RunArguments::from_arg_matches(&matches).ok()
    }

    fn words(line: &[&str]) -> Vec<OsString> {
        line.iter().map(OsString::from).collect()
    }

    #[test]
    fn what_is_commonly_given_is_read() {
        for line in [
            &["uname"][..],
            &["--", "uname", "-a"],
            &["-v", "uname", "--", "-v", "--store"],
            &["--store", "d", "--config", "c", "--report", "r", "--", "x"],
            &["--cold", "--order", "whole-files", "--start", "only", "x"],
            &["--record", "never", "--verbose", "--", "--", "x"],
        ] {
            let plain = plain_with(&words(line), None).unwrap_or_else(|| panic!("{line:?}"));
            assert_eq!(Some(plain), parsed(&words(line)), "{line:?}");
        }
        let stored = plain_with(&words(&["x"]), Some("d".into())).expect("plain");
        assert_eq!(stored.store, Some("d".into()));
        let given = plain_with(&words(&["--store", "e", "x"]), Some("d".into()));
        assert_eq!(given.expect("plain").store, Some("e".into()));
    }

    /// Every line of up to three of these words is read as the parser of all commands reads it, or left to it.
    #[test]
    fn what_is_read_is_what_the_whole_parser_reads() {
        const WORDS: [&str; 16] = [
            "",
            "x",
            "-",
            "--",
            "-v",
            "-vv",
            "-x",
            "--cold",
            "--order",
            "launch",
            "--record",
            "always",
            "--store",
            "--store=d",
            "--verbose",
            "--help",
        ];
        let mut read = 0;
        for number in 0..WORDS.len().pow(3) {
            let line: Vec<OsString> = (0..3)
                .map(|place| WORDS[number / WORDS.len().pow(place) % WORDS.len()].into())
                .collect();
            for line in (0..=3).map(|len| &line[..len]) {
                if let Some(plain) = plain_with(line, None) {
                    assert_eq!(Some(plain), parsed(line), "{line:?}");
                    read += 1;
                }
            }
        }
        assert!(read > 1_000, "{read}");
    }
}
