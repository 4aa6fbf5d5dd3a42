//! An application whose files lie on a file system that never answers.

use crate::launch_rig::NOBODY;
use crate::rig::{Rig, collect, named, next_observation, observe, params, plan_of, plan_of_file};
use prepage_core::identity::{AppId, FileId};
use prepage_core::outcome::Void;
use prepage_core::plan::Plan;
use prepage_engine::{EngineParams, Executor, Members};
use prepage_kernel::clock::monotonic_ns;
use prepage_kernel::testing::child::Child;
use prepage_kernel::testing::hanging::HangingMount;
use prepage_kernel::testing::machine::{Directory, Machine, eventually};
use prepage_kernel::testing::page_cache::{cached, drop_cache};
use prepage_kernel::testing::sleeping::Sleeping;
use std::path::Path;

/// A child that sees a FUSE file system in this directory, in a mount namespace of its own. It holds the descriptor by which
/// requests would be answered, and answers none. With it, all of that ends.
fn with_dead_file_system(directory: &Path) -> Child {
    const MOUNT: &str = r#"exec 9<>/dev/fuse &&
        mount -i -t fuse -o fd=9,rootmode=40000,user_id=0,group_id=0 dead "$1" && shift && exec "$@""#;
    let directory = directory.to_str().expect("text");
    let through = ["unshare", "--mount", "sh", "-c", MOUNT, "sh", directory];
    Child::spawn_through(&through, 1)
}

/// A plan of a file there.
fn plan_of_dead_file(directory: &Path) -> Plan {
    let file = FileId {
        path: directory.join("file").to_str().expect("text").into(),
        device: (0, 1),
        inode: 7,
        size: 1 << 20,
        mtime_ns: 0,
    };
    plan_of(file, 0..16)
}

/// A switch to this application in which nothing is fetched, and which is ended at once.
fn switch(rig: &mut Rig, app: &AppId, number: u64, plan: &Plan) {
    for action in [observe(app, number, false), collect(app, number, plan)] {
        rig.engine.perform(monotonic_ns(), action);
    }
}

#[test]
fn a_file_system_that_never_answers_holds_up_its_application_only() {
    let (_machine, directory) = (Machine::with_swap(), Directory::new());
    let (stuck, other) = (with_dead_file_system(&directory.0), Child::spawn(1));
    let mut engine = EngineParams::default();
    engine.observe.watchdog_ms = 50;
    let mut rig = Rig::new(&stuck, &engine, params());
    let (app, other_app) = (rig.app.clone(), named("other"));
    rig.engine.follow(&other_app, &[Members::Tree(other.pid())]);
    let dead = plan_of_dead_file(&directory.0);

    switch(&mut rig, &app, 1, &dead);
    assert!(next_observation(&mut rig).is_none(), "that hangs");
    switch(&mut rig, &other_app, 1, &Plan::default());
    let (observed, _, seen) = next_observation(&mut rig).expect("others are observed");
    assert_eq!((observed, seen.void), (other_app, None));
    assert!(seen.files_observed);
    assert_eq!(rig.engine.threads_given_up(), 1);

    // No more threads than one hang in it.
    switch(&mut rig, &app, 2, &dead);
    let (_, number, seen) = next_observation(&mut rig).expect("an answer");
    assert_eq!((number, seen.void), (2, Some(Void::EventsLost)));
    assert_eq!(rig.engine.threads_given_up(), 1);

    // The file system is gone, and what hung goes on.
    drop(stuck);
    let (_, number, _) = next_observation(&mut rig).expect("the first one, at last");
    assert_eq!(number, 1);
    eventually("the application is observed again", || {
        switch(&mut rig, &app, 3, &Plan::default());
        next_observation(&mut rig).is_some_and(|(_, _, seen)| seen.void.is_none())
    });
}

#[test]
fn what_hangs_of_one_user_turns_fetching_off_for_that_user_only() {
    let (_machine, directory) = (Machine::with_swap(), Directory::new());
    let (path, point) = (directory.file("file", 16), directory.path("hanging"));
    std::fs::create_dir(&point).expect("mkdir");
    let mut engine = EngineParams::default();
    engine.fetch.watchdog_ms = 50;
    engine.fetch.replacements_max = 0;
    let child = Child::spawn(1);
    let mut rig = Rig::new(&child, &engine, params());
    let process = Sleeping::spawn_as(NOBODY);
    let others = rig.app.clone();
    let app = AppId {
        owner: NOBODY,
        ..named("app")
    };
    rig.engine.follow(&app, &[Members::Tree(process.pid())]);
    let plan = plan_of_file(&path, 0..16);
    let is_fetched = |rig: &mut Rig, app: &AppId| {
        drop_cache(&path);
        rig.fetch_for(app, &plan);
        // One that is behind what hangs comes no further.
        (0..20).any(|_| {
            prepage_kernel::sched::sleep_us(10_000);
            cached(&path, 0, 16) == 16
        })
    };
    eventually("it is fetched", || is_fetched(&mut rig, &app));

    let hanging = HangingMount::at(&point);
    rig.fetch_for(&app, &plan_of_dead_file(&point));
    eventually("others' is fetched beside what hangs", || {
        is_fetched(&mut rig, &others) && rig.engine.threads_given_up() == 1
    });
    assert!(!is_fetched(&mut rig, &app));
    eventually("others' still is", || is_fetched(&mut rig, &others));
    assert_eq!(rig.engine.threads_given_up(), 1, "nothing more hangs");

    drop(hanging);
    eventually("it is fetched again", || is_fetched(&mut rig, &app));
}
