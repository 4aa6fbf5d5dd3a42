//! What `--help` shows below the options of each command.

pub const RUN: &str = "\
Applications: chromium, firefox, writer, gimp, geany, evince, thunderbird,
blender; all. Lists are separated by commas.

Examples:
  sudo prepage-eval run --install                       chromium, 15 samples of
                                                        each mode
  sudo prepage-eval run --apps all --modes off,full     all, without and with
  sudo prepage-eval run --apps all --setting together   all at once
  sudo prepage-eval run --swap disk --resume            go on with records.jsonl
  sudo prepage-eval run --apps gimp --modes observe \\
      --switches switches.jsonl                         for simulate
  sudo prepage-eval run --modes resident,off,full \\
      -- okular /tmp/manual.pdf                         one of your own
  sudo prepage-eval run --modes resident,off,full \\
      --user nobody -- vlc --loop /tmp/film.webm        one that refuses root
  prepage-eval study records.jsonl";

pub const LAUNCH: &str = "\
Programs: chromium, libreoffice, gimp, emacs, inkscape, python3, node, javac,
git, gcc; and perl, ruby, ffmpeg, vim, gdb, gs, dot, sqlite3, uname; all. Lists
are separated by commas.

Examples:
  sudo prepage-eval launch --install
  sudo prepage-eval launch --programs gimp,git --scenarios cold,warm,fast
  sudo prepage-eval launch --runs 20 -- python3 tool.py --flag
  sudo prepage-eval launch --window-title manual.pdf -- okular manual.pdf
  sudo prepage-eval launch --window-title '' --user nobody -- vlc";

pub const IDLE: &str = "\
Lists are separated by commas.

Examples:
  sudo prepage-eval idle --install
  sudo prepage-eval idle --services redis --swap disk --modes off,full_onset
  prepage-eval study idle.jsonl";

pub const STUDY: &str = "\
Records are what run, launch and idle wrote; compressed ones (.gz) are read too.

Examples:
  prepage-eval study records.jsonl
  prepage-eval study --json results/*.jsonl.gz";

pub const REPORT: &str = "\
Records are what run, launch and idle wrote; compressed ones (.gz) are read too.

Example:
  prepage-eval report results/*.jsonl.gz --out page.html --markdown tables.md";

pub const SIMULATE: &str = "\
Examples:
  prepaged --mode observe --record switches.jsonl   record, on any machine
  sudo prepage-eval run --apps gimp --modes observe --switches switches.jsonl
  prepage-eval simulate switches.jsonl              or switches.jsonl.gz
  prepage-eval simulate --synthetic 1000            made up: the paper's figures
                                                    5 and 6
  prepage-eval simulate --sweep budget.confidence=0.4,0.6,0.8 \\
      --sweep anon.timeout_switches=3,5,8           nine rows
  prepage-eval simulate --set file.merge_gap_pages=0 --learning 12 --json";

pub const DEMO: &str = "\
It wants chromium and programs to launch: `make demo` installs them.

Example:
  sudo prepage-eval demo --out /tmp/demo";

pub const FETCH: &str = "\
Lists are separated by commas.

Examples:
  sudo prepage-eval fetch
  sudo prepage-eval fetch --swap disk --tables anon --pages 65536";

#[cfg(test)]
mod tests {
    use crate::Cli;
    use clap::CommandFactory;

    /// What clap has to wrap loses its columns.
    #[test]
    fn every_command_has_examples_that_fit_a_terminal() {
        for command in Cli::command().get_subcommands() {
            let name = command.get_name();
            let text = command.get_after_long_help().map(ToString::to_string);
            let text = text.unwrap_or_default();
            assert!(command.is_hide_set() || text.contains("Example"), "{name}");
            for line in text.lines() {
                assert!(line.chars().count() <= 80, "{name}: {line}");
            }
        }
    }

    #[test]
    fn what_is_named_in_the_help_is_all_there_is() {
        for app in crate::apps::APPS {
            assert!(super::RUN.contains(app.name), "{}", app.name);
        }
        for program in crate::launch::programs::PROGRAMS {
            assert!(super::LAUNCH.contains(program.name), "{}", program.name);
        }
    }
}
