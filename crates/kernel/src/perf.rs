//! perf_event_open(2): system-wide sampling of major faults and of tracepoints, into one ring per CPU.
//!
//! [`crate::task_events`] reads other records through the same rings.

use crate::error::{Error, Result};
use crate::ring::{self, FaultSample, Record, TracepointSample};
use crate::text;
use rustix::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};
use std::num::NonZeroU64;
use std::sync::atomic::{AtomicU64, Ordering};

/// When a ring wakes those who poll its descriptor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wakeup {
    /// After so many samples.
    Events(u32),
    /// When so many bytes are unread.
    Bytes(u32),
}

impl Wakeup {
    /// When a ring of so many pages is half full.
    pub fn half_full(ring_pages: usize) -> Wakeup {
        let half_bytes = ring_pages as u64 * crate::page::page_size() / 2;
        Wakeup::Bytes(u32::try_from(half_bytes).unwrap_or(u32::MAX))
    }
}

/// What a drain did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Drained {
    /// Samples, or records of the kind that was asked for, given to the caller.
    pub samples: u64,
    /// Samples that the kernel dropped because a ring was full. It says so ahead of the next sample of that CPU that
    /// fits: a loss at the end shows only later.
    pub lost: u64,
    /// Records, or rests of a ring, that could not be decoded.
    pub malformed: u64,
    /// Rings that had no room left: what came after their last record is lost, and the kernel counts it only ahead
    /// of the next record.
    pub full: u64,
}

impl std::ops::AddAssign for Drained {
    fn add_assign(&mut self, other: Drained) {
        self.samples += other.samples;
        self.lost += other.lost;
        self.malformed += other.malformed;
        self.full += other.full;
    }
}

/// No sample of a fault is longer.
const FAULT_BYTES_MAX: usize = 256;
/// No sample of a tracepoint is longer: one field may be a path of PATH_MAX bytes.
const TRACEPOINT_BYTES_MAX: usize = 4096 + 256;

pub(crate) const TYPE_SOFTWARE: u32 = 1;
pub(crate) const TYPE_TRACEPOINT: u32 = 2;
const COUNT_SW_PAGE_FAULTS: u64 = 2;
const COUNT_SW_PAGE_FAULTS_MIN: u64 = 5;
const COUNT_SW_PAGE_FAULTS_MAJ: u64 = 6;
const SAMPLE_TID: u64 = 1 << 1;
pub(crate) const SAMPLE_TIME: u64 = 1 << 2;
const SAMPLE_ADDR: u64 = 1 << 3;
const SAMPLE_RAW: u64 = 1 << 10;
const FLAG_DISABLED: u64 = 1;
const FLAG_WATERMARK: u64 = 1 << 14;
const FLAG_USE_CLOCKID: u64 = 1 << 25;
const OPEN_CLOEXEC: libc::c_ulong = 1 << 3;

const IOC_ENABLE: u32 = rustix::ioctl::opcode::none(b'$', 0);
const IOC_DISABLE: u32 = rustix::ioctl::opcode::none(b'$', 1);
const IOC_SET_OUTPUT: u32 = rustix::ioctl::opcode::none(b'$', 5);

/// Offsets in struct perf_event_mmap_page, fixed as ABI since 2.6.32; the last two since 4.1.
const DATA_HEAD: usize = 1024;
const DATA_TAIL: usize = 1032;
const DATA_OFFSET: usize = 1040;

/// struct perf_event_attr of linux/perf_event.h up to PERF_ATTR_SIZE_VER5 (4.1), which has the clock id.
#[repr(C)]
#[derive(Default)]
pub(crate) struct Attributes {
    kind: u32,
    size: u32,
    config: u64,
    sample_period: u64,
    sample_type: u64,
    read_format: u64,
    flags: u64,
    wakeup: u32,
    breakpoint_type: u32,
    config1: u64,
    config2: u64,
    branch_sample_type: u64,
    sample_regs_user: u64,
    sample_stack_user: u32,
    clock_id: i32,
    sample_regs_intr: u64,
    aux_watermark: u32,
    sample_max_stack: u16,
    reserved: u16,
}

impl Attributes {
    pub(crate) fn sampling(kind: u32, config: u64, sample_type: u64, wakeup: Wakeup) -> Attributes {
        Attributes::recording(kind, config, sample_type, wakeup, 0)
    }

