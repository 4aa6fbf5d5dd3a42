//! The whole way, as a user goes it: a real service, a process that is swapped out, `prepage switch`, `prepage stats`.

mod common;

use common::{Service, wait_until};
use prepage_kernel::testing::child::Child;
use prepage_kernel::testing::group::{Group, memory};
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
fn what_the_next_switch_needs_is_reclaimed_ahead_where_a_limit_is_reached() {
    const OTHERS_PAGES: u64 = PAGES * 2;
    let _machine = Machine::with_swap();
    let service = Service::start(
        "[switch]\nrepeat_ms = 0\nonset_faults = 0\n[reclaim]\nafter_ms = 100\nshare_max = 1.0\nstall_percent_max = 100\n",
    );
    let above = Group::create(&memory());
    let (ours, theirs) = (Group::below(&above), Group::below(&above));
    let mut child = Child::spawn_in(&ours.0, PAGES);
    let mut other = Child::spawn(1);
    theirs.0.add(other.pid()).expect("move the other");
    let others = other.map("private", OTHERS_PAGES);
    let pid = child.pid().to_string();
    service.call(&["track", "--pid", &pid, "--name", "patient"]);
    for _ in 0..2 {
        child.swap_out();
        switch(&service, &mut child, &pid);
    }
    assert_eq!(
        service.json(&["status"])["reclaimed_ahead_bytes"],
        0,
        "nothing is limited"
    );
    child.swap_out();
    above.limit_memory(above.usage_bytes());
    let out = || {
        let entries = other.entries_at(&others);
        entries.iter().filter(|entry| entry.swapped()).count() as u64
    };
    assert_eq!(out(), 0);
    wait_until("the other's pages to make room", || out() > PAGES / 2);
    wait_until("it to be reported", || {
        service
            .call(&["status"])
            .contains("reclaimed ahead of switches")
    });
    service.call(&["switch", "begin", "--pid", &pid]);
    wait_until("the pages", || present(&child) > PAGES as usize / 2);
    above.limit_memory_no_longer();
    child.tell_pages("verify", 0..PAGES);
    other.tell_at("verify", others);
}

#[test]
fn an_application_is_brought_back_by_command_ahead_of_need() {
    let _machine = Machine::with_swap();
    let service = Service::start("");
    let mut child = Child::spawn(PAGES);
    let pid = child.pid().to_string();
    let (status, refusal) = service.refused(&["restore", "--pid", &pid]);
    assert!(status == 1 && refusal.contains("track"), "{refusal}");
    service.call(&["track", "--pid", &pid, "--name", "patient"]);
    child.swap_out();
    let said = service.call(&["restore", "--name", "patient"]);
    // It is waited for.
    assert_eq!(present(&child), PAGES as usize);
    assert!(
        said.contains("brought back") && said.contains("patient"),
        "{said}"
    );
    child.tell_pages("verify", 0..PAGES);
    let again = service.json(&["restore", "--name", "patient"]);
    assert!(again["out_pages"].as_u64() < Some(PAGES / 8), "{again}");
    assert!(again["took_us"].is_u64());

    service.call(&["mode", "off"]);
    let (status, refusal) = service.refused(&["restore", "--pid", &pid]);
    assert!(
        status == 1 && refusal.contains("prepage mode full"),
        "{refusal}"
    );
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

/// A switch shows many thousand pages, in lists that several threads make, pass on and free: what is left of them is bounded.
/// Its program is not counted here, of which this build's is large.
#[test]
fn a_service_whose_applications_were_switched_to_is_small() {
    const SWITCHES: u64 = 4;
    let _machine = Machine::with_swap();
    let service = Service::start("[switch]\nrepeat_ms = 0\nonset_faults = 0\n");
    let mut children: Vec<Child> = (0..8).map(|_| Child::spawn(PAGES)).collect();
    for number in 0..SWITCHES {
        for (index, child) in children.iter_mut().enumerate() {
            let (pid, name) = (child.pid().to_string(), format!("app{index}"));
            if number == 0 {
                service.call(&["track", "--pid", &pid, "--name", &name]);
            }
            child.swap_out();
            let before = service.switches().len();
            service.call(&["switch", "begin", "--pid", &pid]);
            // In many extents, others in each switch.
            for page in (0..PAGES).step_by(64) {
                child.tell_pages("read", page..page + 8 + number);
            }
            service.call(&["switch", "end", "--pid", &pid]);
            wait_until("the switch's record", || service.switches().len() > before);
        }
    }
    let status = prepage_kernel::process::status(service.pid()).expect("running");
    let kib = status.rss_anon_kib;
    assert!(kib < 8 << 10, "{kib} KiB of its memory are resident");
}
