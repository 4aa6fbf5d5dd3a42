//! perf's side-band records (perf_event_open(2), on a dummy event): processes that begin, exec and end, and the files
//! that they map, system-wide, one ring per CPU.
//!
//! They come without tracefs and without sampling anything; the dummy event itself never counts. What the kernel
//! writes is decided by the bits `task`, `comm`, `comm_exec` and `mmap2` (3.16+), `mmap` and `mmap_data` of struct
//! perf_event_attr; the times are on CLOCK_MONOTONIC (`use_clockid`, 4.1+). There is no cheap subset: `comm` alone, which
//! has the execs, makes the kernel write forks and exits too. Whoever only waits for execs uses
//! [`crate::exec_trace`].

use crate::error::Result;
use crate::perf::{self, Attributes, Drained, RingSwitch, Rings, TYPE_SOFTWARE, Visited, Wakeup};
use crate::ring::{Record, u32_at, u64_at};
use rustix::fd::BorrowedFd;

/// What a task did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TaskEvent<'a> {
    /// A new process, or a new thread where `parent_pid` is the process itself.
    Fork {
        /// The process that it is of: its parent's process (not CLONE_PARENT's: the one that called fork).
        parent_pid: i32,
    },
    /// The program was replaced: past the point of no return, with /proc/PID/exe changed and before anything of the new
    /// program is mapped.
    Exec {
        /// The new name of the process: at most 15 bytes.
        comm: &'a [u8],
    },
    /// A file was mapped (memfd and shared memory too).
    Map {
        /// Major and minor of the file system's device (`s_dev`; stat differs on btrfs and overlay).
        dev: (u32, u32),
        /// Inode number.
        inode: u64,
        /// The file's path below the process's root (` (deleted)` appended where it was removed), or the kernel's name
        /// for what has none, such as `//toolong`.
        path: &'a [u8],
    },
    /// A thread ended; the process too if it was its last.
    Exit,
}

/// One event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TaskRecord<'a> {
    /// CLOCK_MONOTONIC, in ns.
    pub time_ns: u64,
    /// Process, in our pid namespace; 0 for one outside of it.
    pub pid: i32,
    /// Thread; as above.
    pub tid: i32,
    /// What it did.
    pub event: TaskEvent<'a>,
}

/// PERF_RECORD_* of linux/perf_event.h.
const RECORD_COMM: u32 = 3;
const RECORD_EXIT: u32 = 4;
const RECORD_FORK: u32 = 7;
const RECORD_MMAP2: u32 = 10;
/// Of a COMM record (3.16+): because of an exec.
const MISC_COMM_EXEC: u16 = 1 << 13;

const COUNT_SW_DUMMY: u64 = 9;
const FLAG_MMAP: u64 = 1 << 8;
const FLAG_COMM: u64 = 1 << 9;
const FLAG_TASK: u64 = 1 << 13;
const FLAG_MMAP_DATA: u64 = 1 << 17;
const FLAG_SAMPLE_ID_ALL: u64 = 1 << 18;
const FLAG_MMAP2: u64 = 1 << 23;
const FLAG_COMM_EXEC: u64 = 1 << 24;

/// The longest record: MMAP2 with a path of PATH_MAX bytes.
const RECORD_BYTES_MAX: usize = 4096 + 128;

/// The records of all processes.
#[derive(Debug)]
pub struct TaskRings(Rings);

impl TaskRings {
    /// Opens a ring of `ring_pages` (a power of two) pages on each of `cpus`, disabled. Nothing is sampled: of `wakeup`,
    /// only [`Wakeup::Bytes`] ever makes it readable. Rights and errors as for [`crate::perf::FaultRings::open`].
    pub fn open(cpus: &[usize], ring_pages: usize, wakeup: Wakeup) -> Result<TaskRings> {
        let event = Attributes::recording(
            TYPE_SOFTWARE,
            COUNT_SW_DUMMY,
            perf::SAMPLE_TIME,
            wakeup,
            FLAG_TASK
                | FLAG_COMM
                | FLAG_COMM_EXEC
                | FLAG_MMAP
                | FLAG_MMAP2
                | FLAG_MMAP_DATA
                | FLAG_SAMPLE_ID_ALL,
        );
        Rings::open(&[event], cpus, ring_pages, RECORD_BYTES_MAX).map(TaskRings)
    }

    /// Starts recording.
    pub fn enable(&self) -> Result<()> {
        perf::enable(self.0.events())
    }

    /// Stops recording; what is in the rings stays.
    pub fn disable(&self) -> Result<()> {
        perf::disable(self.0.events())
    }

    /// Starts and stops recording from another thread than the one that empties the rings.
    pub fn switch(&self) -> Result<RingSwitch> {
        self.0.switch()
    }

    /// One descriptor per CPU, as [`crate::perf::FaultRings::fds`]. Nothing makes them readable while no process
    /// begins, execs, maps or ends.
    pub fn fds(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        self.0.fds()
    }

