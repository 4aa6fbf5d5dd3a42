//! Facts about the whole system, and the calling thread.

use prepage_kernel::block_trace::BlockKind;
use prepage_kernel::filemap::FilemapKind;
use prepage_kernel::psi;
use prepage_kernel::sched::{self, Policy};
use prepage_kernel::support::Support;
use prepage_kernel::testing::machine::{Directory, Machine};
use prepage_kernel::testing::sleeping::Sleeping;
use prepage_kernel::{clock, mountinfo, process, swaps, user_namespace, zram};
use std::num::NonZeroU64;
use std::path::{Path, PathBuf};

#[test]
fn support_is_probed_and_leaves_nothing_behind() {
    let machine = Machine::with_swap();
    let mounts = mountinfo::read().expect("mountinfo");
    let fds = own_fds();
    let support = Support::probe();
    println!("{support:#?}");
    assert_eq!(mountinfo::read().expect("mountinfo"), mounts);
    assert_eq!(own_fds(), fds);
    let facts = [
        ("process_vm_readv", &support.process_vm_readv),
        (
            "process_madvise(WILLNEED)",
            &support.process_madvise_willneed,
        ),
        ("process_madvise(COLD)", &support.process_madvise_cold),
        ("pagemap", &support.pagemap),
        ("perf", &support.perf_major_faults),
        ("tracefs", &support.tracefs),
        ("fanotify", &support.fanotify),
        ("openat2", &support.open_in_root),
        ("exec tracepoint", &support.exec_tracepoint),
        ("task records", &support.task_records),
        ("ptrace", &support.ptrace),
        ("fiemap", &support.fiemap),
    ];
    for (name, fact) in facts {
        assert!(fact.available, "{name}: {}", fact.detail);
    }
    assert!(
        support.filemap_tracepoints.contains(&FilemapKind::Added),
        "{:?}",
        support.filemap_tracepoints
    );
    assert_eq!(support.block_tracepoints, BlockKind::ALL);
    assert!(!support.swap_areas.is_empty());
    assert_eq!(support.effective_uid, 0);
    assert_eq!(
        support.zswap.available,
        swaps::zswap_enabled().unwrap_or(false)
    );
    drop(machine);
}

#[test]
fn what_newer_kernels_offer_is_found() {
    let _machine = Machine::lock();
    let support = Support::probe();
    let cachestat = &support.cachestat;
    assert!(
        cachestat.available,
        "this test needs cachestat (6.5): {}",
        cachestat.detail
    );
    assert_eq!(
        support.filemap_tracepoints,
        FilemapKind::ALL,
        "this test needs a kernel that reports file accesses (6.12)"
    );
}

#[test]
fn of_a_process_with_more_mounts_than_are_read_no_part_passes_for_all() {
    // Each doubles what is mounted.
    const MOUNT: &str = r#"cd "$1" && mount --bind . "$1" && cd "$1" &&
        for i in 1 2 3 4 5 6 7 8 9; do mkdir $i && mount --rbind "$1" "$1/$i" || exit; done &&
        shift && exec "$@""#;
    let _machine = Machine::lock();
    let directory = Directory::new();
    let path = directory.file_of_long_path();
    let point = path.ancestors().nth(10).and_then(Path::to_str);
    let enters = [
        "unshare",
        "--mount",
        "sh",
        "-c",
        MOUNT,
        "sh",
        point.expect("text"),
    ];
    let process = Sleeping::spawn_through(&enters);
    let error = mountinfo::read_of(process.pid()).expect_err("it is longer than 1 MiB");
    assert!(error.to_string().ends_with("(EFBIG 27)"), "{error}");
    let mounts = mountinfo::read_of(process::own_pid()).expect("our own");
    assert_eq!(mountinfo::read().expect("our own"), mounts);
}

#[test]
fn who_made_a_process_s_user_namespace_has_it() {
    const USER: u32 = 60_123;
    let ours = Sleeping::spawn_as(USER);
    assert_eq!(user_namespace::owner(ours.pid()).expect("there"), None);
    let first = Sleeping::spawn_in_namespace_of(USER, 500_000);
    let enters = first.entered_as(7);
    let other = Sleeping::spawn_through(&enters);
    let makes = ["unshare", "--user"].map(str::to_owned);
    let within = Sleeping::spawn_through(&[&enters[..], &makes].concat());
    let of_root = Sleeping::spawn_through(&makes);
    let uid = |process: &Sleeping| process::status(process.pid()).expect("there").uid.effective;
    let owner = |process: &Sleeping| user_namespace::owner(process.pid()).expect("there");
    let found = [&first, &other, &within, &of_root].map(|process| (uid(process), owner(process)));
    let of_user = Some(USER);
    let given = 500_006;
    assert_eq!(
        found,
        [
            (USER, of_user),
            (given, of_user),
            (given, of_user),
            (0, Some(0))
        ]
    );
    let ended = ours.pid();
    drop(ours);
    let error = user_namespace::owner(ended).expect_err("it has ended");
    assert!(error.is_gone(), "{error}");
}