    /// As `sampling`, with further flags: the bit fields of struct perf_event_attr, counted from `disabled` as bit 0.
    pub(crate) fn recording(
        kind: u32,
        config: u64,
        sample_type: u64,
        wakeup: Wakeup,
        more_flags: u64,
    ) -> Attributes {
        let (wakeup, watermark) = match wakeup {
            Wakeup::Events(events) => (events, 0),
            Wakeup::Bytes(bytes) => (bytes, FLAG_WATERMARK),
        };
        let flags = FLAG_DISABLED | FLAG_USE_CLOCKID | watermark | more_flags;
        Attributes {
            kind,
            size: size_of::<Attributes>() as u32,
            config,
            sample_period: 1,
            sample_type,
            flags: bit_fields(flags),
            wakeup,
            clock_id: libc::CLOCK_MONOTONIC,
            ..Attributes::default()
        }
    }
}

/// C's bit fields begin at the other end on big endian machines.
const fn bit_fields(flags: u64) -> u64 {
    if cfg!(target_endian = "big") {
        flags.reverse_bits()
    } else {
        flags
    }
}

/// Opens one event, of all processes on one CPU.
fn open_event(attributes: &Attributes, cpu: usize) -> Result<OwnedFd> {
    // SAFETY: `attributes` is a live perf_event_attr that states its own size; the other arguments are plain numbers.
    let fd = unsafe {
        libc::syscall(
            libc::SYS_perf_event_open,
            std::ptr::from_ref(attributes),
            -1_i32,
            cpu as libc::c_int,
            -1_i32,
            OPEN_CLOEXEC,
        )
    };
    if fd < 0 {
        let error = std::io::Error::last_os_error();
        // Who is denied one event is denied all.
        let subject = match error.raw_os_error() {
            Some(libc::EACCES | libc::EPERM) => denied_hint(),
            _ => format!("event {} on CPU {cpu}", attributes.config),
        };
        return Err(Error::new("perf_event_open", subject, error));
    }
    // SAFETY: a descriptor that the kernel has just made for us and that nobody else owns.
    Ok(unsafe { OwnedFd::from_raw_fd(fd as i32) })
}

fn denied_hint() -> String {
    match paranoid() {
        Ok(level) => format!(
            "system-wide events (CAP_PERFMON is missing, or a container forbids the call; perf_event_paranoid is {level})"
        ),
        Err(_) => "events (no perf_event_paranoid: this kernel has no perf events)".to_owned(),
    }
}

/// /proc/sys/kernel/perf_event_paranoid: above 0, only CAP_PERFMON (5.8+) or CAP_SYS_ADMIN may sample system-wide.
pub fn paranoid() -> Result<i32> {
    text::read_number("/proc/sys/kernel/perf_event_paranoid")
}

fn control(
    fd: BorrowedFd<'_>,
    operation: &'static str,
    opcode: u32,
    argument: libc::c_int,
) -> Result<()> {
    // SAFETY: these three ioctls take an integer, no pointer.
    match unsafe { libc::ioctl(fd.as_raw_fd(), opcode as _, argument) } {
        0 => Ok(()),
        _ => Err(Error::last(
            operation,
            format!("perf event fd {}", fd.as_raw_fd()),
        )),
    }
}

pub(crate) fn enable<'a>(mut events: impl Iterator<Item = &'a OwnedFd>) -> Result<()> {
    let operation = "ioctl(PERF_EVENT_IOC_ENABLE)";
    events.try_for_each(|event| control(event.as_fd(), operation, IOC_ENABLE, 0))
}

pub(crate) fn disable<'a>(mut events: impl Iterator<Item = &'a OwnedFd>) -> Result<()> {
    let operation = "ioctl(PERF_EVENT_IOC_DISABLE)";
    events.try_for_each(|event| control(event.as_fd(), operation, IOC_DISABLE, 0))
}

/// The mapping of one event's ring: a control page and 2^n pages of records.
#[derive(Debug)]
struct Ring {
    event: OwnedFd,
    base: *mut u8,
    len: usize,
    data_offset: usize,
    data_size: usize,
}

// SAFETY: the mapping belongs to the process, not to a thread; reading it needs `&mut self`.
unsafe impl Send for Ring {}

