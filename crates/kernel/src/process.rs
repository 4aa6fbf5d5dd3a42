//! Processes: identity (pidfd and start time), and what /proc/PID says about them.

use crate::error::{Error, Result};
use crate::pagemap::Pagemap;
use crate::readable::readable_within;
use crate::text;
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::fs::{AtFlags, CWD, StatxFlags};
use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, pidfd_open};
use std::collections::BTreeSet;
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;
use std::time::Duration;

/// One process instance: the pid, which the kernel reuses, with the start time, which it does not.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ProcessId {
    /// The process id (thread group id), as seen in our pid namespace.
    pub pid: i32,
    /// Start time after boot in clock ticks (field 22 of /proc/PID/stat). exec does not change it.
    pub start_ticks: u64,
}

/// A process held by a pidfd (5.3+), so that the pid cannot come to mean another process unnoticed.
#[derive(Debug)]
pub struct Process {
    id: ProcessId,
    pidfd: OwnedFd,
}

impl Process {
    /// Opens a living process. A zombie, a pid that is not in use, one that changed hands meanwhile and the number of a thread
    /// that does not lead its group are [`Error::is_gone`].
    pub fn open(pid: i32) -> Result<Process> {
        let failed = |error| Error::new("pidfd_open", format!("process {pid}"), error);
        let raw = Pid::from_raw(pid.max(0)).ok_or_else(|| failed(Errno::SRCH))?;
        let pidfd = pidfd_open(raw, PidfdFlags::empty()).map_err(|error| match error {
            // What kernels say of such a thread.
            Errno::INVAL | Errno::NOENT => failed(Errno::SRCH),
            error => failed(error),
        })?;
        let start_ticks = stat(pid)?.start_ticks;
        let process = Process {
            id: ProcessId { pid, start_ticks },
            pidfd,
        };
        // Alive *after* the start time was read: so /proc/PID was still this process when we read it.
        if process.is_alive() {
            Ok(process)
        } else {
            Err(failed(Errno::SRCH))
        }
    }

    /// The identity of this process.
    pub fn id(&self) -> ProcessId {
        self.id
    }

    /// The process id.
    pub fn pid(&self) -> i32 {
        self.id.pid
    }

    /// Whether the process has not exited. A zombie is not alive.
    pub fn is_alive(&self) -> bool {
        !self.exits_within(Duration::ZERO)
    }

    /// Waits for the process to exit, so long at most, and says whether it has.
    pub fn exits_within(&self, limit: Duration) -> bool {
        // A pidfd becomes readable when the whole thread group has exited.
        readable_within(self.pidfd(), limit).unwrap_or(true)
    }

    /// The pidfd, for poll (readable at exit) and for [`crate::process_madvise`].
    pub fn pidfd(&self) -> BorrowedFd<'_> {
        self.pidfd.as_fd()
    }

    /// Opens /proc/PID/pagemap of this very process.
    pub fn pagemap(&self) -> Result<Pagemap> {
        let pagemap = Pagemap::open(self.id.pid)?;
        if self.is_alive() {
            Ok(pagemap)
        } else {
            Err(gone("open", format!("/proc/{}/pagemap", self.id.pid)))
        }
    }
}

fn gone(operation: &'static str, subject: String) -> Error {
    Error::new(operation, subject, Errno::SRCH)
}

/// Our own process id.
pub fn own_pid() -> i32 {
    std::process::id().cast_signed()
}

/// The number of the calling thread.
pub fn own_tid() -> i32 {
    rustix::thread::gettid().as_raw_nonzero().get()
}

/// The pids of all processes that /proc shows (hidepid may hide some), ascending.
pub fn processes() -> Result<Vec<i32>> {
    let mut pids = numbers_in("/proc".to_owned())?;
    pids.sort_unstable();
    Ok(pids)
}

/// The thread ids of a process.
pub fn threads(pid: i32) -> Result<Vec<i32>> {
    numbers_in(format!("/proc/{pid}/task"))
}

