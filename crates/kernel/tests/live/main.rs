//! Tests against the real kernel. They need root and fail, in words, where something is missing; what they need they
//! set up themselves and put back. They take turns, also with other suites, by a machine-wide lock.

mod disks;
mod faults;
mod files;
mod groups;
mod memory;
mod paths;
mod system;
mod tasks;

#[test]
fn child_role() {
    assert!(!prepage_kernel::testing::child::play_role(), "nobody asked");
}