impl Ring {
    fn map(event: OwnedFd, ring_pages: usize) -> Result<Ring> {
        let page = crate::page::page_size() as usize;
        let subject = || format!("perf ring of {ring_pages} pages");
        let len = (ring_pages.is_power_of_two().then_some(ring_pages))
            .and_then(|pages| pages.checked_add(1)?.checked_mul(page))
            .ok_or_else(|| Error::malformed("mmap", subject(), "not a power of two"))?;
        let protection = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: a new mapping at an address of the kernel's choice; it is shared with the kernel, hence accessed
        // through raw pointers and atomics only.
        let base = unsafe {
            mmap(
                std::ptr::null_mut(),
                len,
                protection,
                MapFlags::SHARED,
                &event,
                0,
            )
        }
        .map_err(|error| Error::new("mmap", subject(), error))?;
        let mut ring = Ring {
            event,
            base: base.cast(),
            len,
            data_offset: page,
            data_size: ring_pages * page,
        };
        // SAFETY: an aligned u64 in the control page, which the kernel wrote before mmap returned.
        let offset = unsafe { ring.base.add(DATA_OFFSET).cast::<u64>().read() } as usize;
        // 0 before 4.1, where the records follow the control page.
        if offset != 0
            && offset
                .checked_add(ring.data_size)
                .is_some_and(|end| end <= len)
        {
            ring.data_offset = offset;
        }
        Ok(ring)
    }

    fn word(&self, offset: usize) -> &AtomicU64 {
        // SAFETY: `offset` is that of an aligned u64 in the control page, which lives as long as `self`; the kernel
        // accesses it atomically too.
        unsafe { AtomicU64::from_ptr(self.base.add(offset).cast()) }
    }

    /// Moves the unread records into `scratch`, in order and without the wraparound, and frees their room in the ring
    /// at once. `false` where the positions contradict each other; then everything is dropped.
    fn take(&mut self, scratch: &mut Vec<u8>) -> bool {
        scratch.clear();
        // Acquire: the records before the head are visible once the head is.
        let head = self.word(DATA_HEAD).load(Ordering::Acquire);
        let tail = self.word(DATA_TAIL).load(Ordering::Relaxed);
        let ranges = ring::unread(head, tail, self.data_size);
        if let Some((first, second)) = &ranges {
            for part in [first, second] {
                scratch.reserve(part.len());
                // SAFETY: `unread` gave ranges within the ring's data; the kernel does not write between tail and head
                // until the tail moves; `scratch` has the room reserved above, and the copy initialises it.
                unsafe {
                    let source = self.base.add(self.data_offset + part.start);
                    let end = scratch.as_mut_ptr().add(scratch.len());
                    std::ptr::copy_nonoverlapping(source, end, part.len());
                    scratch.set_len(scratch.len() + part.len());
                }
            }
        }
        // Release: the kernel may overwrite the records only after we have copied them.
        self.word(DATA_TAIL).store(head, Ordering::Release);
        ranges.is_some()
    }
}

impl Drop for Ring {
    fn drop(&mut self) {
        // SAFETY: the mapping that `map` made; no reference into it outlives `self`. munmap of a whole mapping can only
        // fail for want of memory, and then it stays until the process ends.
        let _ = unsafe { munmap(self.base.cast(), self.len) };
    }
}

/// What became of a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Visited {
    /// Given to the caller.
    Taken,
    /// Nothing that the caller asked for.
    Skipped,
    /// It could not be decoded.
    Malformed,
}

/// The rings of all CPUs, and one buffer into which each is emptied in turn.
#[derive(Debug)]
pub(crate) struct Rings {
    rings: Vec<Ring>,
    /// Events that write into another's ring.
    attached: Vec<OwnedFd>,
    scratch: Vec<u8>,
    /// The longest record that these events write.
    record_bytes_max: usize,
}

