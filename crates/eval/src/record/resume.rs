//! A run that was interrupted goes on with its record: blocks that it holds whole are not measured again.

use super::{Machine, SwapDevice, Writer, read};
use crate::circumstances::{self, OWN, VERSION};
use crate::error::{Error, Result};
use serde::de::DeserializeOwned;
use std::collections::{BTreeMap, HashMap, HashSet};
use std::hash::Hash;
use std::path::Path;

/// How a run goes on with a record that is there.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Resume {
    /// Where build of prepage, kernel and swap are those with which it was begun.
    Alike,
    /// Whatever these are.
    Anyway,
}

fn is_there(path: &Path) -> bool {
    std::fs::metadata(path).is_ok_and(|file| file.len() > 0)
}

/// Checks that a run may write there, before anything else is done: nothing is there yet, or it is to go on with that.
///
/// # Errors
/// Where it may not.
pub fn check_out(path: &Path, resume: Option<Resume>) -> Result<()> {
    if path.extension().is_some_and(|name| name == "gz") {
        let cause = "a compressed record is only read: name one without .gz, or uncompress it to go on with it";
        return Err(Error::new("write", path.display(), cause));
    }
    if resume.is_some() || !is_there(path) {
        return Ok(());
    }
    let cause = format!(
        "{} is there already, and stays: go on with it by --resume, or name another file",
        path.display()
    );
    Err(Error::new("begin", "a record", cause))
}

/// What must not differ between the sessions of a record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Circumstances {
    version: String,
    kernel: String,
    swap: String,
}

impl Circumstances {
    /// Those that a record has in the line that begins a session.
    pub fn recorded(machine: &Machine, versions: &BTreeMap<String, String>) -> Self {
        Self {
            version: versions.get(OWN).cloned().unwrap_or_default(),
            kernel: machine.kernel.clone(),
            swap: words_of_swap(&machine.swap),
        }
    }

    /// Those of this session. The swap is that which is active now.
    fn now() -> Self {
        Self {
            version: VERSION.to_owned(),
            kernel: circumstances::kernel(),
            swap: words_of_swap(&circumstances::swap_devices()),
        }
    }

    /// What is another one now, in words; the swap, which a run sets up, `with_swap` only.
    fn differences(&self, now: &Self, with_swap: bool) -> Vec<String> {
        let of = |what: &str, was: &str, is: &str| format!("{what} was {was}, and is {is}");
        let all = [
            (true, "prepage-eval", &self.version, &now.version),
            (true, "the kernel", &self.kernel, &now.kernel),
            (with_swap, "swap", &self.swap, &now.swap),
        ];
        let differing = all
            .iter()
            .filter(|(is_asked, _, was, is)| *is_asked && was != is);
        differing
            .map(|(_, what, was, is)| of(what, was, is))
            .collect()
    }
}

/// What a swap device is, whatever its name, priority and use.
fn words_of_swap(devices: &[SwapDevice]) -> String {
    let words = |device: &SwapDevice| {
        let compressor = device.compressor.iter().map(|name| format!(" ({name})"));
        let compressor: String = compressor.collect();
        format!("{}{compressor} of {} MiB", device.on, device.bytes >> 20)
    };
    let mut all: Vec<String> = devices.iter().map(words).collect();
    all.sort_unstable();
    match all.is_empty() {
        true => "none".to_owned(),
        false => all.join(" and "),
    }
}

/// A line of a record that a run can go on with.
pub trait Resumable: DeserializeOwned {
    /// What a run was asked for.
    type Parameters;
    /// What identifies a sample.
    type Key: Eq + Hash;
    /// What identifies the block of a sample: those that are compared with each other.
    type Block: Eq + Hash;

    /// The format of the session that begins with this line; `None` if none does.
    fn format(&self) -> Option<u32>;

    /// Adds to lines of a record what earlier versions did not say.
    fn complete(_lines: &mut [Self]) {}

    /// Whether a run with these parameters can go on with a record that begins with this line: they may differ in the
    /// number of samples only.
    fn admits(&self, parameters: &Self::Parameters) -> bool;

    /// The circumstances of the session that begins with this line; `None` if none does.
    fn circumstances(&self) -> Option<Circumstances>;

    /// Which sample this line is; `None` if it is none.
    fn key(&self) -> Option<Self::Key>;

    /// The block that this sample belongs to and that is measured in one session; `None` if there is none.
    fn block(&self) -> Option<Self::Block>;
}

/// The lines of a record, each block's samples of one session alone, the last that has any. What an interrupted session has
/// begun of a block, the next one measures again, as a whole: after a new start, and new learning, it is no pair with what
/// comes then.
pub(super) fn last_sessions<L: Resumable>(lines: Vec<L>) -> Vec<L> {
    let mut session = 0;
    let mut last: HashMap<L::Block, usize> = HashMap::new();
    let mut session_of = |line: &L| {
        session += usize::from(line.circumstances().is_some());
        last.extend(line.block().map(|block| (block, session)));
        session
    };
    let sessions: Vec<usize> = lines.iter().map(&mut session_of).collect();
    let is_last = |line: &L, session| line.block().is_none_or(|block| last[&block] == session);
    let lines = lines.into_iter().zip(sessions);
    let lines = lines.filter(|(line, session)| is_last(line, *session));
    lines.map(|(line, _)| line).collect()
}

