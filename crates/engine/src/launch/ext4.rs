//! Where an ext2, ext3 or ext4 file system keeps its inodes, from its device (Linux `Documentation/filesystems/ext4`:
//! super, group_descr), and its journal (journal, ifork). For devices that may be read; others stay without.

use prepage_kernel::block::open_by_number;
use std::collections::HashMap;
use std::fs::File;
use std::os::unix::fs::FileExt;

/// The superblock's place and size, in bytes.
const SUPERBLOCK_BYTES: (u64, usize) = (1_024, 1_024);
const MAGIC: u64 = 0xef53;
/// Largest block.
const BLOCK_BYTES_MAX: u64 = 64 << 10;
/// `s_feature_incompat`: descriptors are not in one place (meta_bg), and are longer than 32 bytes (64bit).
const META_BG: u64 = 0x10;
const WIDE: u64 = 0x80;
/// `s_feature_compat`: there is a journal.
const HAS_JOURNAL: u64 = 0x4;
/// `i_flags`: where the file's blocks are, a tree of extents says. Else indirect blocks do (ext3), which are not read.
const BY_EXTENTS: u64 = 0x80000;
/// First bytes of each node of that tree, and the length of its header and of each entry, in bytes.
const NODE_MAGIC: u64 = 0xf30a;
const ENTRY_BYTES: usize = 12;
/// Most blocks of an extent that was written.
const WRITTEN_MAX: u64 = 0x8000;
/// Most nodes read: a journal is one run of blocks, or few.
const NODES_MAX: usize = 64;
/// Most groups read: 8 TiB with blocks of 4 KiB.
const GROUPS_MAX: u64 = 1 << 16;
/// Most bytes of a group's descriptor: mkfs.ext4 makes them of 32 or 64, and who writes a device may claim 65,535.
const DESCRIPTOR_BYTES_MAX: u64 = 64;

/// Where inodes and the journal lie; numbers of blocks on the device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ext4Layout {
    /// Block size, in bytes.
    pub block_bytes: u64,
    /// `s_inodes_per_group`.
    pub group_inodes: u64,
    /// `s_inode_size`, in bytes.
    pub inode_bytes: u64,
    /// The first block of each group's inode table.
    pub inode_tables: Vec<u64>,
    /// The journal inside of the file system: first blocks and numbers of blocks; empty where it has none, `None` where
    /// nobody can tell.
    pub journal: Option<Vec<(u64, u64)>>,
}

/// The devices of these file systems that may be read, with their layouts: each is opened once.
#[derive(Debug, Default)]
pub struct Ext4Devices(HashMap<u64, Option<(File, Ext4Layout)>>);

impl Ext4Devices {
    /// That of a device number of stat; `None` where it may not be read, or holds none of these file systems.
    pub fn of(&mut self, dev: u64) -> Option<&(File, Ext4Layout)> {
        let open = || {
            let device = open_by_number(dev).ok()?;
            let layout = layout(&device)?;
            Some((device, layout))
        };
        self.0.entry(dev).or_insert_with(open).as_ref()
    }
}

/// The layout of the file system on a device; `None` where there is none of these, or one that is laid out otherwise.
pub fn layout(device: &File) -> Option<Ext4Layout> {
    let (offset, len) = SUPERBLOCK_BYTES;
    let mut superblock = vec![0; len];
    device.read_exact_at(&mut superblock, offset).ok()?;
    let field = |offset, len| number(&superblock, offset, len);
    let incompatible = field(0x60, 4)?;
    if field(0x38, 2)? != MAGIC || incompatible & META_BG != 0 {
        return None;
    }
    let is_wide = incompatible & WIDE != 0;
    let block_bytes = 1_024_u64.checked_shl(u32::try_from(field(0x18, 4)?).ok()?)?;
    if block_bytes > BLOCK_BYTES_MAX {
        return None;
    }
    let high = if is_wide { field(0x150, 4)? } else { 0 };
    // 1 with blocks of 1 KiB, else 0: the superblock's.
    let first_block = field(0x14, 4)?;
    let blocks = (field(0x4, 4)? | high << 32).checked_sub(first_block)?;
    let group_blocks = field(0x20, 4)?;
    let descriptor_bytes = if is_wide { field(0xfe, 2)?.max(32) } else { 32 };
    if descriptor_bytes > DESCRIPTOR_BYTES_MAX {
        return None;
    }
    let count = blocks.checked_add(group_blocks)?.checked_sub(1)?;
    let count = count.checked_div(group_blocks)?.min(GROUPS_MAX);
    let mut descriptors = vec![0; (count * descriptor_bytes) as usize];
    let first_bytes = (first_block + 1).checked_mul(block_bytes)?;
    device.read_exact_at(&mut descriptors, first_bytes).ok()?;
    let groups = descriptors.chunks_exact(descriptor_bytes as usize);
    let mut layout = Ext4Layout {
        block_bytes,
        group_inodes: field(0x28, 4)?,
        // Revision 0 has no such field, and 128 bytes.
        inode_bytes: if field(0x4c, 4)? == 0 {
            128
        } else {
            field(0x58, 2)?
        },
        inode_tables: groups.map(inode_table).collect::<Option<_>>()?,
        journal: None,
    };
    layout.journal = match field(0x5c, 4)? & HAS_JOURNAL {
        0 => Some(Vec::new()),
        // 0 where it is on another device.
        _ => runs_of(device, &layout, field(0xe0, 4)?),
    };
    Some(layout)
}