fn numbers_in(directory: String) -> Result<Vec<i32>> {
    let failed = |error| Error::new("read directory", directory.as_str(), error);
    let mut numbers = Vec::new();
    for entry in std::fs::read_dir(&directory).map_err(failed)? {
        let name = entry.map_err(failed)?.file_name();
        numbers.extend(name.to_str().and_then(|name| name.parse::<i32>().ok()));
    }
    Ok(numbers)
}

/// The process (thread group) that a thread is of.
pub fn process_of_thread(tid: i32) -> Result<i32> {
    text::read_field(&format!("/proc/{tid}/status"), "Tgid:")
}

/// Bytes that devices were asked to read by a process, its threads, and those of its children that have ended and been waited for:
/// by faults, read(2) and readahead alike, whoever else may use them too. From its fork on, over execs (/proc/PID/io, needs
/// CONFIG_TASK_IO_ACCOUNTING and the right to ptrace-read).
pub fn bytes_read(pid: i32) -> Result<u64> {
    text::read_field(&format!("/proc/{pid}/io"), "read_bytes:")
}

/// The same of the calling thread alone: what it submits, whoever completes it.
pub fn bytes_read_by_thread() -> Result<u64> {
    text::read_field("/proc/thread-self/io", "read_bytes:")
}

/// The children of a process, of all its threads (/proc/PID/task/TID/children, needs CONFIG_PROC_CHILDREN).
/// The kernel promises completeness only for processes that stand still.
pub fn children(pid: i32) -> Result<Vec<i32>> {
    let mut children = Vec::new();
    for thread in threads(pid)? {
        match text::read_text(format!("/proc/{pid}/task/{thread}/children")) {
            Ok(list) => children.extend(
                list.split_ascii_whitespace()
                    .filter_map(|pid| pid.parse::<i32>().ok()),
            ),
            // The thread exited; that of the whole process shows in the next call.
            Err(error) if error.is_gone() => {}
            Err(error) => return Err(error),
        }
    }
    Ok(children)
}

/// The processes below one, itself included; so many at most.
pub fn tree(root: i32, processes_max: usize) -> BTreeSet<i32> {
    let mut pids = BTreeSet::new();
    let mut todo = vec![root];
    while let Some(pid) = todo.pop() {
        if pids.len() < processes_max && pids.insert(pid) {
            todo.extend(children(pid).unwrap_or_default());
        }
    }
    pids
}

/// What /proc/PID/stat says (all kernels; the fields that prepage uses).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProcessStat {
    /// Process id.
    pub pid: i32,
    /// Parent's process id.
    pub ppid: i32,
    /// Process group.
    pub process_group: i32,
    /// Session.
    pub session: i32,
    /// The name of the main thread: at most 15 bytes, any bytes.
    pub comm: OsString,
    /// R, S, D, Z, T, t, X, I.
    pub state: char,
    /// Minor faults.
    pub minor_faults: u64,
    /// Major faults: the application waited for a page.
    pub major_faults: u64,
    /// User time in clock ticks.
    pub utime_ticks: u64,
    /// System time in clock ticks.
    pub stime_ticks: u64,
    /// Start after boot in clock ticks.
    pub start_ticks: u64,
    /// Address of the program text; 0 or 1 where we may not ptrace-read the process.
    pub start_code: u64,
    /// End of the program text; as above.
    pub end_code: u64,
    /// Bottom of the main thread's stack; 0 where we may not ptrace-read the process.
    pub start_stack: u64,
}

/// Reads /proc/PID/stat.
pub fn stat(pid: i32) -> Result<ProcessStat> {
    let path = format!("/proc/{pid}/stat");
    let bytes = text::read_bytes(&path)?;
    parse_stat(&bytes)
        .ok_or_else(|| Error::malformed("parse", path, String::from_utf8_lossy(&bytes)))
}