/// Leaves of these, which are of one subject, those in blocks of which something is missing.
pub fn retain_incomplete<T, B: Eq + Hash>(
    all: &mut Vec<T>,
    block: impl Fn(&T) -> B,
    is_missing: impl Fn(&T) -> bool,
) {
    let missing = all.iter().filter(|one| is_missing(one));
    let incomplete: HashSet<B> = missing.map(&block).collect();
    all.retain(|one| incomplete.contains(&block(one)));
}

/// What a record holds already.
#[derive(Debug)]
pub struct Earlier<L: Resumable> {
    /// Under which circumstances it was begun, where it is there.
    begun: Option<Circumstances>,
    resume: Option<Resume>,
    done: HashSet<L::Key>,
}

impl<L: Resumable> Earlier<L> {
    /// Reads the record of the run before, where there is one and this run is to go on with it.
    ///
    /// # Errors
    /// As of [`check_out`]; where it is no such record, or of a run with other parameters.
    pub fn read(path: &Path, resume: Option<Resume>, parameters: &L::Parameters) -> Result<Self> {
        // A run that was waited for may have written it.
        check_out(path, resume)?;
        let lines = match resume.is_some() && is_there(path) {
            true => read::<L>(path)?,
            false => Vec::new(),
        };
        match lines.first() {
            Some(first) if !first.admits(parameters) => {
                let cause = format!(
                    "{} was made with other parameters: say them again, or name another record with --out",
                    path.display()
                );
                Err(Error::new("resume", "the record", cause))
            }
            first => Ok(Self {
                begun: first.and_then(L::circumstances),
                resume,
                done: lines.iter().filter_map(L::key).collect(),
            }),
        }
    }

    /// Whether the record holds this sample.
    pub fn has(&self, key: &L::Key) -> bool {
        self.done.contains(key)
    }

    /// Checks that more may be measured for the record, before anything is touched: by the same build, on the same kernel.
    ///
    /// # Errors
    /// Where it may not.
    pub fn check_build(&self) -> Result<()> {
        self.check(&Circumstances::now(), false)
    }

    fn check(&self, now: &Circumstances, with_swap: bool) -> Result<()> {
        let begun = self.begun.as_ref();
        let begun = begun.filter(|_| self.resume != Some(Resume::Anyway));
        let differences = begun.map(|begun| begun.differences(now, with_swap));
        match differences.unwrap_or_default().join("; ") {
            none if none.is_empty() => Ok(()),
            differences => {
                let cause = format!(
                    "what is measured now is no pair with what it holds: {differences}. Name another record with --out, or go on with this one all the same by --resume=anyway"
                );
                Err(Error::new("resume", "the record", cause))
            }
        }
    }

