//! What identifies a sample of a record of switches, and so what a run that goes on finds in it.

use super::file::name_application;
use super::{Circumstances, Line, Mode, Parameters, Resumable, Slot};

/// What identifies a sample: application, block and mode.
pub type Key = (String, u32, Mode);

impl Slot {
    /// Its key.
    pub fn key(&self) -> Key {
        (self.app.clone(), self.block, self.mode)
    }
}

impl Resumable for Line {
    type Parameters = Parameters;
    type Key = Key;
    /// Application, block, and whether it is a launch: each of these is by itself.
    type Block = (String, u32, bool);

    fn format(&self) -> Option<u32> {
        let Self::Run(run) = self else { return None };
        Some(run.format)
    }

    fn complete(lines: &mut [Self]) {
        name_application(lines);
    }

    fn admits(&self, parameters: &Parameters) -> bool {
        let Self::Run(run) = self else { return false };
        let asked = Parameters {
            samples: parameters.samples,
            stall_blocks: parameters.stall_blocks,
            ..run.parameters.clone()
        };
        asked == *parameters
    }

    fn circumstances(&self) -> Option<Circumstances> {
        let Self::Run(run) = self else { return None };
        Some(Circumstances::recorded(&run.machine, &run.versions))
    }

    fn key(&self) -> Option<Key> {
        match self {
            Self::Sample(switch) | Self::Stalls(switch) => Some(switch.slot.key()),
            _ => None,
        }
    }

    fn block(&self) -> Option<Self::Block> {
        let (app, block, mode) = self.key()?;
        Some((app, block, mode == Mode::Launch))
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::{run, switch};
    use super::*;

    /// A block in which the longest single waits are measured.
    const STALL_BLOCK: u32 = 1 << 15;

    #[test]
    fn warmups_do_not_count_as_done() {
        let lines = [
            Line::Run(Box::new(run(&[Mode::Off]))),
            Line::Warmup(Box::new(switch(0, Mode::Full, 1.0))),
            Line::Sample(Box::new(switch(1, Mode::Off, 1.0))),
            Line::Stalls(Box::new(switch(STALL_BLOCK, Mode::Off, 1.0))),
        ];
        let done: Vec<Key> = lines.iter().filter_map(Line::key).collect();
        let key = |block| ("chromium".into(), block, Mode::Off);
        assert_eq!(done, [key(1), key(STALL_BLOCK)]);
    }

    #[test]
    fn a_record_goes_on_with_the_same_parameters_and_another_number_of_samples() {
        let first = run(&[Mode::Off]);
        let asked = first.parameters.clone();
        let line = Line::Run(Box::new(first));
        let more = Parameters {
            samples: asked.samples + 1,
            stall_blocks: asked.stall_blocks + 1,
            ..asked.clone()
        };
        assert!(line.admits(&asked) && line.admits(&more));
        assert!(!line.admits(&Parameters { seed: 8, ..more }));
        assert!(!Line::Sample(Box::new(switch(1, Mode::Off, 1.0))).admits(&asked));
    }
}
