//! The engine against the real kernel: swap, page tables, page cache. Needs root.

mod ahead;
mod cache;
mod disks;
mod faults;
mod files;
mod groups;
mod hang;
mod late;
mod launch_blocks;
mod launch_fetch;
mod launch_metadata;
mod launch_places;
mod launch_ready;
mod launch_record;
mod launch_rig;
mod mappings;
mod mid_fetch;
mod overlapping;
mod restore;
mod rig;
mod roots;
mod sandbox;
mod shared;
mod store;
mod switch;
mod threads;
mod userfault;

#[test]
fn child_role() {
    assert!(!prepage_kernel::testing::child::play_role(), "nobody asked");
}
