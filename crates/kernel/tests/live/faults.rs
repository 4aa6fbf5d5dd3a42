//! perf rings and tracepoints.

use prepage_kernel::filemap::{Filemap, FilemapEvent, FilemapKind};
use prepage_kernel::perf::{Drained, FaultRings, TracepointRings, Wakeup, paranoid};
use prepage_kernel::process::own_pid;
use prepage_kernel::ring::{FaultSample, PAGE_FAULT};
use prepage_kernel::spans::{MapCall, Mark, Span, SpanKind, SpanRings, pair};
use prepage_kernel::testing::child::Child;
use prepage_kernel::testing::held::HeldCommand;
use prepage_kernel::testing::machine::{Directory, Machine, eventually, is_readable};
use prepage_kernel::tracefs::Tracefs;
use prepage_kernel::{clock, mountinfo, page, process, process_vm, readahead, sched};
use rustix::fd::AsFd;
use std::fs::File;
use std::num::NonZeroU64;
use std::os::unix::fs::{FileExt, MetadataExt};

fn fault_rings(ring_pages: usize, wakeup: Wakeup) -> FaultRings {
    let cpus = sched::online_cpus().expect("CPUs");
    let rings = FaultRings::open(&cpus, ring_pages, NonZeroU64::MIN, wakeup)
        .expect("these tests need system-wide perf events");
    rings.enable().expect("enable");
    rings
}

fn drain(rings: &mut FaultRings, samples: &mut Vec<FaultSample>) -> Drained {
    rings.drain(|sample| samples.push(sample))
}

#[test]
fn a_swap_in_shows_with_its_process_and_address() {
    let _machine = Machine::with_swap();
    let mut child = Child::spawn(64);
    child.swap_out();
    let mut rings = fault_rings(16, Wakeup::Events(1));
    let before = clock::monotonic_ns();
    child.tell("read", 5);
    child.tell("write", 9);
    // Not faults of the application: ours, for it.
    process_vm::touch(child.pid(), &[child.page(30), child.page(31)]).expect("touch");
    let after = clock::monotonic_ns();
    rings.disable().expect("disable");
    child.tell("read", 40);
    let mut samples = Vec::new();
    let drained = drain(&mut rings, &mut samples);
    assert_eq!(
        (drained.lost, drained.malformed, drained.samples),
        (0, 0, samples.len() as u64)
    );
    samples.retain(|sample| child.pages.contains(&page::page_of(sample.address)));
    samples.sort_by_key(|sample| sample.time_ns);
    let pages: Vec<u64> = samples
        .iter()
        .map(|sample| page::page_of(sample.address))
        .collect();
    assert_eq!(pages, [child.page(5), child.page(9)]);
    for sample in &samples {
        assert_eq!(sample.pid, child.pid());
        assert!(
            before < sample.time_ns && sample.time_ns < after,
            "CLOCK_MONOTONIC"
        );
    }
}

#[test]
fn what_a_process_and_its_children_had_read_is_summed_up_by_fault_or_read() {
    let (_machine, directory) = (Machine::lock(), Directory::new());
    let (mut files, run) = directory.programs(3);
    let data = directory.file("data", 1024);
    let read = format!("cat {} | cat >/dev/null", data.display());
    files.push(data);
    let written = directory.path("written");
    let write = format!(
        "dd if=/dev/zero of={} bs=4k count=64 oflag=dsync status=none",
        written.display()
    );
    let (done, stop) = (directory.path("done"), directory.path("stop"));
    let bytes = |run: &str| {
        let wait = format!("until [ -e {} ]; do sleep 0.01; done", stop.display());
        let script = format!("{run}; : >{}; {wait}", done.display());
        let held = HeldCommand::new(&["bash", "-c", &script]);
        let pid = held.pid();
        let before = process::bytes_read(pid).expect("lives");
        let running = held.release();
        eventually("it has run", || done.exists());
        let bytes = process::bytes_read(pid).expect("lives") - before;
        std::fs::write(&stop, "").expect("write");
        assert_eq!(running.finish().1, 0);
        for path in [&done, &stop] {
            std::fs::remove_file(path).expect("remove");
        }
        bytes
    };
    for (run, least) in [(&run, 3 * 4_096), (&read, 1024 * 4_096)] {
        bytes(run);
        let warm = bytes(run);
        for path in &files {
            let file = File::open(path).expect("open");
            readahead::fadvise_dontneed(file.as_fd(), 0, 0).expect("fadvise");
        }
        let cold = bytes(run);
        assert!(
            cold >= warm + least,
            "{run}: {warm} bytes in memory, {cold} on disk"
        );
        assert!(warm < 4 * 4_096, "{run}: {warm} bytes in memory");
    }
    let reads = bytes(&write);
    assert!(reads < 32 * 4_096, "{reads} bytes read by 64 writes");
    let gone = process::bytes_read(i32::MAX).expect_err("there is no such process");
    assert!(gone.is_gone(), "{gone}");
}