/// Where an inode is on the device, in bytes; `None` where there is no such inode.
pub fn place_of_inode(layout: &Ext4Layout, inode: u64) -> Option<u64> {
    let at = inode.checked_sub(1)?;
    let group = usize::try_from(at.checked_div(layout.group_inodes)?).ok()?;
    let table = layout.inode_tables.get(group)?;
    let in_table = (at % layout.group_inodes).checked_mul(layout.inode_bytes)?;
    let place = table.checked_mul(layout.block_bytes)?;
    place.checked_add(in_table)
}

/// Where the blocks of a file are: runs of them, first and count, in any order. `None` where that cannot be told.
fn runs_of(device: &File, layout: &Ext4Layout, inode: u64) -> Option<Vec<(u64, u64)>> {
    let mut bytes = [0; 128];
    device
        .read_exact_at(&mut bytes, place_of_inode(layout, inode)?)
        .ok()?;
    if number(&bytes, 0x20, 4)? & BY_EXTENTS == 0 {
        return None;
    }
    let (mut runs, mut nodes, mut read) = (Vec::new(), vec![bytes[0x28..0x64].to_vec()], 0);
    while let Some(node) = nodes.pop() {
        if number(&node, 0, 2)? != NODE_MAGIC {
            return None;
        }
        let depth = number(&node, 6, 2)?;
        let entries = number(&node, 2, 2)? as usize;
        for entry in 1..=entries {
            let entry = node.get(entry * ENTRY_BYTES..(entry + 1) * ENTRY_BYTES)?;
            if depth == 0 {
                let first = number(entry, 8, 4)? | number(entry, 6, 2)? << 32;
                let blocks = number(entry, 4, 2)?;
                // Longer ones are not written yet, and count from there on.
                runs.push((
                    first,
                    blocks
                        .checked_sub(WRITTEN_MAX + 1)
                        .map_or(blocks, |b| b + 1),
                ));
                continue;
            }
            read += 1;
            if read > NODES_MAX {
                return None;
            }
            let block = number(entry, 4, 4)? | number(entry, 8, 2)? << 32;
            let mut below = vec![0; usize::try_from(layout.block_bytes).ok()?];
            let place = block.checked_mul(layout.block_bytes)?;
            device.read_exact_at(&mut below, place).ok()?;
            nodes.push(below);
        }
    }
    Some(runs)
}

/// The first block of a group's inode table.
fn inode_table(descriptor: &[u8]) -> Option<u64> {
    // The upper half is in the part that only long descriptors have.
    let high = number(descriptor, 0x28, 4).unwrap_or(0);
    Some(number(descriptor, 0x8, 4)? | high << 32)
}

