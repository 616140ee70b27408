//! Memory of the process, and the allocator's part in it.

/// Gives memory back to the system that was freed and that the allocator keeps. glibc's gives back
/// by itself only what is at the end of a heap: some kilobytes that are held there keep all of it.
/// With another allocator this does nothing.
pub fn give_back() {
    #[cfg(all(target_os = "linux", target_env = "gnu"))]
    #[expect(
        unsafe_code,
        reason = "malloc_trim(3) is safe to call at any time, and wrapped by no crate in use"
    )]
    // SAFETY: it takes no pointer and may be called from any thread (MT-Safe).
    unsafe {
        libc::malloc_trim(0);
    }
}