#[test]
fn rings_wrap_around_lose_and_count() {
    let _machine = Machine::with_swap();
    let mut child = Child::spawn(600);
    // The loss on a CPU is told by that CPU's next sample: so all must be of one.
    child.pin(0);
    child.swap_out();
    // A page holds about 120 samples of 32 bytes.
    let mut rings = fault_rings(1, Wakeup::Bytes(2048));
    let mut samples = Vec::new();
    for index in 0..300 {
        child.tell("read", index);
        if index % 50 == 49 {
            assert_eq!(drain(&mut rings, &mut samples).lost, 0);
        }
    }
    samples.retain(|sample| {
        sample.pid == child.pid() && child.pages.contains(&page::page_of(sample.address))
    });
    samples.sort_by_key(|sample| sample.time_ns);
    let pages: Vec<u64> = samples
        .iter()
        .map(|sample| page::page_of(sample.address))
        .collect();
    assert_eq!(
        pages,
        (0..300).map(|index| child.page(index)).collect::<Vec<_>>()
    );
    for index in 300..600 {
        child.tell("read", index);
    }
    let mut lost = drain(&mut rings, &mut samples).lost;
    // The record that counts the lost ones is written ahead of the next that fits.
    child.swap_out();
    (0..20).for_each(|index| child.tell("read", index));
    lost += drain(&mut rings, &mut samples).lost;
    assert!(lost > 0, "a ring of a page cannot hold 300 samples");
}

#[test]
fn a_period_samples_so_many_faults_of_a_cpu() {
    let _machine = Machine::with_swap();
    let mut child = Child::spawn(200);
    child.pin(0);
    child.swap_out();
    let period = NonZeroU64::new(10).expect("not zero");
    let mut rings = FaultRings::open(&[0], 8, period, Wakeup::Events(1)).expect("open");
    rings.enable().expect("enable");
    (0..200).for_each(|index| child.tell("read", index));
    let mut count = 0;
    rings.drain(|sample| count += u32::from(sample.pid == child.pid()));
    // Faults of others on that CPU count towards the period too.
    assert!((10..=30).contains(&count), "{count} samples of 200 faults");
}

#[test]
fn rings_wake_a_poll() {
    let _machine = Machine::with_swap();
    let mut child = Child::spawn(64);
    child.swap_out();
    let mut rings = fault_rings(8, Wakeup::Events(1));
    let mut samples = Vec::new();
    drain(&mut rings, &mut samples);
    child.tell("read", 1);
    eventually("a ring is readable", || is_readable(rings.fds()));
    drain(&mut rings, &mut samples);
    assert!(
        samples
            .iter()
            .any(|sample| page::page_of(sample.address) == child.page(1))
    );
    assert!(paranoid().is_ok());
}

#[test]
fn rings_of_no_power_of_two_are_an_error() {
    let _machine = Machine::lock();
    let error = FaultRings::open(&[0], 3, NonZeroU64::MIN, Wakeup::Events(1)).expect_err("3 pages");
    assert!(error.to_string().contains("power of two"), "{error}");
    assert!(FaultRings::open(&[100_000], 1, NonZeroU64::MIN, Wakeup::Events(1)).is_err());
    assert!(TracepointRings::open(&[], &[0], 1, Wakeup::Events(1)).is_err());
}

#[test]
fn tracefs_leaves_no_mount_behind() {
    let _machine = Machine::lock();
    let before = mountinfo::read().expect("mountinfo");
    for tracefs in [
        Tracefs::open().expect("tracefs"),
        Tracefs::open_detached().expect("detached tracefs"),
    ] {
        assert!(
            tracefs
                .event("filemap", "mm_filemap_add_to_page_cache")
                .expect("format")
                .id
                > 0
        );
        assert!(
            tracefs
                .event("filemap", "no_such_event")
                .expect_err("absent")
                .is_not_found()
        );
        assert_eq!(
            mountinfo::read().expect("mountinfo"),
            before,
            "while it is open"
        );
    }
    assert_eq!(
        mountinfo::read().expect("mountinfo"),
        before,
        "and afterwards"
    );
}

