//! The child's side: it obeys one command a line, `ACTION OBJECT`, and answers each with `DONE`.

use super::userfault;
use crate::page::page_size;
use crate::process::own_pid;
use crate::swaps;
use std::fs::File;
use std::os::fd::AsRawFd;
use std::process::Command;

pub(super) const ROLE: &str = "PREPAGE_TEST_CHILD_PAGES";

/// Plays the child where this process was started as one, and ends it with its input. Returns false otherwise.
pub fn play_role() -> bool {
    let Ok(pages) = std::env::var(ROLE) else {
        return false;
    };
    let first = new_region(&format!("private {pages}"));
    flush();
    println!("\nREADY {first}");
    for line in std::io::stdin().lines() {
        let line = line.expect("read a command");
        let (action, object) = line.split_once(' ').expect("a command and its object");
        println!("\nDONE {}", obey(action, object));
    }
    std::process::exit(0);
}

/// Does it, and returns what there is to say.
fn obey(action: &str, object: &str) -> String {
    match action {
        "map" => return new_region(object).to_string(),
        "flush" => flush(),
        "swaptype" => {
            let filled = swaps::type_filled_next().expect("asked");
            return filled.map_or(String::new(), |number| number.to_string());
        }
        "readfile" | "mapfile" | "mapone" => return use_file(action, object).to_string(),
        "chroot" => std::os::unix::fs::chroot(object).expect("chroot"),
        "exec" => {
            use std::os::unix::process::CommandExt;
            let mut arguments = std::env::args_os();
            let binary = arguments.next().expect("own path");
            panic!("exec: {}", Command::new(binary).args(arguments).exec());
        }
        "monitor" => userfault::monitor(&addresses(object)),
        "mark" => userfault::mark(&addresses(object)),
        "answer" => userfault::answer(&addresses(object)),
        "hold" => userfault::hold(&addresses(object)),
        "trap" => trap(&addresses(object)),
        _ => addresses(object).into_iter().for_each(|a| act(action, a)),
    }
    String::new()
}

/// The addresses of pages that are given by number.
fn addresses(object: &str) -> Vec<*mut u8> {
    let page = |word: &str| word.parse::<u64>().expect("a page number");
    let address = |word| (page(word) * page_size()) as usize as *mut u8;
    object.split_ascii_whitespace().map(address).collect()
}

/// What a page holds: not all the same, since swap keeps pages of one value apart.
pub(super) fn contents(address: *mut u8) -> Vec<u8> {
    let mut bytes = vec![0; page_size() as usize];
    bytes[..100].fill(1);
    let number = address as u64 / page_size();
    bytes[8..16].copy_from_slice(&number.wrapping_mul(0x9e37_79b9_7f4a_7c15).to_ne_bytes());
    bytes
}

/// What "write" leaves in a page's first byte.
const WRITTEN: u8 = 7;

/// What "remap" leaves there.
const REMAPPED: u8 = 9;

/// Checks that a page holds what was written to it, and in its first byte one of these.
fn verify(address: *mut u8, first: &[u8]) {
    let expected = contents(address);
    // SAFETY: a page that the parent says is mapped and readable; nobody writes to it meanwhile.
    let found = unsafe { std::slice::from_raw_parts(address, expected.len()) };
    let page = address as u64 / page_size();
    assert!(
        first.contains(&found[0]) && found[1..] == expected[1..],
        "page {page} changed"
    );
}

fn check(result: libc::c_int, what: &str) {
    assert_eq!(result, 0, "{what}: {}", std::io::Error::last_os_error());
}

/// What a kernel needs for an action that not every one knows.
fn needed_for(action: &str) -> &str {
    match action {
        "guard" => "this test needs MADV_GUARD_INSTALL (6.13)",
        other => other,
    }
}