    /// Empties the rings, CPU by CPU (so not in the order of time). Bounded by the size of the rings.
    pub fn drain(&mut self, mut visit: impl FnMut(TaskRecord<'_>)) -> Drained {
        self.0.drain(|record| {
            let Record::Other { kind, misc, body } = record else {
                return Visited::Skipped;
            };
            match decode(kind, misc, body) {
                Decoded::Event(event) => {
                    visit(event);
                    Visited::Taken
                }
                Decoded::Irrelevant => Visited::Skipped,
                Decoded::Malformed => Visited::Malformed,
            }
        })
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Decoded<'a> {
    Event(TaskRecord<'a>),
    /// A thread's new name, memory without a file, or a type that was not asked for.
    Irrelevant,
    Malformed,
}

fn decode(kind: u32, misc: u16, body: &[u8]) -> Decoded<'_> {
    let irrelevant = match kind {
        RECORD_COMM => misc & MISC_COMM_EXEC == 0,
        // Memory without a file has no inode: `//anon`, `[heap]`, `[vdso]`.
        RECORD_MMAP2 => u64_at(body, 40) == Some(0),
        RECORD_FORK | RECORD_EXIT => false,
        _ => true,
    };
    if irrelevant {
        return Decoded::Irrelevant;
    }
    match record(kind, body) {
        Some(event) => Decoded::Event(event),
        None => Decoded::Malformed,
    }
}

/// Decodes a record with the trailer of PERF_SAMPLE_TIME, which `sample_id_all` puts at the end of every record.
fn record(kind: u32, body: &[u8]) -> Option<TaskRecord<'_>> {
    let (body, time) = body.split_last_chunk::<8>()?;
    let number = |offset| Some(u32_at(body, offset)? as i32);
    let (tid_offset, event) = match kind {
        // u32 pid, tid; char comm[]
        RECORD_COMM => (
            4,
            TaskEvent::Exec {
                comm: text(body, 8)?,
            },
        ),
        // u32 pid, ppid, tid, ptid; u64 time
        RECORD_FORK => {
            let parent_pid = number(4)?;
            (8, TaskEvent::Fork { parent_pid })
        }
        RECORD_EXIT => (8, TaskEvent::Exit),
        _ => (4, mapped(body)?),
    };
    Some(TaskRecord {
        time_ns: u64::from_ne_bytes(*time),
        pid: number(0)?,
        tid: number(tid_offset)?,
        event,
    })
}

/// u32 pid, tid; u64 addr, len, pgoff (in bytes); u32 maj, min; u64 ino, ino_generation; u32 prot, flags;
/// char filename[]
fn mapped(body: &[u8]) -> Option<TaskEvent<'_>> {
    Some(TaskEvent::Map {
        dev: (u32_at(body, 32)?, u32_at(body, 36)?),
        inode: u64_at(body, 40)?,
        path: text(body, 64)?,
    })
}

/// The text that begins at `offset` and ends at the first NUL; records are padded to 8 bytes.
fn text(body: &[u8], offset: usize) -> Option<&[u8]> {
    let text = body.get(offset..)?;
    text.split(|&byte| byte == 0).next()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(words: &[u64]) -> Vec<u8> {
        words.iter().flat_map(|word| word.to_ne_bytes()).collect()
    }

    fn numbers(numbers: &[u32]) -> Vec<u8> {
        numbers.iter().flat_map(|n| n.to_ne_bytes()).collect()
    }

    fn mmap2(inode: u64, path: &[u8; 8]) -> Vec<u8> {
        [
            numbers(&[7, 8]),
            words(&[0x1000, 0x3000, 0x2000]),
            numbers(&[254, 3]),
            words(&[inode, 1]),
            numbers(&[libc::PROT_EXEC as u32, 2]),
            path.to_vec(),
            words(&[99]),
        ]
        .concat()
    }

    #[test]
    fn forks_exits_and_execs() {
        let event = |pid, tid, event| {
            Decoded::Event(TaskRecord {
                time_ns: 99,
                pid,
                tid,
                event,
            })
        };
        let task = [numbers(&[12, 7, 13, 8]), words(&[98, 99])].concat();
        let fork = TaskEvent::Fork { parent_pid: 7 };
        assert_eq!(decode(RECORD_FORK, 0, &task), event(12, 13, fork));
        assert_eq!(
            decode(RECORD_EXIT, 0, &task),
            event(12, 13, TaskEvent::Exit)
        );
        let comm = [numbers(&[12, 12]), b"emacs\0\0\0".to_vec(), words(&[99])].concat();
        let exec = TaskEvent::Exec { comm: b"emacs" };
        assert_eq!(
            decode(RECORD_COMM, MISC_COMM_EXEC, &comm),
            event(12, 12, exec)
        );
        assert_eq!(
            decode(RECORD_COMM, 0, &comm),
            Decoded::Irrelevant,
            "a thread's name"
        );
        assert_eq!(decode(14, 0, &comm), Decoded::Irrelevant);
    }

    #[test]
    fn mapped_files() {
        let body = mmap2(1234, b"/lib/c\0\0");
        let Decoded::Event(record) = decode(RECORD_MMAP2, 0, &body) else {
            panic!("well formed");
        };
        assert_eq!((record.time_ns, record.pid, record.tid), (99, 7, 8));
        let expected = TaskEvent::Map {
            dev: (254, 3),
            inode: 1234,
            path: b"/lib/c",
        };
        assert_eq!(record.event, expected);
        let anonymous = mmap2(0, b"//anon\0\0");
        assert_eq!(decode(RECORD_MMAP2, 0, &anonymous), Decoded::Irrelevant);
    }

    #[test]
    fn truncated_records_are_malformed_not_a_panic() {
        let body = mmap2(1234, b"/lib/c\0\0");
        for kind in [RECORD_COMM, RECORD_EXIT, RECORD_FORK, RECORD_MMAP2] {
            for end in 0..16 {
                assert_eq!(
                    decode(kind, MISC_COMM_EXEC, &body[..end]),
                    Decoded::Malformed,
                    "{kind} of {end} bytes"
                );
            }
        }
        assert_eq!(decode(RECORD_MMAP2, 0, &body[..71]), Decoded::Malformed);
    }
}
