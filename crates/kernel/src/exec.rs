//! execve(2): becoming another program, exactly as if it had been started instead of this one.

use crate::error::Error;
use std::ffi::{CString, OsStr};
use std::os::unix::ffi::OsStrExt;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Replaces this program by another, found in PATH as execvp(3) does, with `program` as its first argument. It
/// inherits what this program inherited: Rust's runtime ignores SIGPIPE and opens /dev/null for standard streams that are
/// closed, and both are undone. Returns only where it fails.
pub fn exec(program: &OsStr, arguments: &[impl AsRef<OsStr>]) -> Error {
    let failed = |error| Error::new("execvp", program.to_string_lossy(), error);
    let given = arguments.iter().map(AsRef::as_ref);
    let words: std::result::Result<Vec<CString>, _> = std::iter::once(program)
        .chain(given)
        .map(|word| CString::new(word.as_bytes()))
        .collect();
    let words = match words {
        Ok(words) => words,
        Err(error) => return failed(error.into()),
    };
    let mut pointers: Vec<*const libc::c_char> = words.iter().map(|word| word.as_ptr()).collect();
    pointers.push(std::ptr::null());
    let sigpipe = AT_START.restore();
    // SAFETY: NUL-terminated strings, in an array that ends with a null pointer; both outlive the call.
    unsafe { libc::execvp(pointers[0], pointers.as_ptr()) };
    let error = std::io::Error::last_os_error();
    set_sigpipe(sigpipe);
    failed(error)
}

/// What this process had inherited, noted before Rust's runtime changes it.
struct AtStart {
    /// SIG_DFL or SIG_IGN.
    sigpipe: AtomicUsize,
    /// Bit N: descriptor N was closed.
    closed: AtomicUsize,
}

static AT_START: AtStart = AtStart {
    sigpipe: AtomicUsize::new(libc::SIG_DFL),
    closed: AtomicUsize::new(0),
};

impl AtStart {
    /// Has the next program get it. Returns what SIGPIPE did until now.
    fn restore(&self) -> libc::sighandler_t {
        for fd in 0..=libc::STDERR_FILENO {
            if self.closed.load(Ordering::Relaxed) >> fd & 1 != 0 {
                // SAFETY: changes a flag of a descriptor, or fails; exec closes it then.
                unsafe { libc::fcntl(fd, libc::F_SETFD, libc::FD_CLOEXEC) };
            }
        }
        set_sigpipe(self.sigpipe.load(Ordering::Relaxed))
    }
}

fn set_sigpipe(action: libc::sighandler_t) -> libc::sighandler_t {
    // SAFETY: SIG_DFL or SIG_IGN: no handler is installed.
    unsafe { libc::signal(libc::SIGPIPE, action) }
}

/// Runs before main and before Rust's runtime: it may only call libc, and only what needs no initialisation.
extern "C" fn note_what_is_inherited() {
    let mut action = std::mem::MaybeUninit::<libc::sigaction>::zeroed();
    // SAFETY: the kernel writes one sigaction; a null pointer changes nothing. Zeros are a valid one.
    let action = unsafe {
        libc::sigaction(libc::SIGPIPE, std::ptr::null(), action.as_mut_ptr());
        action.assume_init()
    };
    AT_START
        .sigpipe
        .store(action.sa_sigaction, Ordering::Relaxed);
    // SAFETY: asks for flags only.
    let is_closed = |fd| unsafe { libc::fcntl(fd, libc::F_GETFD) } == -1;
    let closed = (0..=libc::STDERR_FILENO).filter(|&fd| is_closed(fd));
    let bits = closed.fold(0, |bits, fd| bits | 1 << fd);
    AT_START.closed.store(bits, Ordering::Relaxed);
}

// SAFETY: the section is an array of pointers to functions of this type, which the C library calls at the start, each
// once and in one thread.
#[used]
#[unsafe(link_section = ".init_array")]
static NOTE_WHAT_IS_INHERITED: extern "C" fn() = note_what_is_inherited;