    /// Opens the record for what is still to be measured, with the run's swap active.
    ///
    /// # Errors
    /// Where it cannot be written, or was begun by another build of prepage, on another kernel or with other swap.
    pub fn writer(&self, path: &Path) -> Result<Writer> {
        self.check(&Circumstances::now(), true)?;
        Writer::open(path, self.begun.is_some())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::tests::{run, switch};
    use crate::record::{Line, Mode, Parameters};

    /// A record of these sessions, each of these samples.
    fn record(sessions: &[&[(u32, Mode)]]) -> Vec<Line> {
        let sample =
            |&(block, mode): &(u32, Mode)| Line::Sample(Box::new(switch(block, mode, 1.0)));
        let session = |samples: &&[(u32, Mode)]| {
            let first = [Line::Run(Box::new(run(&[Mode::Off, Mode::Full])))];
            first
                .into_iter()
                .chain(samples.iter().map(sample))
                .collect::<Vec<_>>()
        };
        sessions.iter().flat_map(session).collect()
    }

    fn samples(lines: &[Line]) -> Vec<(u32, Mode)> {
        let keys = lines.iter().filter_map(Line::key);
        keys.map(|(_, block, mode)| (block, mode)).collect()
    }

    #[test]
    fn a_block_is_of_the_last_session_that_has_any_of_it() {
        use Mode::{Full, Launch, Off};
        let interrupted: &[_] = &[
            (0, Launch),
            (0, Off),
            (0, Full),
            (1, Full),
            (1, Off),
            (2, Off),
        ];
        let whole = record(&[interrupted]);
        assert_eq!(last_sessions(whole.clone()), whole);
        let lines = last_sessions(record(&[interrupted, &[(2, Off), (2, Full), (3, Full)]]));
        let expected = [&interrupted[..5], &[(2, Off), (2, Full), (3, Full)]].concat();
        assert_eq!(samples(&lines), expected);
        // A launch is in no pair.
        let lines = last_sessions(record(&[
            &[(0, Launch), (1, Launch)],
            &[(0, Off), (1, Launch)],
        ]));
        assert_eq!(samples(&lines), [(0, Launch), (0, Off), (1, Launch)]);
        assert_eq!(lines.len(), 5, "what is no sample stays");
    }

    #[test]
    fn a_block_that_was_interrupted_is_measured_again_as_a_whole() {
        let mut slots = vec![(0, 'a'), (0, 'b'), (1, 'b'), (1, 'a'), (2, 'a'), (2, 'b')];
        let done = [(0, 'a'), (0, 'b'), (1, 'b')];
        retain_incomplete(&mut slots, |slot| slot.0, |slot| !done.contains(slot));
        assert_eq!(slots, [(1, 'b'), (1, 'a'), (2, 'a'), (2, 'b')]);
    }

    fn circumstances() -> Circumstances {
        Circumstances {
            version: "0.1.0 (8359afbb65a6)".into(),
            kernel: "6.18.44 #1".into(),
            swap: "zram (lz4) of 4096 MiB".into(),
        }
    }

    fn earlier(begun: Circumstances, resume: Resume) -> Earlier<Line> {
        Earlier {
            begun: Some(begun),
            resume: Some(resume),
            done: HashSet::new(),
        }
    }

    #[test]
    fn a_record_of_another_build_kernel_or_swap_is_not_gone_on_with_unless_that_is_said() {
        let now = circumstances();
        let (version, kernel, swap) = (
            "0.1.0".into(),
            "6.18.45 #1".into(),
            "file of 4096 MiB".into(),
        );
        for (begun, is_swap) in [
            (
                Circumstances {
                    version,
                    ..now.clone()
                },
                false,
            ),
            (
                Circumstances {
                    kernel,
                    ..now.clone()
                },
                false,
            ),
            (
                Circumstances {
                    swap,
                    ..now.clone()
                },
                true,
            ),
        ] {
            let refused = earlier(begun.clone(), Resume::Alike);
            let said = refused.check(&now, true).unwrap_err().to_string();
            assert!(
                said.contains("--out") && said.contains("--resume=anyway"),
                "{said}"
            );
            assert!(
                said.contains(" was ") && said.contains(", and is "),
                "{said}"
            );
            assert_eq!(
                refused.check(&now, false).is_ok(),
                is_swap,
                "before it is set up"
            );
            let anyway = earlier(begun, Resume::Anyway);
            assert!(anyway.check(&now, true).is_ok());
        }
        let alike = earlier(now.clone(), Resume::Alike);
        assert!(alike.check(&now, true).is_ok());
    }

    #[test]
    fn swap_is_the_same_whatever_its_name_priority_and_use() {
        let device = |path: &str, priority, used_bytes| SwapDevice {
            path: path.into(),
            on: "zram".into(),
            bytes: 4 << 30,
            used_bytes,
            priority,
            compressor: Some("lz4".into()),
        };
        let words = words_of_swap(&[device("/dev/zram0", -2, 0)]);
        assert_eq!(words, words_of_swap(&[device("/dev/zram1", 100, 4096)]));
        assert_eq!(words, circumstances().swap);
        assert_eq!(words_of_swap(&[]), "none");
    }

    #[test]
    fn a_record_is_read_with_its_circumstances_and_what_it_holds_whole_or_not() {
        let path =
            std::env::temp_dir().join(format!("prepage-resume-{}.jsonl", std::process::id()));
        let mut lines = record(&[
            &[(0, Mode::Off), (0, Mode::Full), (1, Mode::Off)],
            &[(1, Mode::Full)],
        ]);
        if let Line::Run(first) = &mut lines[0] {
            first
                .versions
                .insert(OWN.into(), "0.0.1 (of another build)".into());
        }
        let mut writer = Writer::open(&path, false).unwrap();
        lines
            .iter()
            .try_for_each(|line| writer.write(line))
            .unwrap();
        let parameters = run(&[Mode::Off, Mode::Full]).parameters;
        let read = |resume| Earlier::<Line>::read(&path, Some(resume), &parameters).unwrap();
        let earlier = read(Resume::Alike);
        let has = |block, mode| earlier.has(&("chromium".into(), block, mode));
        assert!(has(0, Mode::Off) && has(0, Mode::Full) && has(1, Mode::Full));
        assert!(!has(1, Mode::Off), "of a session before");
        let said = earlier.check_build().unwrap_err().to_string();
        assert!(
            said.contains("of another build") && said.contains(VERSION),
            "{said}"
        );
        assert!(earlier.writer(&path).is_err());
        assert!(read(Resume::Anyway).writer(&path).is_ok());
        let other = Parameters {
            seed: 8,
            ..parameters.clone()
        };
        assert!(Earlier::<Line>::read(&path, Some(Resume::Anyway), &other).is_err());
        std::fs::remove_file(&path).unwrap();
    }
}
