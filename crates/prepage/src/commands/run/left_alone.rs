//! Whether a command is just run: found out before anything else, by the least that answers it.

use super::RunArguments;
use crate::identity;
use crate::launch::command::future_process;
use prepage_core::machine::Nanos;
use prepage_engine::store::single;
use prepage_kernel::clock::monotonic_ns;
use std::path::Path;

/// What `prepage` found out of a launch before `prepage-launch` took it over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
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

/// Whether prepage does nothing for this launch: nobody helps, or the application is left alone, which the store then counts.
/// Says no as well where only the service knows, or the configuration: to find that out takes longer.
///
/// A configuration hardly ever names another store. Where it does, what the usual one still says holds for
/// `launch.retry_launches_max` launches at most.
pub fn is_left_alone(arguments: &RunArguments, socket: &Path, usual_store: &Path) -> bool {
    if arguments.cold || !arguments.may_be_left_alone() {
        return false;
    }
    let owner = rustix::process::geteuid().as_raw();
    // A store that was named is not the service's.
    if arguments.store.is_none() {
        if arguments.config.is_some() || socket.exists() {
            return false;
        }
        if owner != 0 {
            // Who wants to hear why, hears it from who knows.
            return !arguments.verbose;
        }
    }
    let process = future_process(&arguments.command, owner);
    let Some(app) = process.as_ref().and_then(identity::program) else {
        return false;
    };
    let store = arguments.store.as_deref().unwrap_or(usual_store);
    let is_left_alone = single::pass_launch(store, &app);
    if is_left_alone {
        arguments.say(format_args!("{app} is left alone"));
    }
    is_left_alone
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