/// What our descriptors refer to, but for those of tests that wait for their turn.
fn own_fds() -> Vec<PathBuf> {
    let entries = std::fs::read_dir("/proc/self/fd")
        .expect("own fds")
        .flatten();
    let targets = entries.filter_map(|entry| std::fs::read_link(entry.path()).ok());
    let mut targets: Vec<PathBuf> = targets
        .filter(|path| !path.ends_with("prepage-test.lock"))
        .collect();
    targets.sort();
    targets
}

#[test]
fn pressure_and_its_trigger() {
    let _machine = Machine::lock();
    let waited_us = psi::waited_us().expect("this test needs PSI");
    assert!(psi::waited_us().expect("still there") >= waited_us);
    psi::trigger(Path::new(psi::MEMORY), 150_000, 2_000_000).expect("a trigger");
    assert_eq!(
        psi::trigger(Path::new(psi::MEMORY), 2, 1)
            .expect_err("absurd")
            .errno(),
        Some(libc::EINVAL)
    );
}

#[test]
fn swap_areas_and_zram_devices_agree() {
    let _machine = Machine::with_swap();
    for area in swaps::areas().expect("areas") {
        assert!(area.size_kib >= area.used_kib);
        if area.kind == swaps::SwapKind::Zram {
            let name = area
                .path
                .file_name()
                .and_then(|name| name.to_str())
                .expect("a device");
            let device = zram::read(name).expect("its zram device");
            assert!(!device.algorithm.is_empty() && !device.algorithm.contains(['[', ' ']));
            assert!(
                zram::devices()
                    .expect("devices")
                    .iter()
                    .any(|device| device.name == name)
            );
        }
    }
    swaps::page_cluster().expect("page-cluster");
}

#[test]
fn policies_are_set_and_left() {
    let _machine = Machine::lock();
    // Of this thread only: the test runner gives each test its own.
    let default = sched::current_thread_policy().expect("policy");
    sched::set_current_thread_policy(Policy::RealTime).expect("real time");
    assert_eq!(
        sched::current_thread_policy().expect("read it"),
        Policy::RealTime
    );
    sched::set_current_thread_policy(Policy::Idle).expect("idle");
    assert_eq!(
        sched::current_thread_policy().expect("policy"),
        Policy::Idle
    );
    let nice = Policy::Other {
        nice: 5,
        slice_us: Some(300),
    };
    sched::set_current_thread_policy(nice).expect("other");
    match sched::current_thread_policy().expect("policy") {
        Policy::Other { nice: 5, slice_us } => {
            assert!(slice_us.is_none_or(|us| us == 300), "{slice_us:?}")
        }
        other => panic!("{other:?}"),
    }
    sched::set_current_thread_policy(Policy::Other {
        nice: 0,
        slice_us: None,
    })
    .expect("back");
    assert_eq!(sched::current_thread_policy().expect("policy"), default);
}

#[test]
fn a_thread_is_pinned_and_timed() {
    let _machine = Machine::lock();
    let cpus = sched::capacities().expect("CPUs");
    assert!(cpus.iter().all(|&(_, capacity)| capacity > 0));
    let (last, _) = *cpus.last().expect("at least one");
    sched::pin_current_thread(&[last]).expect("pin");
    assert_eq!(rustix::thread::sched_getcpu(), last);
    assert!(sched::pin_current_thread(&[1 << 20]).is_err());
    assert!(sched::pin_current_thread(&[]).is_err());

    let (cpu, wall) = (sched::thread_cpu_time_ns(), clock::monotonic_ns());
    sched::set_timer_slack_ns(NonZeroU64::MIN).expect("timer slack");
    let shortest = (0..200).map(|_| {
        let start = clock::monotonic_ns();
        sched::sleep_us(20);
        clock::monotonic_ns() - start
    });
    let shortest = shortest.min().expect("200 sleeps");
    assert!(
        (20_000..60_000).contains(&shortest),
        "{shortest} ns: with the default slack it would be 70 us"
    );
    assert!(
        sched::thread_cpu_time_ns() > cpu
            && sched::thread_cpu_time_ns() - cpu < clock::monotonic_ns() - wall
    );
}
