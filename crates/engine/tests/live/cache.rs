//! That the page cache holds what was learned of a file.

use crate::rig::{Rig, of_files, params};
use prepage_core::file::FileTargets;
use prepage_core::outcome::SwitchRecord;
use prepage_engine::EngineParams;
use prepage_kernel::sched::sleep_us;
use prepage_kernel::testing::child::Child;
use prepage_kernel::testing::machine::eventually;
use prepage_kernel::testing::page_cache::{cached, drop_cache};
use std::path::Path;

/// A switch in which the child reads pages 64 to 96 of the file that it means by `path`, which is `backing` here.
pub fn switch_reading(
    rig: &mut Rig,
    child: &mut Child,
    action: &str,
    path: &Path,
    backing: &Path,
) -> SwitchRecord {
    drop_cache(backing);
    let mut pages = 0..0;
    let record = rig.switch(|| {
        // The watch on openings begins a moment after the switch, in a thread of its own.
        sleep_us(20_000);
        pages = child.tell_file(action, path, 64, 32);
    });
    // What is mapped stays in the page cache.
    child.tell_at("unmap", pages);
    record
}

/// What the child read, by read(2) or through a mapping, is in the page cache before it reads it again.
pub fn is_learned_and_fetched(child: &mut Child, path: &Path, backing: &Path) {
    for action in ["readfile", "mapfile"] {
        let mut rig = Rig::new(child, &EngineParams::default(), params());
        // A fault maps the pages around it that are in memory, and of those nothing is known: they are learned once
        // they are not. From 6.18 on one that waits for a large folio maps all of it.
        let (least, switches_max) = match action {
            "mapfile" => (16, 12),
            _ => (32, 1),
        };
        let learned = (0..switches_max).any(|_| {
            let record = switch_reading(&mut rig, child, action, path, backing);
            assert_eq!(
                (record.void, record.unresolved),
                (None, 0),
                "{action}: {record:?}"
            );
            planned_pages(&rig, path) >= least
        });
        assert!(learned, "{action}: {} pages", planned_pages(&rig, path));
        drop_cache(backing);
        rig.begin();
        eventually("the pages are fetched", || cached(backing, 64, 32) >= least);
        let record = rig.end();
        // The gaps between them are in the cache too.
        let files = of_files(&record);
        assert!(files.fetched + files.gap >= least, "{action}: {record:?}");
    }
}

fn planned_pages(rig: &Rig, path: &Path) -> u64 {
    let plan = rig.machine.app(&rig.app).expect("tracked").plan();
    let of_path = |targets: &&FileTargets| Path::new(&*targets.file.path) == path;
    let planned = plan.files.iter().find(of_path);
    planned.map_or(0, |targets| targets.wanted.pages())
}
