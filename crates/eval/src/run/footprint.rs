//! What the switches of mode observe accessed, from what prepage recorded of them.

use super::bench::{Bench, Running};
use crate::error::Result;
use crate::record::{Application, Footprint, Mode};
use crate::service::Service;
use prepage_core::replay::RecordedSwitch;
use prepage_core::replay::synthetic::recurrence;
use std::collections::BTreeMap;

/// The paper's footprints are of so many switches (ASAP section 4.1). Further ones are not counted.
pub const SWITCHES_MAX: usize = 10;

/// Takes in what prepage has recorded since it was last asked: of this application, if the switch was one of mode observe, and
/// keeps it for the simulator where that is wanted. In other modes what was recorded is not all that the application
/// accessed, and passed over.
pub fn collect(bench: &mut Bench, running: &mut Running, mode: Mode) -> Result<()> {
    let Some(service) = &mut bench.service else {
        return Ok(());
    };
    let new = service.new_recorded()?;
    let mut own = new.into_iter();
    let own = own.rfind(|switch| switch.app.to_string() == running.tracked_as);
    // Before the last one, there may be that of a switch that was discarded.
    if let (Mode::Observe, Some(switch)) = (mode, own) {
        if let Some(kept) = &mut bench.switches {
            kept.write(&switch)?;
        }
        running.observed.push(switch);
        running.observed.truncate(SWITCHES_MAX);
    }
    Ok(())
}

/// What all switches to an application came to.
pub fn application(service: Option<&Service>, running: &Running) -> Result<Application> {
    let table_bytes = match service {
        Some(service) => service.table_bytes(&running.tracked_as)?,
        None => None,
    };
    let observed = &running.observed;
    Ok(Application {
        app: running.app.name.to_owned(),
        footprint: (!observed.is_empty()).then(|| footprint(observed)),
        table_bytes,
    })
}

fn footprint(observed: &[RecordedSwitch]) -> Footprint {
    let (anon, file) = recurrence::<SWITCHES_MAX>(observed);
    let each = |pages: fn(&RecordedSwitch) -> u64| observed.iter().map(pages).collect();
    Footprint {
        switches: observed.len(),
        anon_by_recurrence: anon[..observed.len()].to_vec(),
        file_by_recurrence: file[..observed.len()].to_vec(),
        anon_by_switch: each(|s| s.anon.iter().map(|anon| anon.accessed.pages()).sum()),
        file_by_switch: each(|s| s.files.iter().map(|file| file.accessed.pages()).sum()),
        file_by_size: by_size(observed),
    }
}

/// Pages that were accessed of each file over all switches, the smallest file first. A file that grew meanwhile is one.
fn by_size(observed: &[RecordedSwitch]) -> Vec<u64> {
    let mut files: BTreeMap<&str, (u64, u64)> = BTreeMap::new();
    for file in observed.iter().flat_map(|switch| &switch.files) {
        let (bytes, pages) = files.entry(&file.file.path).or_default();
        *bytes = file.file.size.max(*bytes);
        *pages += file.accessed.pages();
    }
    let mut files: Vec<(u64, u64)> = files.into_values().collect();
    files.sort_unstable();
    files.into_iter().map(|(_, pages)| pages).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use prepage_core::replay::synthetic::Synthetic;

    #[test]
    fn every_page_of_every_switch_is_counted_alike_in_all_figures() {
        let synthetic = Synthetic {
            apps: 1,
            switches: 4,
            ..Synthetic::default()
        };
        let observed: Vec<RecordedSwitch> = synthetic.switches().collect();
        let footprint = footprint(&observed);
        assert_eq!(footprint.switches, 4);
        assert_eq!(footprint.anon_by_recurrence.len(), 4);
        let weighted =
            |bars: &[u64]| -> u64 { bars.iter().zip(1..).map(|(n, times)| n * times).sum() };
        let sum = |pages: &[u64]| -> u64 { pages.iter().sum() };
        let anon = sum(&footprint.anon_by_switch);
        assert!(anon > 0);
        assert_eq!(weighted(&footprint.anon_by_recurrence), anon);
        let file = sum(&footprint.file_by_switch);
        assert_eq!(weighted(&footprint.file_by_recurrence), file);
        assert_eq!(sum(&footprint.file_by_size), file);
    }
}