impl Rings {
    pub(crate) fn open(
        events: &[Attributes],
        cpus: &[usize],
        ring_pages: usize,
        record_bytes_max: usize,
    ) -> Result<Rings> {
        let mut all = Rings {
            record_bytes_max,
            rings: Vec::with_capacity(cpus.len()),
            attached: Vec::new(),
            scratch: Vec::with_capacity(
                ring_pages.saturating_mul(crate::page::page_size() as usize),
            ),
        };
        let (owner, others) = events.split_first().ok_or_else(|| {
            Error::malformed("perf_event_open", "no events", "at least one is needed")
        })?;
        for &cpu in cpus {
            let ring = Ring::map(open_event(owner, cpu)?, ring_pages)?;
            for attributes in others {
                let event = open_event(attributes, cpu)?;
                let target = ring.event.as_raw_fd();
                control(
                    event.as_fd(),
                    "ioctl(PERF_EVENT_IOC_SET_OUTPUT)",
                    IOC_SET_OUTPUT,
                    target,
                )?;
                all.attached.push(event);
            }
            all.rings.push(ring);
        }
        Ok(all)
    }

    pub(crate) fn events(&self) -> impl Iterator<Item = &OwnedFd> {
        let owners = self.rings.iter().map(|ring| &ring.event);
        owners.chain(&self.attached)
    }

    pub(crate) fn switch(&self) -> Result<RingSwitch> {
        let copy = |event: &OwnedFd| {
            let failed = |error| Error::new("dup", "perf event", error);
            event.try_clone().map_err(failed)
        };
        let events = self.events().map(copy).collect::<Result<_>>()?;
        Ok(RingSwitch { events })
    }

    pub(crate) fn fds(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        self.rings.iter().map(|ring| ring.event.as_fd())
    }

    /// Calls `visit` for every record that is not about losses.
    pub(crate) fn drain(&mut self, mut visit: impl FnMut(Record<'_>) -> Visited) -> Drained {
        let mut drained = Drained::default();
        for ring in &mut self.rings {
            if !ring.take(&mut self.scratch) {
                drained.malformed += 1;
            }
            drained.full += u64::from(self.scratch.len() + self.record_bytes_max > ring.data_size);
            let whole = ring::parse(&self.scratch, |record| match record {
                Record::Lost(lost) => drained.lost += lost,
                record => match visit(record) {
                    Visited::Taken => drained.samples += 1,
                    Visited::Malformed => drained.malformed += 1,
                    Visited::Skipped => {}
                },
            });
            drained.malformed += u64::from(!whole);
        }
        drained
    }

    /// Calls `visit` with the body of every sample; it says whether it could decode it.
    fn drain_samples(&mut self, mut visit: impl FnMut(&[u8]) -> bool) -> Drained {
        self.drain(|record| match record {
            Record::Sample(body) if visit(body) => Visited::Taken,
            Record::Sample(_) => Visited::Malformed,
            // Throttling and the like: nothing that we ask for.
            _ => Visited::Skipped,
        })
    }
}

/// What of page faults is sampled. Those that one process causes in the memory of another never are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FaultEvent {
    /// Any fault, before the kernel resolves it.
    Begun,
    /// One that waited for a device or for a lock, when it is resolved.
    Major,
    /// One that did not, when it is resolved.
    Minor,
}

impl FaultEvent {
    fn config(self) -> u64 {
        match self {
            FaultEvent::Begun => COUNT_SW_PAGE_FAULTS,
            FaultEvent::Major => COUNT_SW_PAGE_FAULTS_MAJ,
            FaultEvent::Minor => COUNT_SW_PAGE_FAULTS_MIN,
        }
    }
}

/// Page faults of all processes, user mode and kernel mode; as [`FaultRings::open`] makes them, the major ones: every time
/// that somebody waited for a page. A helper's [`crate::process_vm::touch`] does not appear. About 1 us each.
#[derive(Debug)]
pub struct FaultRings(Rings);

impl FaultRings {
    /// Opens a ring of `ring_pages` (a power of two) pages on each of `cpus`, disabled. Each CPU samples every
    /// `period`-th of its faults. Needs CAP_PERFMON or CAP_SYS_ADMIN (or a permissive perf_event_paranoid): `EACCES`,
    /// `EPERM`. The rings are locked memory.
    pub fn open(
        cpus: &[usize],
        ring_pages: usize,
        period: NonZeroU64,
        wakeup: Wakeup,
    ) -> Result<FaultRings> {
        FaultRings::open_for(&[FaultEvent::Major], cpus, ring_pages, period, wakeup)
    }

