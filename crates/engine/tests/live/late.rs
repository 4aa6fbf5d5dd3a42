//! Pages that the application waits for while they are being fetched.

use crate::rig::{Rig, needs_access_reports, of_files, params};
use prepage_core::outcome::Late;
use prepage_core::params::Mode;
use prepage_engine::EngineParams;
use prepage_kernel::page::page_size;
use prepage_kernel::testing::child::Child;
use prepage_kernel::testing::machine::{Directory, Machine, eventually};
use prepage_kernel::testing::page_cache::{cached, drop_cache};
use std::fs::File;
use std::path::Path;

/// A file that takes so long to read that it can be waited for, on any disk.
const LARGE_FILE_PAGES: u64 = 32 << 10;

/// Has a page touched, through a mapping, while the plan's read of it is in flight. `None` where it was not.
fn touch_in_flight(rig: &mut Rig, child: &mut Child, path: &Path, page: u64) -> Option<Late> {
    drop_cache(path);
    rig.begin();
    // In the page cache since its read was submitted, not since it was complete.
    eventually("the page's read is submitted", || {
        cached(path, page, 1) == 1
    });
    let mapped = child.tell_file("mapfile", path, page, 1);
    // The rest is used as well, when it is there: of a plan that is not used, nothing would be left for another try.
    std::io::copy(&mut File::open(path).expect("open"), &mut std::io::sink()).expect("read");
    child.tell_file("readfile", path, 0, LARGE_FILE_PAGES);
    let record = rig.end();
    // What is mapped stays in the page cache.
    child.tell_at("unmap", mapped);
    assert_eq!(record.void, None, "{record:?}");
    assert_eq!(
        (record.events_lost, record.anon.late),
        (0, None),
        "{record:?}"
    );
    let late = of_files(&record).late.expect("accesses are reported");
    (late.pages > 0).then_some(late)
}

#[test]
fn a_page_that_is_waited_for_in_flight_is_late_and_no_demand_fault() {
    let (_machine, directory) = (Machine::with_swap(), Directory::new());
    needs_access_reports();
    let path = directory.file("large", LARGE_FILE_PAGES);
    let mut child = Child::spawn(1);
    let mut engine = EngineParams::default();
    // All of it is submitted at once.
    engine.fetch.file_depth_bytes = LARGE_FILE_PAGES * page_size();
    engine.observe.file_ring_pages = 1024;
    let mut rig = Rig::new(&child, &engine, params());
    for _ in 0..2 {
        drop_cache(&path);
        rig.switch(|| {
            prepage_kernel::sched::sleep_us(20_000);
            child.tell_file("readfile", &path, 0, LARGE_FILE_PAGES);
        });
    }
    // The disk may be done before the child is told: a page that was not in flight any more is not late.
    let last_pages = (LARGE_FILE_PAGES - 10..LARGE_FILE_PAGES).rev();
    let mut touched = last_pages.map(|page| touch_in_flight(&mut rig, &mut child, &path, page));
    let late = touched
        .find_map(|late| late)
        .expect("no page was touched in flight, in ten tries");
    assert_eq!(late.pages, 1);
    assert!((1..1_000_000).contains(&late.wait_us), "{late:?}");
    // What nobody fetches is read on demand, and not late.
    rig.set_mode(Mode::Observe);
    drop_cache(&path);
    let record = rig.switch(|| child.tell_file("mapfile", &path, 100, 16));
    assert_eq!(of_files(&record).late, Some(Late::default()), "{record:?}");
}