fn act(action: &str, address: *mut u8) {
    match action {
        "verify" => return verify(address, &[1, WRITTEN]),
        "verify_remapped" => return verify(address, &[REMAPPED]),
        "remap" => return remap(address),
        _ => {}
    }
    let size = page_size() as usize;
    let at = address.cast();
    // SAFETY: pages of regions that this child mapped for these actions, and to which it holds no references.
    let result = unsafe {
        match action {
            "read" => {
                std::ptr::read_volatile(address);
                0
            }
            "write" => {
                std::ptr::write_volatile(address, WRITTEN);
                0
            }
            "none" => libc::mprotect(at, size, libc::PROT_NONE),
            "access" => libc::mprotect(at, size, libc::PROT_READ | libc::PROT_WRITE),
            "unmap" => libc::munmap(at, size),
            "discard" => libc::madvise(at, size, libc::MADV_DONTNEED),
            "lock" => libc::mlock(at, size),
            // MADV_GUARD_INSTALL.
            "guard" => libc::madvise(at, size, 102),
            other => panic!("unknown action {other}"),
        }
    };
    check(result, needed_for(action));
}

/// Discards the other pages as soon as the first is brought in. Nobody takes the core from it meanwhile.
fn trap(pages: &[*mut u8]) {
    let (watched, rest) = pages.split_first().expect("a page to watch");
    let pagemap = crate::pagemap::Pagemap::open(own_pid()).expect("pagemap");
    let mut entry = [crate::pagemap::PageEntry::default()];
    let page = *watched as u64 / page_size();
    schedule(libc::SCHED_FIFO, 1);
    println!("\nARMED");
    while !entry[0].present() {
        pagemap.read(page, &mut entry).expect("read pagemap");
    }
    rest.iter().for_each(|&page| act("discard", page));
    schedule(libc::SCHED_OTHER, 0);
}

fn schedule(policy: libc::c_int, priority: libc::c_int) {
    let parameter = libc::sched_param {
        sched_priority: priority,
    };
    // SAFETY: changes the calling thread only; `parameter` is read.
    let result = unsafe { libc::sched_setscheduler(0, policy, &parameter) };
    check(result, "sched_setscheduler");
}

fn map(bytes: usize, flags: i32, file: Option<&File>) -> *mut u8 {
    let protection = libc::PROT_READ | libc::PROT_WRITE;
    let fd = file.map_or(-1, AsRawFd::as_raw_fd);
    // SAFETY: a new mapping at an address of the kernel's choice.
    let base = unsafe { libc::mmap(std::ptr::null_mut(), bytes, protection, flags, fd, 0) };
    let error = std::io::Error::last_os_error();
    assert_ne!(base, libc::MAP_FAILED, "mmap: {error}");
    base.cast()
}

/// Puts another page in the place of one.
fn remap(address: *mut u8) {
    let (size, protection) = (page_size() as usize, libc::PROT_READ | libc::PROT_WRITE);
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED;
    // SAFETY: it takes the place of a page that this child mapped for this, and to which it holds no references.
    let base = unsafe { libc::mmap(address.cast(), size, protection, flags, -1, 0) };
    assert_eq!(base, address.cast(), "{}", std::io::Error::last_os_error());
    let mut contents = contents(address);
    contents[0] = REMAPPED;
    // SAFETY: the page just mapped, to which nothing refers.
    unsafe { address.copy_from_nonoverlapping(contents.as_ptr(), contents.len()) };
}

/// A huge page of x86-64 and of arm64 with 4 KiB pages, in bytes.
const HUGE_BYTES: usize = 2 << 20;

