//! The engine against the real kernel: swap, page tables, page cache. Needs root.

mod faults;
mod files;
mod late;
mod rig;
mod store;
mod switch;

#[test]
fn child_role() {
    assert!(!prepage_kernel::testing::child::play_role(), "nobody asked");
}