#[test]
fn filemap_tracepoints_see_a_file_being_read_and_mapped() {
    let _machine = Machine::lock();
    let directory = Directory::new();
    let path = directory.file("read", 64);
    let metadata = std::fs::metadata(&path).expect("stat");
    let tracefs = Tracefs::open().expect("tracefs");
    let filemap = Filemap::find(&tracefs, &FilemapKind::ALL).expect("formats");
    assert_eq!(
        filemap.kinds().collect::<Vec<_>>(),
        FilemapKind::ALL,
        "this test needs a kernel that reports file accesses (6.12)"
    );
    let cpus = sched::online_cpus().expect("CPUs");
    let mut rings =
        TracepointRings::open(&filemap.event_ids(), &cpus, 64, Wakeup::Bytes(4096)).expect("open");
    rings.enable().expect("enable");

    let file = std::fs::File::open(&path).expect("open");
    readahead::fadvise_dontneed(file.as_fd(), 0, 0).expect("drop");
    let page = page::page_size();
    let mut bytes = vec![0; 3 * page as usize];
    file.read_exact_at(&mut bytes, 10 * page).expect("read");
    read_mapped(&file, 20);
    rings.disable().expect("disable");

    let own = own_pid();
    let mut events: Vec<FilemapEvent> = Vec::new();
    let drained = rings.drain(|sample| {
        let event = filemap.decode(sample.event_id, sample.raw);
        let wanted = |event: &FilemapEvent| sample.pid == own && event.inode == metadata.ino();
        events.extend(event.filter(wanted));
    });
    assert_eq!(drained.malformed, 0);
    let device = metadata.dev();
    assert!(
        events
            .iter()
            .all(|event| event.dev == (rustix::fs::major(device), rustix::fs::minor(device)))
    );
    let has = |kind, page: u64| {
        let covers = |event: &&FilemapEvent| {
            (event.first_page..event.first_page + event.page_count).contains(&page)
        };
        events
            .iter()
            .filter(|event| event.kind == kind)
            .any(|event| covers(&event))
    };
    assert!(
        has(FilemapKind::Added, 10) && has(FilemapKind::Added, 12),
        "{events:?}"
    );
    assert!(
        has(FilemapKind::GetPages, 10) && has(FilemapKind::GetPages, 12),
        "{events:?}"
    );
    assert!(
        !has(FilemapKind::GetPages, 14),
        "only what read(2) asked for: {events:?}"
    );
    assert!(
        has(FilemapKind::Fault, 20) || has(FilemapKind::MapPages, 20),
        "{events:?}"
    );
}

#[test]
fn a_page_fault_comes_before_what_it_maps() {
    let _machine = Machine::lock();
    let directory = Directory::new();
    let file = std::fs::File::open(directory.file("mapped", 64)).expect("open");
    let inode = file.metadata().expect("stat").ino();
    let tracefs = Tracefs::open().expect("tracefs");
    let filemap = Filemap::find(&tracefs, &[FilemapKind::MapPages]).expect("formats");
    let ids = [&filemap.event_ids()[..], &[PAGE_FAULT]].concat();
    assert_eq!(
        ids.len(),
        2,
        "this test needs a kernel that reports file accesses (6.12)"
    );
    let cpus = sched::online_cpus().expect("CPUs");
    let mut rings = TracepointRings::open(&ids, &cpus, 64, Wakeup::Bytes(4096)).expect("open");
    let mut bytes = vec![0; 64 * page::page_size() as usize];
    rings.enable().expect("enable");
    let own = rustix::thread::gettid().as_raw_nonzero().get();
    // Of a folio that is locked, or marks where to read ahead, the kernel maps the accessed page alone: each try reads the
    // file anew, and accesses another page.
    let mut index = 0;
    eventually("a fault maps pages around it", || {
        index = (index + 7) % 64;
        readahead::fadvise_dontneed(file.as_fd(), 0, 0).expect("drop");
        file.read_exact_at(&mut bytes, 0).expect("read");
        rings.drain(|_| {});
        let address = read_mapped(&file, index);
        let mut events = Vec::new();
        let drained = rings.drain(|sample| {
            if sample.tid == own {
                let mapped = filemap.decode(sample.event_id, sample.raw);
                let is_wanted = mapped.is_some_and(|event| event.inode == inode)
                    || (sample.event_id == PAGE_FAULT && sample.address == address);
                events.extend(is_wanted.then_some((sample.time_ns, sample.event_id)));
            }
        });
        assert_eq!((drained.malformed, drained.lost), (0, 0));
        events.sort_unstable();
        let order: Vec<u32> = events.into_iter().map(|(_, id)| id).collect();
        assert_eq!(order.first(), Some(&PAGE_FAULT));
        order == [PAGE_FAULT, filemap.event_ids()[0]]
    });
}