/// Maps `KIND PAGES`, writes every page, and returns the number of the first.
fn new_region(object: &str) -> u64 {
    let (kind, pages) = object
        .split_once(' ')
        .expect("a kind and a number of pages");
    let bytes = pages.parse::<usize>().expect("a number of pages") * page_size() as usize;
    let (private, shared) = (libc::MAP_PRIVATE | libc::MAP_ANONYMOUS, libc::MAP_SHARED);
    let base = match kind {
        "private" => advised(map(bytes, private, None), bytes, libc::MADV_NOHUGEPAGE),
        "locked" => {
            let base = map(bytes, private, None);
            // SAFETY: the mapping just made.
            check(unsafe { libc::mlock(base.cast(), bytes) }, "mlock");
            base
        }
        "shared" => map(bytes, shared | libc::MAP_ANONYMOUS, None),
        "memfd" => map(bytes, shared, Some(&memory_file(bytes))),
        "zero" => {
            let zero = File::options().read(true).write(true).open("/dev/zero");
            map(
                bytes,
                libc::MAP_PRIVATE,
                Some(&zero.expect("open /dev/zero")),
            )
        }
        "hugetlb" => map(bytes, private | libc::MAP_HUGETLB, None),
        "thp" => {
            let base = map(bytes + HUGE_BYTES, private, None);
            let aligned = base.wrapping_add(base.align_offset(HUGE_BYTES));
            advised(aligned, bytes, libc::MADV_HUGEPAGE)
        }
        // Never written, and not to be read.
        "reserved" => {
            let base = map(bytes, private, None);
            // SAFETY: the mapping just made.
            check(
                unsafe { libc::mprotect(base.cast(), bytes, libc::PROT_NONE) },
                "mprotect",
            );
            return base as u64 / page_size();
        }
        // Never written.
        "untouched" => return map(bytes, private, None) as u64 / page_size(),
        other => panic!("unknown kind of memory {other}"),
    };
    for offset in (0..bytes).step_by(page_size() as usize) {
        let (address, contents) = (
            base.wrapping_add(offset),
            contents(base.wrapping_add(offset)),
        );
        // SAFETY: a page of the mapping just made, to which nothing refers.
        unsafe { address.copy_from_nonoverlapping(contents.as_ptr(), contents.len()) };
    }
    base as u64 / page_size()
}

fn advised(base: *mut u8, bytes: usize, advice: libc::c_int) -> *mut u8 {
    // SAFETY: within a mapping just made; the advice is on the size of its pages.
    check(
        unsafe { libc::madvise(base.cast(), bytes, advice) },
        "madvise",
    );
    base
}

fn memory_file(bytes: usize) -> File {
    let fd = rustix::fs::memfd_create("prepage-test", rustix::fs::MemfdFlags::CLOEXEC);
    let file = File::from(fd.expect("memfd"));
    file.set_len(bytes as u64).expect("size the memfd");
    file
}

/// Empties the batches of all CPUs, in which pages cannot be isolated for reclaim.
fn flush() {
    let bytes = 1024 * page_size() as usize;
    let base = map(bytes, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS, None);
    // SAFETY: the mapping just made, unmapped again; nothing refers to it.
    unsafe {
        base.write_bytes(1, bytes);
        // MADV_COLLAPSE (6.1+) empties the batches of all CPUs, whether or not there is anything to collapse.
        libc::madvise(base.cast(), bytes, 25);
        libc::munmap(base.cast(), bytes);
    }
}

/// `FIRST COUNT PATH`: reads pages of a file, by read(2) or through a mapping that is kept; `mapone` reads only the one
/// in the middle of its mapping. Returns the number of the mapping's first page.
fn use_file(action: &str, object: &str) -> u64 {
    let mut words = object.splitn(3, ' ');
    let mut number = || words.next().and_then(|w| w.parse().ok()).expect("a number");
    let (first, count): (u64, u64) = (number(), number());
    let file = File::open(words.next().expect("a path")).expect("open the file");
    let (offset, len) = (first * page_size(), (count * page_size()) as usize);
    if action == "readfile" {
        use std::os::unix::fs::FileExt;
        let mut buffer = vec![0; len];
        file.read_exact_at(&mut buffer, offset)
            .expect("read the file");
        return 0;
    }
    let (flags, fd) = (libc::MAP_SHARED, file.as_raw_fd());
    // SAFETY: a new read-only mapping of an open file, at an address of the kernel's choice.
    let base = unsafe {
        libc::mmap(
            std::ptr::null_mut(),
            len,
            libc::PROT_READ,
            flags,
            fd,
            offset as libc::off_t,
        )
    };
    let error = std::io::Error::last_os_error();
    assert_ne!(base, libc::MAP_FAILED, "mmap: {error}");
    let middle = (count / 2 * page_size()) as usize;
    let pages = (0..len).step_by(page_size() as usize);
    for index in pages.filter(|&index| action == "mapfile" || index == middle) {
        // SAFETY: within the mapping; nobody truncates the file meanwhile.
        unsafe { std::ptr::read_volatile(base.cast::<u8>().add(index)) };
    }
    base as u64 / page_size()
}
