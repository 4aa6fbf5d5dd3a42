//! What is read of processors and disk while a switch is watched.

use crate::clock::{now_ns, process_cpu_us};
use crate::group::Group;
use crate::processes::major_faults;
use crate::readings::Pace;
use crate::record::Reading;
use crate::sysfs;
use std::path::PathBuf;

/// The kernel counts a running task's CPU time at its ticks, at most 4 ms apart with 250 a second.
pub const PACE: Pace = Pace {
    interval_ns: 10_000_000,
    readings_max: 1_000,
};

/// What is read.
#[derive(Debug)]
pub struct Instruments {
    /// The application's group.
    pub app: Group,
    /// That of prepage, where it takes part.
    pub service: Option<Group>,
    /// That of display server and window manager.
    pub session: Group,
    /// The disk's counters.
    pub disk_stat: Option<PathBuf>,
    /// The application's processes.
    pub pids: Vec<i32>,
}

impl Instruments {
    /// Reads it.
    pub fn read(&self) -> Reading {
        let t_ns = now_ns();
        let vmstat = sysfs::read("/proc/vmstat").unwrap_or_default();
        let mut counters = sysfs::parse_pairs(&vmstat);
        let mut reading = Reading {
            t_ns,
            app_cpu_us: self.app.cpu_us(),
            service_cpu_us: self.service.as_ref().map_or(0, Group::cpu_us),
            others_cpu_us: self.session.cpu_us() + process_cpu_us(),
            disk_read_sectors: self.disk_stat.as_ref().map_or(0, read_sectors),
            majflt: major_faults(self.pids.iter().copied()),
            pswpin: counters
                .find(|(name, _)| *name == "pswpin")
                .map_or(0, |(_, pages)| pages),
            took_ns: 0,
        };
        reading.took_ns = now_ns() - t_ns;
        reading
    }
}

/// The sectors that a disk has read: the third number of its `stat` (Documentation/block/stat.rst).
fn read_sectors(stat: &PathBuf) -> u64 {
    let text = sysfs::read(stat).unwrap_or_default();
    let sectors = text.split_whitespace().nth(2);
    sectors.and_then(|n| n.parse().ok()).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::sleep_ms;
    use crate::group::{Hierarchies, end_and_remove};
    use crate::readings::Recorder;
    use prepage_kernel::process;

    #[test]
    fn counters_count_up_from_reading_to_reading() {
        let hierarchies = Hierarchies::find().expect("control groups with a memory controller");
        let name = format!("prepage-timeline-{}", std::process::id());
        let group = Group::create(&hierarchies, &name).expect("a control group, as root");
        let instruments = Instruments {
            app: group.clone(),
            service: None,
            session: group,
            disk_stat: None,
            pids: vec![process::own_pid()],
        };
        let recorder = Recorder::start(PACE, move || instruments.read());
        sleep_ms(200);
        let readings = recorder.finish();
        end_and_remove(&hierarchies.to_remove(&name)).expect("the group is empty");
        assert!(readings.len() > 1, "{readings:?}");
        let ascend = |pair: &[Reading]| {
            pair[0].t_ns < pair[1].t_ns && pair[0].others_cpu_us <= pair[1].others_cpu_us
        };
        assert!(readings.windows(2).all(ascend), "{readings:?}");
        assert!(readings.iter().all(|r| r.app_cpu_us == 0 && r.took_ns > 0));
    }
}