/// What these threads or processes do while it is done, by both its ends.
fn spans_while(pid: i32, work: impl FnOnce()) -> Vec<Span> {
    let cpus = sched::online_cpus().expect("CPUs");
    let mut rings = SpanRings::open(&cpus, 256).expect("these tests need system-wide perf events");
    assert!(
        rings.why_no_calls().is_none(),
        "this test needs CONFIG_FTRACE_SYSCALLS: {:?}",
        rings.why_no_calls()
    );
    rings.enable().expect("enable");
    work();
    rings.disable().expect("disable");
    let mut marks: Vec<Mark> = Vec::new();
    let drained = rings.drain(|mark| marks.push(mark));
    assert_eq!((drained.lost, drained.malformed), (0, 0));
    marks.retain(|mark| mark.pid == pid);
    pair(&mut marks)
}

#[test]
fn a_fault_that_is_held_up_takes_as_long_as_it_is() {
    let _machine = Machine::with_swap();
    let mut child = Child::spawn(16);
    let held = child.map("untouched", 2);
    child.tell_at("monitor", held.clone());
    child.swap_out();
    let before = clock::monotonic_ns();
    let spans = spans_while(child.pid(), || {
        child.tell("read", 3);
        child.tell_at("hold", [held.start]);
    });
    let took_ns = clock::monotonic_ns() - before;
    let fault = |page: u64| {
        let is_it = |span: &&Span| matches!(span.kind, SpanKind::Fault { address } if page::page_of(address) == page);
        let mut of_page = spans.iter().filter(is_it);
        let fault = of_page.next().expect("its fault is seen");
        assert_eq!(of_page.next(), None, "once");
        fault.len_ns()
    };
    let (swapped_in_ns, held_ns) = (fault(child.page(3)), fault(held.start));
    assert!((25_000_000..took_ns).contains(&held_ns), "{held_ns} ns");
    assert!(
        (1..held_ns).contains(&swapped_in_ns),
        "{swapped_in_ns} ns, while {held_ns} were waited"
    );
    let faults = spans.iter().map(|span| (span.len_ns(), span.kind));
    let longest = faults.max_by_key(|(len_ns, _)| *len_ns).expect("faults");
    assert_eq!(longest.0, held_ns, "{longest:?}");
}

#[test]
fn a_call_takes_as_long_as_its_caller_waits() {
    use rustix::mm::{MapFlags, ProtFlags, mmap_anonymous, munmap};
    const LEN: usize = 64 << 20;
    let _machine = Machine::lock();
    let mut waited_ns = Vec::new();
    let mut timed = |work: &mut dyn FnMut()| {
        let begin = clock::monotonic_ns();
        work();
        waited_ns.push(clock::monotonic_ns() - begin);
    };
    let spans = spans_while(own_pid(), || {
        let mut base = std::ptr::null_mut();
        let flags = MapFlags::PRIVATE | MapFlags::POPULATE;
        timed(&mut || {
            // SAFETY: a new mapping at an address of the kernel's choice, to which nothing refers.
            base = unsafe { mmap_anonymous(base, LEN, ProtFlags::READ | ProtFlags::WRITE, flags) }
                .expect("mmap");
        });
        // SAFETY: the mapping just made.
        timed(&mut || unsafe { munmap(base, LEN).expect("munmap") });
    });
    let own = rustix::thread::gettid().as_raw_nonzero().get();
    for (call, waited_ns) in [MapCall::Mmap, MapCall::Munmap].into_iter().zip(waited_ns) {
        let is_it = |span: &&Span| span.tid == own && span.kind == SpanKind::Call(call);
        let lens = spans.iter().filter(is_it).map(Span::len_ns);
        let longest_ns = lens.max().unwrap_or_default();
        assert!(
            longest_ns <= waited_ns && longest_ns > waited_ns / 2,
            "{}: {longest_ns} ns of {waited_ns}",
            call.name()
        );
    }
}

/// Reads a byte of a page through a mapping, and returns the address that it had.
fn read_mapped(file: &std::fs::File, index: u64) -> u64 {
    use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};
    let size = page::page_size();
    let len = 64 * size as usize;
    // SAFETY: a new mapping of a file that is 64 pages long and that nobody changes; read once, then unmapped.
    unsafe {
        let base = mmap(
            std::ptr::null_mut(),
            len,
            ProtFlags::READ,
            MapFlags::PRIVATE,
            file,
            0,
        )
        .expect("mmap");
        assert_eq!(
            base.cast::<u8>()
                .add((index * size) as usize)
                .read_volatile(),
            b'x'
        );
        munmap(base, len).expect("munmap");
        base as u64 + index * size
    }
}
