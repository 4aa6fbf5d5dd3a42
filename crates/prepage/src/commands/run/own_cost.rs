//! What prepage itself takes of a launch before the command runs, and whom that is charged to.

use prepage_core::launch::manager::Help;
use prepage_core::machine::Nanos;
use prepage_engine::MeasuredLaunch;

/// The moments of one launch, in nanoseconds of the monotonic clock.
#[derive(Clone, Copy, Debug)]
pub struct Moments {
    /// prepage was asked to launch.
    pub asked: Nanos,
    /// It knew that the application is not left alone: otherwise the command would have been executed now.
    pub not_left_alone: Nanos,
    /// The launch began, as it is measured.
    pub began: Nanos,
    /// The command was executed.
    pub executed: Nanos,
}

/// How long a launch counts, in microseconds, where helped ones and those held out are compared: as long as it is with help,
/// all of prepage's own time included, or as long as it were if the application was left alone. To be held out costs a launch
/// nearly as much of that time as to be helped: compared as they are, the two would not show it.
pub fn charged_us(measured: &MeasuredLaunch, moments: &Moments) -> u64 {
    let Moments {
        asked,
        not_left_alone,
        began,
        executed,
    } = *moments;
    let us = |from: Nanos, to: Nanos| to.saturating_sub(from) / 1_000;
    match measured.help {
        Help::Helped => measured.launch_us + us(asked, began),
        Help::HeldOut => {
            (measured.launch_us + us(asked, not_left_alone)).saturating_sub(us(began, executed))
        }
        Help::None => measured.launch_us,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use prepage_core::launch::recording::LaunchEnd;

    #[test]
    fn help_is_charged_with_what_being_left_alone_saves() {
        let moments = Moments {
            asked: 1_000_000,
            not_left_alone: 1_400_000,
            began: 4_000_000,
            executed: 5_000_000,
        };
        let charged = |help| {
            let measured = MeasuredLaunch {
                began_ns: 0,
                launch_us: 10_000,
                end: LaunchEnd::Exit,
                recording_us: 0,
                device_pages: 0,
                help,
                stale_files: Vec::new(),
            };
            charged_us(&measured, &moments)
        };
        assert_eq!(charged(Help::Helped), 13_000);
        assert_eq!(charged(Help::HeldOut), 9_400);
        assert_eq!(charged(Help::None), 10_000);
    }
}