    /// As [`FaultRings::open`], of other events, which share a ring and are not told apart.
    pub fn open_for(
        events: &[FaultEvent],
        cpus: &[usize],
        ring_pages: usize,
        period: NonZeroU64,
        wakeup: Wakeup,
    ) -> Result<FaultRings> {
        let sample_type = SAMPLE_TID | SAMPLE_TIME | SAMPLE_ADDR;
        let event = |event: &FaultEvent| Attributes {
            sample_period: period.get(),
            ..Attributes::sampling(TYPE_SOFTWARE, event.config(), sample_type, wakeup)
        };
        let events: Vec<Attributes> = events.iter().map(event).collect();
        Rings::open(&events, cpus, ring_pages, FAULT_BYTES_MAX).map(FaultRings)
    }

    /// Starts sampling.
    pub fn enable(&self) -> Result<()> {
        enable(self.0.events())
    }

    /// Stops sampling; what is in the rings stays.
    pub fn disable(&self) -> Result<()> {
        disable(self.0.events())
    }

    /// One descriptor per CPU, readable (POLLIN) according to [`Wakeup`]. Edge-like: a poll that reports a ring clears
    /// it until the next wakeup, so drain all of them.
    pub fn fds(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        self.0.fds()
    }

    /// Empties the rings, CPU by CPU (so not in the order of time). Bounded by the size of the rings.
    pub fn drain(&mut self, mut visit: impl FnMut(FaultSample)) -> Drained {
        self.0
            .drain_samples(|body| ring::fault_sample(body).map(&mut visit).is_some())
    }
}

/// Starts and stops the events of [`TracepointRings`] or [`crate::task_events::TaskRings`].
#[derive(Debug)]
pub struct RingSwitch {
    events: Vec<OwnedFd>,
}

impl RingSwitch {
    /// Starts sampling.
    pub fn enable(&self) -> Result<()> {
        enable(self.events.iter())
    }

    /// Stops sampling; what is in the rings stays.
    pub fn disable(&self) -> Result<()> {
        disable(self.events.iter())
    }
}

/// Tracepoints of all processes, page faults among them if wanted; all events of one CPU share a ring and so stay in
/// order. The kernel reports a fault before it resolves it, minor or major (about 0.2 us each).
#[derive(Debug)]
pub struct TracepointRings(Rings);

impl TracepointRings {
    /// Opens a ring of `ring_pages` (a power of two) pages on each of `cpus`, for the tracepoints with these ids
    /// ([`crate::tracefs::EventFormat::id`], or [`ring::PAGE_FAULT`]), disabled. Rights as for [`FaultRings::open`].
    pub fn open(
        event_ids: &[u32],
        cpus: &[usize],
        ring_pages: usize,
        wakeup: Wakeup,
    ) -> Result<TracepointRings> {
        let sample_type = SAMPLE_TID | SAMPLE_TIME | SAMPLE_ADDR | SAMPLE_RAW;
        let event = |&id: &u32| {
            let (kind, config) = match id {
                ring::PAGE_FAULT => (TYPE_SOFTWARE, COUNT_SW_PAGE_FAULTS),
                id => (TYPE_TRACEPOINT, u64::from(id)),
            };
            Attributes::sampling(kind, config, sample_type, wakeup)
        };
        let events: Vec<Attributes> = event_ids.iter().map(event).collect();
        Rings::open(&events, cpus, ring_pages, TRACEPOINT_BYTES_MAX).map(TracepointRings)
    }

    /// Starts sampling.
    pub fn enable(&self) -> Result<()> {
        enable(self.0.events())
    }

    /// Stops sampling; what is in the rings stays.
    pub fn disable(&self) -> Result<()> {
        disable(self.0.events())
    }

    /// Starts and stops sampling from another thread than the one that empties the rings.
    pub fn switch(&self) -> Result<RingSwitch> {
        self.0.switch()
    }

    /// As [`FaultRings::fds`].
    pub fn fds(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        self.0.fds()
    }

    /// Empties the rings, CPU by CPU (so not in the order of time). Bounded by the size of the rings.
    pub fn drain(&mut self, mut visit: impl FnMut(TracepointSample<'_>)) -> Drained {
        self.0
            .drain_samples(|body| match ring::tracepoint_sample(body) {
                Some(sample) => {
                    visit(sample);
                    true
                }
                None => false,
            })
    }
}
