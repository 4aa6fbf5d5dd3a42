//! Whether a command is just run, or helped as was decided ahead: found out before anything else, by the least that answers it.

use super::RunArguments;
use crate::identity;
use crate::launch::command::future_process;
use prepage_core::identity::AppId;
use prepage_core::machine::Nanos;
use prepage_engine::ReadyLaunch;
use prepage_engine::store::{Next, single};
use prepage_kernel::clock::monotonic_ns;
use serde::{Deserialize, Serialize};
use std::path::{Path, PathBuf};

/// What `prepage` found out of a launch before `prepage-launch` took it over.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Found {
    /// When prepage was asked to launch, in nanoseconds of the monotonic clock.
    pub asked: Nanos,
    /// When it knew that the application is not left alone: otherwise the command would have been executed now.
    pub not_left_alone: Nanos,
}

impl Found {
    /// One word.
    pub fn to_word(self) -> String {
        format!("{}:{}", self.asked, self.not_left_alone)
    }

    /// `None` where it is no such word, or of the future.
    pub fn of_word(word: &str) -> Option<Found> {
        let (asked, not_left_alone) = word.split_once(':')?;
        let (asked, not_left_alone) = (asked.parse().ok()?, not_left_alone.parse().ok()?);
        (asked <= not_left_alone && not_left_alone <= monotonic_ns()).then_some(Found {
            asked,
            not_left_alone,
        })
    }
}

/// What is known of a launch.
pub enum Known {
    /// prepage does nothing for it: nobody helps, or the application is left alone, which the store has counted.
    LeftAlone,
    /// It was decided ahead.
    Ready(Box<Ahead>),
    /// To find out takes longer: the service knows, the configuration, or the whole profile.
    Undecided,
}

/// A launch that was decided ahead.
pub struct Ahead {
    /// What is done for it.
    pub ready: ReadyLaunch,
    /// The application.
    pub app: AppId,
    /// The executable of the process that the command becomes.
    pub exe: Option<String>,
    /// The store that said so.
    pub store: PathBuf,
}

/// What is known of this launch.
///
/// A configuration hardly ever names another store. Where it does, what the usual one still says holds for
/// `launch.retry_launches_max` launches at most.
pub fn known(arguments: &RunArguments, socket: &Path, usual_store: &Path) -> Known {
    if arguments.cold || !arguments.options().is_default() {
        return Known::Undecided;
    }
    let owner = rustix::process::geteuid().as_raw();
    // A store that was named is not the service's.
    if arguments.store.is_none() {
        if arguments.config.is_some() || socket.exists() {
            return Known::Undecided;
        }
        // Who wants to hear why, hears it from who knows.
        if owner != 0 {
            return match arguments.verbose || !arguments.may_be_left_alone() {
                true => Known::Undecided,
                false => Known::LeftAlone,
            };
        }
    }
    let process = future_process(&arguments.command, owner);
    let app = process.as_ref().and_then(identity::program);
    let (Some(process), Some(app)) = (process, app) else {
        return Known::Undecided;
    };
    let store = arguments.store.as_deref().unwrap_or(usual_store);
    match single::next_launch(store, &app, arguments.may_be_left_alone()) {
        Next::LeftAlone => {
            arguments.say(format_args!("{app} is left alone"));
            Known::LeftAlone
        }
        // What is said of it comes from the whole profile.
        Next::Ready(ready) if !arguments.verbose => Known::Ready(Box::new(Ahead {
            ready: *ready,
            app,
            exe: process.exe,
            store: store.to_owned(),
        })),
        Next::Ready(_) | Next::Undecided => Known::Undecided,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_found_is_read_as_it_was_written() {
        let found = Found {
            asked: 1,
            not_left_alone: 2,
        };
        assert_eq!(Found::of_word(&found.to_word()), Some(found));
        for word in [
            "",
            "1",
            "2:1",
            "1:x",
            "1:2:3",
            "1:99999999999999999999",
            "1:9999999999999999999",
        ] {
            assert_eq!(Found::of_word(word), None, "{word}");
        }
    }
}
