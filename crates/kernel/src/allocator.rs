//! The C library's allocator (mallopt(3), glibc): how much memory threads keep.

/// Has all threads allocate from one arena. By default each of the first eight threads a core gets an arena of its own, and
/// what one of them has freed the others do not use: a process whose threads take turns at large tables holds several times
/// what it needs. To be called before there are threads; another allocator than glibc's is left as it is.
pub fn share_one_arena() {
    #[cfg(target_env = "gnu")]
    // SAFETY: `mallopt` takes two integers by value and sets a parameter of the allocator under its own lock; `M_ARENA_MAX` is
    // one that it knows, and any number of arenas from 1 on is valid. It refuses by returning 0, and leaves things as they are.
    unsafe {
        libc::mallopt(libc::M_ARENA_MAX, 1);
    }
}
