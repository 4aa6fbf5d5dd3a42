//! What the swap areas lie on, and which pages of a process have to be read from a disk.

use prepage_kernel::pagemap::PageEntry;
use prepage_kernel::swaps::{self, SwapArea, SwapKind};

/// Where swapped-out pages are.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SwapLayout {
    /// Whether any have to be read from a disk, or a file: such reads are submitted before anything is mapped.
    pub reads_disk: bool,
    /// The swap type of those that do not, being in zram, where some do and it is known.
    zram_type: Option<u32>,
}

impl SwapLayout {
    /// As it is now.
    pub fn look() -> Self {
        let areas = swaps::areas().unwrap_or_default();
        Self::of(&areas, || swaps::type_filled_next().ok().flatten())
    }

    fn of(areas: &[SwapArea], type_filled_next: impl FnOnce() -> Option<u32>) -> Self {
        let is_zram = |area: &&SwapArea| area.kind == SwapKind::Zram;
        let has_zram = areas.iter().any(|area| is_zram(&area));
        // Behind zram, a disk that nothing has reached costs nothing.
        let reads_disk = areas
            .iter()
            .any(|area| !is_zram(&area) && (area.used_kib > 0 || !has_zram));
        // An area's place in /proc/swaps is its type unless one before it was turned off: where the kernel swaps next confirms
        // it. Of several zram devices one is told from the disks, and the others' pages go the disk's way.
        let first = areas
            .iter()
            .filter(|area| area.used_kib < area.size_kib)
            .max_by_key(|area| area.priority);
        let zram = first.filter(|first| reads_disk && is_zram(first));
        Self {
            reads_disk,
            zram_type: zram.and_then(|zram| type_filled_next().filter(|&next| next == zram.index)),
        }
    }

    /// Whether a swapped-out page has to be read from a disk, as far as is known.
    pub fn is_on_disk(self, entry: PageEntry) -> bool {
        let swap_type = entry.swap_type();
        self.reads_disk && swap_type.is_some() && swap_type != self.zram_type
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use prepage_kernel::page::page_size;
    use prepage_kernel::process::{Process, own_pid};
    use prepage_kernel::process_madvise;
    use prepage_kernel::testing::machine::Machine;

    #[test]
    fn each_page_is_told_by_the_area_that_it_is_in() {
        const PAGES: u64 = 1024;
        let (_machine, _file) = Machine::with_file_before_zram(PAGES / 2);
        let memory = vec![1u8; (PAGES * page_size()) as usize];
        let first = (memory.as_ptr() as u64).div_ceil(page_size());
        let own = Process::open(own_pid()).expect("own process");
        let range = first..first + PAGES - 1;
        process_madvise::pageout(own.pidfd(), std::slice::from_ref(&range)).expect("swap out");
        let layout = SwapLayout::look();
        assert!(
            layout.reads_disk && layout.zram_type.is_some(),
            "{layout:?}"
        );
        let mut entries = vec![PageEntry::default(); PAGES as usize - 1];
        let pagemap = own.pagemap().expect("pagemap");
        pagemap.read(first, &mut entries).expect("read");
        let on_disk = entries.iter().filter(|entry| layout.is_on_disk(**entry));
        let on_disk = on_disk.count() as u64;
        let areas = swaps::areas().expect("areas");
        let file = areas.iter().find(|area| area.kind == SwapKind::File);
        let used = file.map_or(0, |file| file.used_kib * 1024 / page_size());
        // Others' pages may be there as well.
        assert!(used >= 64 && on_disk <= used, "{on_disk} of {used}");
        assert!(on_disk >= used - 64, "{on_disk} of {used}");
    }

    fn area(index: u32, kind: SwapKind, used_kib: u64, priority: i32) -> SwapArea {
        SwapArea {
            index,
            path: "x".into(),
            kind,
            size_kib: 1 << 20,
            used_kib,
            priority,
            rotational: None,
        }
    }

    #[test]
    fn zram_is_told_from_a_disk_behind_it_where_both_are_used_and_its_type_is_certain() {
        let zram = |used| area(1, SwapKind::Zram, used, 100);
        let disk = |used| area(0, SwapKind::Disk, used, -2);
        let layout = |areas: &[SwapArea], next| SwapLayout::of(areas, || next);
        let is = |reads_disk, zram_type| SwapLayout {
            reads_disk,
            zram_type,
        };
        assert_eq!(layout(&[], None), is(false, None));
        assert_eq!(layout(&[zram(9)], None), is(false, None));
        assert_eq!(layout(&[disk(0)], None), is(true, None));
        assert_eq!(layout(&[disk(0), zram(9)], Some(1)), is(false, None));
        assert_eq!(layout(&[disk(9), zram(9)], Some(1)), is(true, Some(1)));
        assert_eq!(
            layout(&[disk(9), zram(9)], Some(2)),
            is(true, None),
            "in doubt"
        );
        let full = SwapArea {
            used_kib: 1 << 20,
            ..zram(0)
        };
        assert_eq!(layout(&[disk(9), full], Some(0)), is(true, None));
    }
}
