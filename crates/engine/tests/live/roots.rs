//! Applications whose root directory, or whose mounts, are not ours: the same path names another file there.

use crate::cache::is_learned_and_fetched;
use crate::sandbox::{FILE_PAGES, STAYS, Sandbox};
use prepage_kernel::testing::child::Child;
use prepage_kernel::testing::machine::{Directory, Machine, write_clean};
use prepage_kernel::testing::page_cache::{cached, drop_cache};
use std::path::Path;

/// The file that the child means by `path` is fetched, and not the one that we mean by it.
fn is_fetched_in_its_root(child: &mut Child, path: &Path, theirs: &Path, ours: &Path) {
    drop_cache(ours);
    is_learned_and_fetched(child, path, theirs);
    assert_eq!(
        cached(ours, 0, FILE_PAGES),
        0,
        "our file of that name was read"
    );
}

/// The file is fetched for a child that is in a mount namespace of its own, entered by a program that these words begin.
fn is_fetched_in_a_mount_namespace(through: &[&str]) {
    let (_machine, sandbox) = (Machine::with_swap(), Sandbox::new());
    let (theirs, ours) = (&sandbox.theirs, &sandbox.ours);
    let mut child = Child::spawn_through(&[through, &sandbox.words()].concat(), 1);
    is_fetched_in_its_root(&mut child, ours, theirs, ours);
}

#[test]
fn in_another_mount_namespace() {
    is_fetched_in_a_mount_namespace(&[]);
}

/// A sandbox's first process stays outside of it, as Flatpak's does: the oldest one's root is not the application's.
#[test]
fn in_a_mount_namespace_that_the_oldest_process_is_not_in() {
    is_fetched_in_a_mount_namespace(&STAYS);
}

#[test]
fn in_another_root_directory() {
    let (_machine, directory) = (Machine::with_swap(), Directory::new());
    let ours = directory.file("file", FILE_PAGES);
    let root = directory.path("root");
    let theirs = root.join(ours.strip_prefix("/").expect("absolute"));
    std::fs::create_dir_all(theirs.parent().expect("a parent")).expect("mkdir");
    write_clean(&theirs, FILE_PAGES);
    let mut child = Child::spawn(1);
    child.chroot(&root);
    is_fetched_in_its_root(&mut child, &ours, &theirs, &ours);
}