/// Parses the contents of /proc/PID/stat; `None` where they are malformed.
pub fn parse_stat(bytes: &[u8]) -> Option<ProcessStat> {
    // The name stands in parentheses and may hold any byte, parentheses and newlines included: the last one ends it.
    let open = bytes.iter().position(|&byte| byte == b'(')?;
    let close = bytes.iter().rposition(|&byte| byte == b')')?;
    let comm = bytes.get(open + 1..close)?;
    let pid = std::str::from_utf8(&bytes[..open])
        .ok()?
        .trim()
        .parse()
        .ok()?;
    let rest = std::str::from_utf8(&bytes[close + 1..]).ok()?;
    let fields: Vec<&str> = rest.split_ascii_whitespace().collect();
    // proc(5) counts from 1, and `state`, the first of these, is field 3.
    let field = |number: usize| fields.get(number - 3).copied();
    let unsigned = |number: usize| field(number)?.parse::<u64>().ok();
    let signed = |number: usize| field(number)?.parse::<i32>().ok();
    Some(ProcessStat {
        pid,
        ppid: signed(4)?,
        process_group: signed(5)?,
        session: signed(6)?,
        comm: OsStr::from_bytes(comm).to_owned(),
        state: field(3)?.chars().next()?,
        minor_faults: unsigned(10)?,
        major_faults: unsigned(12)?,
        utime_ticks: unsigned(14)?,
        stime_ticks: unsigned(15)?,
        start_ticks: unsigned(22)?,
        start_code: unsigned(26)?,
        end_code: unsigned(27)?,
        start_stack: unsigned(28)?,
    })
}

/// Whether two processes have one memory, as a child has its parent's between vfork(2) and exec (kcmp(2), 3.5+, which may be
/// left out of a kernel: no then).
pub fn share_memory(one: i32, other: i32) -> bool {
    const KCMP_VM: i32 = 1;
    // SAFETY: takes numbers, no pointer.
    unsafe { libc::syscall(libc::SYS_kcmp, one, other, KCMP_VM, 0, 0) == 0 }
}

/// Whether a seccomp filter looks at the system calls of a thread (/proc/TID/status).
pub fn has_seccomp_filter(tid: i32) -> Result<bool> {
    let contents = text::read_text(format!("/proc/{tid}/status"))?;
    let mode = contents
        .lines()
        .find_map(|line| line.strip_prefix("Seccomp:"));
    Ok(mode.is_some_and(|mode| mode.trim() != "0"))
}

/// User or group ids of a process.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Ids {
    /// Who started it.
    pub real: u32,
    /// Whose rights it has.
    pub effective: u32,
    /// What it may return to.
    pub saved: u32,
    /// Whose rights it has on file systems.
    pub file_system: u32,
}

impl Ids {
    /// Whether it is one and the same in every respect, so that it has no other's rights and cannot return to any.
    pub fn is_one(&self) -> bool {
        [self.effective, self.saved, self.file_system] == [self.real; 3]
    }
}

/// What /proc/PID/status says (the fields that prepage uses). Memory fields are 0 for a kernel thread or a zombie.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ProcessStatus {
    /// User ids, in our user namespace.
    pub uid: Ids,
    /// Group ids, in our user namespace.
    pub gid: Ids,
    /// Supplementary groups.
    pub groups: Vec<u32>,
    /// Resident, in KiB: anonymous memory, of files, and shared. Approximate.
    pub vm_rss_kib: u64,
    /// Resident anonymous memory in KiB.
    pub rss_anon_kib: u64,
    /// Swapped out private anonymous memory in KiB. Swapped out shmem is not in it.
    pub vm_swap_kib: u64,
    /// Whether it has no memory of its own: a kernel thread or a zombie.
    pub without_memory: bool,
}

/// Reads /proc/PID/status.
pub fn status(pid: i32) -> Result<ProcessStatus> {
    let path = format!("/proc/{pid}/status");
    let contents = text::read_text(&path)?;
    parse_status(&contents)
        .ok_or_else(|| Error::malformed("parse", path, "no user ids, or a malformed number"))
}

