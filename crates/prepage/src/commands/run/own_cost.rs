//! What prepage itself takes of a launch before the command runs, and whom that is charged to.

use prepage_core::launch::manager::{Help, Measured};
use prepage_core::machine::Nanos;

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

/// Charges a launch with prepage's own time: a helped one with all of it, one held out with as much as an application has that
/// is left alone, any other with none. To be held out or recorded costs a launch some of that time as well: compared as they
/// are, helped launches and those held out would not show it.
pub fn charge(measured: &mut Measured, moments: &Moments) {
    let Moments {
        asked,
        not_left_alone,
        began,
        executed,
    } = *moments;
    let us = |from: Nanos, to: Nanos| to.saturating_sub(from) / 1_000;
    measured.help_us = us(asked, executed);
    measured.launch_us = measured.launch_us.map(|launch_us| {
        let alone_us = launch_us.saturating_sub(us(began, executed));
        match measured.help {
            Help::Helped => launch_us + us(asked, began),
            Help::HeldOut => alone_us + us(asked, not_left_alone),
            Help::None => alone_us,
        }
    });
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
        let charged_of = |launch_us, help| {
            let mut measured = Measured {
                began_ns: 0,
                launch_us,
                help_us: 0,
                end: LaunchEnd::Exit,
                recording_us: 0,
                device_pages: 0,
                help,
                stale_files: Vec::new(),
            };
            charge(&mut measured, &moments);
            (measured.launch_us, measured.help_us)
        };
        let charged = |help| charged_of(Some(10_000), help);
        assert_eq!(charged(Help::Helped), (Some(13_000), 4_000));
        assert_eq!(charged(Help::HeldOut), (Some(9_400), 4_000));
        assert_eq!(charged(Help::None), (Some(9_000), 4_000));
        // What is not known stays so.
        assert_eq!(charged_of(None, Help::Helped), (None, 4_000));
    }
}
