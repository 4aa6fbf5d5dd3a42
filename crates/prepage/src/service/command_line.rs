//! The command line of `prepaged`.

use crate::launch::options::parse_word;
use clap::Parser;
use prepage_core::params::Mode;
use std::path::PathBuf;

/// Makes applications on a stock Linux kernel come back faster.
///
/// prepaged learns which pages an application touches when it is switched to or launched, and fetches exactly those
/// pages, in parallel and ahead of the faults, the next time. It runs in the foreground, or under systemd as prepaged.service;
/// `prepage` talks to it.
///
/// It needs root. Whatever else it cannot have (swap, perf, tracefs, PSI) costs it a part of what it does, and it says
/// so once at the start; `prepage doctor` says it too.
#[derive(Clone, Debug, Default, Parser)]
#[command(name = "prepaged", version, max_term_width = 80, after_long_help = AFTER)]
pub struct Options {
    /// The configuration; FILE.d/*.toml are its drop-ins. Default: /etc/prepage/prepage.toml, where it exists.
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// Directory of the profiles. Default: service.state of the configuration, /var/lib/prepage.
    #[arg(long, value_name = "DIR")]
    pub state: Option<PathBuf>,
    /// Socket of the API. Default: service.socket of the configuration, /run/prepage/prepage.sock.
    #[arg(long, value_name = "PATH", conflicts_with = "runtime_dir")]
    socket: Option<PathBuf>,
    /// Directory for the socket prepage.sock, instead of --socket.
    #[arg(long, value_name = "DIR")]
    runtime_dir: Option<PathBuf>,
    /// Mode to start in: off, observe, anon, file or full. Default: service.mode of the configuration, full.
    #[arg(long, value_name = "MODE", value_parser = |text: &str| parse_word::<Mode>(text))]
    pub mode: Option<Mode>,
    /// Append every switch observed in mode observe to FILE, one JSON object a line, for prepage-eval simulate.
    #[arg(long, value_name = "FILE")]
    pub record: Option<PathBuf>,
    /// Say whether the configuration is right, and end.
    #[arg(long)]
    pub check: bool,
}

const AFTER: &str = "\
Signals:
  SIGTERM, SIGINT   write the profiles and end
  SIGHUP            read the configuration again: it holds from the next switch
                    on. A wrong one changes nothing and is reported with file
                    and line. service.socket, service.state,
                    observe.fault_ring_pages, observe.file_ring_pages,
                    observe.onset_wakeup_faults and observe.access_events stay
                    as they are until the next start, with a warning

Exit status: 0 ended by a signal, or with --check a right configuration; 1 it
could not start, or the configuration is wrong; 2 wrong usage.

Examples:
  prepaged                                     as configured
  prepaged --check --config my.toml            is my configuration right?
  prepaged --mode observe --state /root/state  learn only, elsewhere
  prepaged --runtime-dir /run/prepage-try      then:
                          prepage --socket /run/prepage-try/prepage.sock status";

impl Options {
    /// Where its socket is to be, if that was said.
    pub fn socket(&self) -> Option<PathBuf> {
        let in_directory = |directory: &PathBuf| directory.join("prepage.sock");
        let socket = self.socket.clone();
        socket.or_else(|| self.runtime_dir.as_ref().map(in_directory))
    }
}

#[cfg(test)]
mod tests {
    /// What clap has to wrap loses its columns.
    #[test]
    fn tables_and_examples_of_the_help_fit_a_terminal() {
        for line in super::AFTER.lines() {
            assert!(line.chars().count() <= 80, "{line}");
        }
    }
}