/// A little-endian number of `len` bytes, at most 8.
fn number(bytes: &[u8], offset: usize, len: usize) -> Option<u64> {
    let bytes = bytes.get(offset..offset + len)?;
    Some(
        bytes
            .iter()
            .rev()
            .fold(0, |sum, &byte| sum << 8 | u64::from(byte)),
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::Command;
    use std::sync::atomic::{AtomicU32, Ordering};

    /// A file system of so many MiB, made in a file that has no name any more.
    fn made(mib: u64, options: &[&str]) -> File {
        made_and_shown(mib, options).0
    }

    /// The same, with the blocks of its journal as debugfs(8) lists them.
    fn made_and_shown(mib: u64, options: &[&str]) -> (File, Vec<u64>) {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let name = format!("prepage-ext4-{}-{number}", std::process::id());
        let path = std::env::temp_dir().join(name);
        let file = File::options()
            .read(true)
            .write(true)
            .create_new(true)
            .open(&path);
        let file = file.expect("create");
        file.set_len(mib << 20).expect("size");
        let made = Command::new("mkfs.ext4")
            .arg("-q")
            .args(options)
            .arg(&path)
            .status();
        let shown = Command::new("debugfs")
            .args(["-R", "blocks <8>"])
            .arg(&path)
            .output();
        std::fs::remove_file(&path).expect("remove");
        assert!(
            made.is_ok_and(|status| status.success()),
            "this test needs mkfs.ext4"
        );
        let shown = shown.expect("this test needs debugfs").stdout;
        let blocks = String::from_utf8_lossy(&shown);
        let blocks = blocks.split_ascii_whitespace().map(|b| b.parse());
        (file, blocks.collect::<Result<_, _>>().expect("numbers"))
    }

    #[test]
    fn the_journal_is_where_debugfs_says() {
        for (mib, options) in [
            (300, &[][..]),
            // Two runs of blocks.
            (300, &["-O", "^64bit,^flex_bg"]),
            (64, &["-b", "1024", "-I", "128"]),
            (64, &["-O", "^has_journal"]),
        ] {
            let (file, shown) = made_and_shown(mib, options);
            let journal = layout(&file).expect("ext4").journal.expect("known");
            let mut blocks: Vec<u64> = journal.iter().flat_map(|&(at, n)| at..at + n).collect();
            blocks.sort_unstable();
            assert_eq!(blocks, shown, "{options:?}");
        }
        // Of ext3, indirect blocks say where it is.
        let (file, shown) = made_and_shown(64, &["-t", "ext3"]);
        assert!(!shown.is_empty());
        assert_eq!(layout(&file).expect("ext3").journal, None);
        // A tree that leads nowhere.
        let file = made(300, &[]);
        let whole = layout(&file).expect("ext4");
        let depth = place_of_inode(&whole, 8).expect("there") + 0x28 + 6;
        file.write_all_at(&[1], depth).expect("write");
        assert_eq!(layout(&file).expect("ext4").journal, None);
    }

    #[test]
    fn inode_tables_are_where_the_layout_says() {
        for (mib, options) in [
            (300, &[][..]),
            (301, &["-O", "^64bit,^flex_bg"]),
            (64, &["-b", "1024", "-I", "128"]),
        ] {
            let file = made(mib, options);
            let layout = layout(&file).expect("ext4");
            // A group has as many blocks as its bitmap, a block, has bits.
            let group_bytes = 8 * layout.block_bytes * layout.block_bytes;
            let groups = (mib << 20).div_ceil(group_bytes);
            assert_eq!(layout.inode_tables.len() as u64, groups);
            // Inode 2 is the root directory.
            let inode = place_of_inode(&layout, 2).expect("there");
            let mut mode = [0; 2];
            file.read_exact_at(&mut mode, inode).expect("read");
            assert_eq!(u16::from_le_bytes(mode), 0o040_755, "{options:?}");
        }
    }

    #[test]
    fn another_file_system_and_a_damaged_one_have_no_layout() {
        let file = made(8, &["-O", "64bit"]);
        let claimed = 1_024 + 0xfe;
        for (descriptor_bytes, is_read) in [(64_u16, true), (65, false), (u16::MAX, false)] {
            let bytes = descriptor_bytes.to_le_bytes();
            file.write_all_at(&bytes, claimed).expect("write");
            assert_eq!(layout(&file).is_some(), is_read, "{descriptor_bytes}");
        }
        file.write_all_at(&64_u16.to_le_bytes(), claimed)
            .expect("write");
        file.write_all_at(&[0xff; 4], 1_024 + 0x18).expect("write");
        assert_eq!(layout(&file), None, "blocks of 2^(2^32) KiB");
        file.write_all_at(&[0; 2], 1_024 + 0x38).expect("write");
        assert_eq!(layout(&file), None, "no magic");
        file.set_len(100).expect("truncate");
        assert_eq!(layout(&file), None, "no superblock");
    }
}
