//! Shared memory of the application that a process which is none of its own uses for it, as an X server does.

use crate::rig::{Rig, demand_faults, params};
use prepage_core::params::Mode;
use prepage_engine::EngineParams;
use prepage_kernel::process;
use prepage_kernel::testing::child::Child;
use prepage_kernel::testing::machine::{Machine, Setting};

const PAGES: u64 = 512;

#[test]
fn what_another_process_demands_of_it_is_fetched_for_that() {
    let _machine = Machine::with_swap();
    let _cluster = Setting::no_swap_readahead();
    for kind in ["shared", "memfd"] {
        let mut app = Child::spawn(16);
        let pages = app.map(kind, PAGES);
        let mut server = Child::spawn(16);
        // What is watched shows its use, and is not mapped.
        let mut params = params();
        params.anon.observe_interval_max = 1;
        let mut rig = Rig::new(&app, &EngineParams::default(), params);
        app.swap_out_at(&pages);
        let path = app.object_path_at(&pages);
        let mut theirs = 0..0;
        let record = rig.switch(|| theirs = server.tell_file("mapfile", &path, 0, PAGES));
        assert_eq!(record.void, None, "{kind}: {record:?}");
        assert!(record.anon.demanded > PAGES * 9 / 10, "{kind}: {record:?}");
        for round in 0..2 {
            server.swap_out_at(&theirs);
            let record = rig.switch(|| server.tell_at("read", theirs.clone()));
            assert_eq!(record.void, None, "{kind} {round}: {record:?}");
        }
        // Of what is fetched the server uses one half.
        server.swap_out_at(&theirs);
        let before = demand_faults(&server);
        rig.begin();
        rig.wait_for_fetch();
        server.tell_at("read", theirs.start..theirs.start + PAGES / 2);
        let faults = demand_faults(&server) - before;
        let record = rig.end();
        assert!(faults < PAGES / 20, "{kind}: {faults} demand faults left");
        let anon = &record.anon;
        let near = |pages: u64| pages.abs_diff(PAGES / 2) < PAGES / 20;
        assert!(anon.fetched > PAGES * 9 / 10, "{kind}: {record:?}");
        assert!(near(anon.used) && near(anon.unused), "{kind}: {record:?}");
    }
}

#[test]
fn what_another_process_demands_of_it_is_mapped_for_that() {
    let _machine = Machine::with_swap();
    let _cluster = Setting::no_swap_readahead();
    let mut app = Child::spawn(16);
    let pages = app.map("memfd", PAGES);
    let mut server = Child::spawn(16);
    let mut rig = Rig::new(&app, &EngineParams::default(), params());
    app.swap_out_at(&pages);
    let path = app.object_path_at(&pages);
    let mut theirs = 0..0;
    rig.switch(|| theirs = server.tell_file("mapfile", &path, 0, PAGES));
    let faults = |server: &Child| {
        let stat = process::stat(server.pid()).expect("stat");
        stat.minor_faults + stat.major_faults
    };
    let mut mapped = 0;
    let mut taken = 0;
    for _ in 0..8 {
        // A page that two processes map is not swapped out.
        server.tell_at("discard", theirs.clone());
        app.tell_at("read", pages.clone());
        app.swap_out_at(&pages);
        rig.begin();
        rig.wait_for_fetch();
        mapped = app
            .entries_at(&pages)
            .iter()
            .filter(|e| e.present())
            .count() as u64;
        let before = faults(&server);
        server.tell_at("read", theirs.clone());
        taken = faults(&server) - before;
        let record = rig.end();
        assert_eq!(record.void, None, "{record:?}");
    }
    assert!(mapped > PAGES / 2, "{mapped} pages are mapped");
    assert!(taken < PAGES / 2, "{taken} faults of the server's");
}

/// What is brought in by one mapping is there for another one, whose pages show their use, to be watched or not.
#[test]
fn what_is_mapped_twice_weighs_no_more_than_it_is() {
    let _machine = Machine::with_swap();
    let _cluster = Setting::no_swap_readahead();
    let mut app = Child::spawn(16);
    let first = app.map("memfd", PAGES);
    let path = app.object_path_at(&first);
    let second = app.tell_file("mapfile", &path, 0, PAGES);
    let mut rig = Rig::new(&app, &EngineParams::default(), params());
    let swap_out = |app: &mut Child| {
        // A page that is mapped twice is not swapped out.
        app.tell_at("discard", second.clone());
        app.tell_at("read", first.clone());
        app.swap_out_at(&first);
    };
    // What one has demanded is there for the other.
    rig.set_mode(Mode::Observe);
    for (before, after) in [(&first, &second), (&second, &first)].repeat(2) {
        swap_out(&mut app);
        rig.switch(|| [before, after].map(|pages| app.tell_at("read", pages.clone())));
    }
    rig.set_mode(Mode::Full);
    let mut weights = Vec::new();
    for _ in 0..6 {
        swap_out(&mut app);
        rig.begin();
        rig.wait_for_fetch();
        app.tell_at("read", first.clone().chain(second.clone()));
        let record = rig.end();
        assert_eq!(record.void, None, "{record:?}");
        weights.push((record.anon.precision.of, record.anon.fetched));
    }
    let &(of, fetched) = weights.last().expect("switches");
    assert!(fetched > PAGES && of > 0, "{weights:?}");
    assert!(of < 2 * fetched, "{weights:?}");
}