/// Parses the contents of /proc/PID/status; `None` where they are malformed.
pub fn parse_status(contents: &str) -> Option<ProcessStatus> {
    let mut status = ProcessStatus {
        without_memory: true,
        ..ProcessStatus::default()
    };
    let mut has_uid = false;
    for line in contents.lines() {
        let Some((key, value)) = line.split_once(':') else {
            continue;
        };
        let value = value.trim();
        match key {
            "Uid" => {
                status.uid = parse_ids(value)?;
                has_uid = true;
            }
            "Gid" => status.gid = parse_ids(value)?,
            "Groups" => {
                let groups: std::result::Result<Vec<u32>, _> = value
                    .split_ascii_whitespace()
                    .map(|group| group.parse())
                    .collect();
                status.groups = groups.ok()?;
            }
            "VmRSS" => {
                status.vm_rss_kib = parse_kib(value)?;
                status.without_memory = false;
            }
            "RssAnon" => status.rss_anon_kib = parse_kib(value)?,
            "VmSwap" => status.vm_swap_kib = parse_kib(value)?,
            _ => {}
        }
    }
    has_uid.then_some(status)
}

fn parse_ids(value: &str) -> Option<Ids> {
    let mut numbers = value
        .split_ascii_whitespace()
        .map(|id| id.parse::<u32>().ok());
    Some(Ids {
        real: numbers.next()??,
        effective: numbers.next()??,
        saved: numbers.next()??,
        file_system: numbers.next()??,
    })
}

fn parse_kib(value: &str) -> Option<u64> {
    value.strip_suffix("kB")?.trim().parse().ok()
}

/// The path of the executable (readlink of /proc/PID/exe), with ` (deleted)` appended by the kernel where it was
/// removed. A kernel thread has none: [`Error::is_gone`] too.
pub fn exe(pid: i32) -> Result<PathBuf> {
    let path = format!("/proc/{pid}/exe");
    std::fs::read_link(&path).map_err(|error| Error::new("readlink", path, error))
}

/// The last part of that path, as it was before the executable was removed or replaced.
pub fn exe_name(pid: i32) -> Result<String> {
    let path = exe(pid)?;
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    Ok(name.strip_suffix(" (deleted)").unwrap_or(&name).to_owned())
}

/// The mount namespace that a process is in, by the inode number of /proc/PID/ns/mnt: the same for all that are in it.
pub fn mount_namespace(pid: i32) -> Result<u64> {
    let path = format!("/proc/{pid}/ns/mnt");
    match std::fs::metadata(&path) {
        Ok(namespace) => Ok(namespace.ino()),
        Err(error) => Err(Error::new("stat", path, error)),
    }
}

/// Most bytes of a process's arguments that are read. Any process may say that all of its memory is its arguments
/// (PR_SET_MM_MAP, prctl(2)).
const CMDLINE_BYTES_MAX: u64 = 64 << 10;

/// Most arguments that are told apart.
const ARGUMENTS_MAX: usize = 4_096;

/// The arguments, the first of very many. The process can overwrite them, so this is a claim, not a fact. Empty for kernel threads
/// and zombies.
pub fn cmdline(pid: i32) -> Result<Vec<OsString>> {
    let bytes = text::read_at_most(format!("/proc/{pid}/cmdline"), CMDLINE_BYTES_MAX)?;
    let trimmed = bytes.strip_suffix(&[0]).unwrap_or(&bytes);
    if trimmed.is_empty() {
        return Ok(Vec::new());
    }
    Ok(trimmed
        .split(|&byte| byte == 0)
        .take(ARGUMENTS_MAX)
        .map(|argument| OsStr::from_bytes(argument).to_owned())
        .collect())
}

