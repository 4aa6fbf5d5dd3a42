//! The whole way, as a user goes it: a real service, a process that is swapped out, `prepage switch`, `prepage stats`.

mod common;

use common::{Service, wait_until};
use prepage_kernel::testing::child::Child;
use prepage_kernel::testing::machine::Machine;
use rustix::process::Signal;

const PAGES: u64 = 4096;

#[test]
fn child_role() {
    assert!(!prepage_kernel::testing::child::play_role(), "nobody asked");
}

/// One switch: begun and ended by command, the child touching all its pages meanwhile.
fn switch(service: &Service, child: &mut Child, pid: &str) {
    let before = service.switches().len();
    service.call(&["switch", "begin", "--pid", pid]);
    child.tell_pages("read", 0..PAGES);
    service.call(&["switch", "end", "--pid", pid]);
    wait_until("the switch's record", || service.switches().len() > before);
}

fn present(child: &Child) -> usize {
    child
        .entries()
        .iter()
        .filter(|entry| entry.present())
        .count()
}

#[test]
fn a_swapped_out_process_is_fetched_by_command_and_explained() {
    let _machine = Machine::with_swap();
    let service = Service::start("[switch]\nrepeat_ms = 0\nonset_faults = 0\n");
    let mut child = Child::spawn(PAGES);
    let pid = child.pid().to_string();
    service.call(&["track", "--pid", &pid, "--name", "patient"]);
    for _ in 0..2 {
        child.swap_out();
        switch(&service, &mut child, &pid);
    }
    child.swap_out();
    service.call(&["switch", "begin", "--pid", &pid]);
    wait_until("the pages", || present(&child) > PAGES as usize / 2);
    switch(&service, &mut child, &pid);
    let fetched = |record: &serde_json::Value| record["anon"]["fetched"].as_u64().unwrap_or(0);
    let most = service.switches().iter().map(fetched).max();
    assert!(most > Some(PAGES / 2), "{:?}", service.switches());
    let explained = service.call(&["explain", "patient"]);
    assert!(explained.contains("patient"), "{explained}");
}

#[test]
fn a_service_killed_during_a_fetch_leaves_the_application_as_it_was() {
    let _machine = Machine::with_swap();
    // Slow enough to be killed in the middle.
    let slow =
        "[switch]\nrepeat_ms = 0\nonset_faults = 0\n[fetch]\npace_pages = 16\npace_us = 5000\n";
    let mut service = Service::start(slow);
    let mut child = Child::spawn(PAGES);
    let pid = child.pid().to_string();
    service.call(&["track", "--pid", &pid]);
    for _ in 0..2 {
        child.swap_out();
        switch(&service, &mut child, &pid);
    }
    child.swap_out();
    service.call(&["switch", "begin", "--pid", &pid]);
    service.signal(Signal::KILL);
    service.wait();
    let left = PAGES as usize - present(&child);
    assert!(left > 0, "it was fetched before the service was killed");
    child.tell_pages("write", 0..PAGES);
    assert_eq!(present(&child), PAGES as usize);
}