/// A number that changes when the process calls exec, to tell apart the two programs of one [`ProcessId`].
///
/// It mixes the addresses of text and stack (fields 26-28 of /proc/PID/stat, which address space randomisation draws
/// anew at every exec) with the device and inode of the executable. With randomisation off, an exec of the *same*
/// program goes unnoticed: [`crate::pagemap::Pagemap::is_of_living`] tells that. It needs the right to ptrace-read the process; without it only the executable counts. An
/// executable on a file system that denies it even root (an AppImage's FUSE mount) counts for nothing, and no server is
/// asked for one (AT_STATX_DONT_SYNC).
pub fn exec_generation(pid: i32) -> Result<u64> {
    let stat = stat(pid)?;
    let path = format!("/proc/{pid}/exe");
    let flags = AtFlags::STATX_DONT_SYNC;
    let (device, inode) = match rustix::fs::statx(CWD, &path, flags, StatxFlags::INO) {
        Ok(stat) => {
            let device = rustix::fs::makedev(stat.stx_dev_major, stat.stx_dev_minor);
            (device, stat.stx_ino)
        }
        Err(error @ (Errno::SRCH | Errno::PERM)) => return Err(Error::new("stat", path, error)),
        // A kernel thread has no executable, and its stat was readable.
        Err(_) => (0, 0),
    };
    let parts = [
        stat.start_code,
        stat.end_code,
        stat.start_stack,
        device,
        inode,
    ];
    // FNV-1a over 64-bit words, with a final mix: it need not resist anybody, only differ.
    let mixed = parts.iter().fold(0xcbf2_9ce4_8422_2325_u64, |hash, part| {
        (hash ^ part)
            .wrapping_mul(0x0000_0100_0000_01b3)
            .rotate_left(29)
    });
    Ok(mixed ^ (mixed >> 32))
}

#[cfg(test)]
mod tests {
    use super::*;

    const STAT: &str = "4825 (a) (b\n) R 4819 4818 3903 0 -1 4194304 101 0 7 0 11 12 0 0 20 0 3 0 134300 3133440 388 \
        18446744073709551615 94582149677056 94582149696937 140734430582784 0 0 0";

    #[test]
    fn stat_survives_any_name() {
        let stat = parse_stat(STAT.as_bytes()).expect("well formed");
        assert_eq!(stat.comm, OsStr::new("a) (b\n"));
        assert_eq!(
            (stat.pid, stat.ppid, stat.session, stat.state),
            (4825, 4819, 3903, 'R')
        );
        assert_eq!((stat.minor_faults, stat.major_faults), (101, 7));
        assert_eq!((stat.utime_ticks, stat.stime_ticks), (11, 12));
        assert_eq!(
            (stat.start_ticks, stat.start_stack),
            (134300, 140734430582784)
        );
    }

    #[test]
    fn truncated_stat_is_none_not_a_panic() {
        // The fields after start_stack are not used.
        let used = STAT.len() - " 0 0 0".len() - 15;
        for end in 0..used {
            assert_eq!(parse_stat(&STAT.as_bytes()[..end]), None, "of {end} bytes");
        }
        assert_eq!(parse_stat(b")("), None);
    }

    #[test]
    fn status_reads_ids_and_memory() {
        let text = "Name:\tx\nUid:\t1\t2\t3\t4\nGid:\t5\t6\t7\t8\nGroups:\t9 10 \nVmRSS:\t  12 kB\nVmSwap:\t 7 kB\n";
        let status = parse_status(text).expect("well formed");
        assert_eq!(
            (
                status.uid.real,
                status.uid.file_system,
                status.gid.effective
            ),
            (1, 4, 6)
        );
        assert_eq!(status.groups, [9, 10]);
        assert_eq!((status.vm_rss_kib, status.vm_swap_kib), (12, 7));
        assert!(!status.without_memory);
        assert_eq!(parse_status("Name:\tx\n"), None);
        assert_eq!(parse_status("Uid:\t1 2\n"), None);
        assert_eq!(parse_status("Uid:\t1 2 3 4\nVmRSS:\tx kB\n"), None);
    }
}
