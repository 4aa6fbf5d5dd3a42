//! A map from pages to small values, kept as runs of pages that share a value.
//!
//! Both estimators keep their tables in it: the candidate and the target table of one address space or file are
//! one map, so that no page can be in both. Places are kept by blocks of 2^16 pages, within which they take 16 bits: a
//! run takes four bytes and its value, as it is kept.

use crate::extent::{Extent, ExtentSet};
use serde::{Deserialize, Serialize};

/// Pages of a block (256 MiB where a page has 4 KiB). No run crosses a block's end.
const BLOCK_PAGES: u64 = 1 << 16;

/// What a page is mapped to.
pub trait Value: Copy + PartialEq {
    /// As it is kept, in fewer bytes; equal where the values are.
    type Kept: Copy + PartialEq + std::fmt::Debug;

    /// Keeps it.
    fn kept(self) -> Self::Kept;

    /// What was kept.
    fn of_kept(kept: Self::Kept) -> Self;
}

macro_rules! kept_as_they_are {
    ($($value:ty),*) => {$(
        impl $crate::run_map::Value for $value {
            type Kept = Self;

            fn kept(self) -> Self {
                self
            }

            fn of_kept(kept: Self) -> Self {
                kept
            }
        }
    )*};
}
pub(crate) use kept_as_they_are;

kept_as_they_are!(u8, u32, usize);

/// A run of pages, by their places in a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Run<K> {
    first: u16,
    last: u16,
    value: K,
}

/// A block that holds runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Block {
    /// Its first page.
    start: u64,
    /// Index of its first run.
    first_run: u32,
}

/// A map from pages to values; adjacent pages of one block with equal values share a run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(
    into = "Vec<(Extent, V)>",
    try_from = "Vec<(Extent, V)>",
    bound(
        serialize = "V: Value + Serialize",
        deserialize = "V: Value + Deserialize<'de>"
    )
)]
pub struct RunMap<V: Value> {
    blocks: Vec<Block>,
    runs: Vec<Run<V::Kept>>,
}

impl<V: Value> Default for RunMap<V> {
    fn default() -> Self {
        Self {
            blocks: Vec::new(),
            runs: Vec::new(),
        }
    }
}

impl<V: Value> RunMap<V> {
    /// Number of runs: what the map's memory grows with.
    pub fn runs(&self) -> usize {
        self.runs.len()
    }

    /// Bytes of memory that the map takes, in use.
    pub fn bytes(&self) -> usize {
        size_of_val::<[Run<V::Kept>]>(&self.runs) + size_of_val::<[Block]>(&self.blocks)
    }

    /// Whether it maps no page.
    pub fn is_empty(&self) -> bool {
        self.runs.is_empty()
    }

    /// Number of pages that it maps.
    pub fn pages(&self) -> u64 {
        self.iter().map(|(extent, _)| extent.len).sum()
    }

    /// The value of `page`.
    pub fn get(&self, page: u64) -> Option<V> {
        let after = self.blocks.partition_point(|block| block.start <= page);
        let block = after.checked_sub(1)?;
        let place = u16::try_from(page - self.blocks[block].start).ok()?;
        let runs = self.runs_of(block);
        let run = runs.get(runs.partition_point(|run| run.last < place))?;
        (run.first <= place).then(|| V::of_kept(run.value))
    }

    /// Its runs, ascending.
    pub fn iter(&self) -> impl Iterator<Item = (Extent, V)> + '_ {
        let runs = self.iter_kept();
        runs.map(|(extent, kept)| (extent, V::of_kept(kept)))
    }

    fn iter_kept(&self) -> impl Iterator<Item = (Extent, V::Kept)> + '_ {
        let mut blocks = self.blocks.as_slice();
        self.runs.iter().enumerate().map(move |(index, run)| {
            while let [_, next, ..] = blocks
                && next.first_run as usize <= index
            {
                blocks = &blocks[1..];
            }
            (run.extent(blocks[0].start), run.value)
        })
    }

    /// The pages whose value satisfies `keep`.
    pub fn pages_where(&self, mut keep: impl FnMut(V) -> bool) -> ExtentSet {
        let mut set = ExtentSet::new();
        for (extent, value) in self.iter() {
            if keep(value) {
                set.push_back(extent);
            }
        }
        set
    }

    /// Its runs within `pages`, ascending.
    pub fn within<'a>(&'a self, pages: &'a ExtentSet) -> impl Iterator<Item = (Extent, V)> + 'a {
        let mut extents = pages.extents();
        self.iter().flat_map(move |(run, value)| {
            let before = extents
                .iter()
                .take_while(|extent| extent.end() <= run.start);
            extents = &extents[before.count()..];
            let common = extents
                .iter()
                .take_while(move |extent| extent.start < run.end());
            common.map(move |extent| {
                let (start, end) = (run.start.max(extent.start), run.end().min(extent.end()));
                (Extent::between(start, end), value)
            })
        })
    }

    /// Gives every page in `pages` the value `change` makes of its present one; `None` means not mapped.
    /// `change` is called once for each run of pages with one present value, with that value and the number of
    /// pages. Pages outside `pages` stay as they are.
    pub fn update(
        &mut self,
        pages: &ExtentSet,
        mut change: impl FnMut(Option<V>, u64) -> Option<V>,
    ) {
        if pages.is_empty() {
            return;
        }
        let old = std::mem::take(self);
        self.runs.reserve(old.runs.len() + pages.extents().len());
        let mut changed =
            |value: Option<V::Kept>, len| change(value.map(V::of_kept), len).map(V::kept);
        let mut old = old.iter_kept();
        let mut pending = old.next();
        for &extent in pages.extents() {
            let mut page = extent.start;
            while let Some((run, value)) = pending {
                if run.start >= extent.end() {
                    break;
                }
                // Before the extent, between runs, and where both overlap.
                self.push(Extent::between(run.start, run.end().min(page)), Some(value));
                let overlap = Extent::between(run.start.max(page), run.end().min(extent.end()));
                if !overlap.is_empty() {
                    let before = Extent::between(page, overlap.start);
                    if !before.is_empty() {
                        self.push(before, changed(None, before.len));
                    }
                    self.push(overlap, changed(Some(value), overlap.len));
                    page = overlap.end();
                }
                if run.end() > extent.end() {
                    pending = Some((Extent::between(extent.end(), run.end()), value));
                    break;
                }
                pending = old.next();
            }
            let rest = Extent::between(page, extent.end());
            if !rest.is_empty() {
                self.push(rest, changed(None, rest.len));
            }
        }
        for (run, value) in pending.into_iter().chain(old) {
            self.push(run, Some(value));
        }
        self.runs.shrink_to_fit();
        self.blocks.shrink_to_fit();
    }

    fn runs_of(&self, block: usize) -> &[Run<V::Kept>] {
        let from = self.blocks[block].first_run as usize;
        let to = self.blocks.get(block + 1);
        &self.runs[from..to.map_or(self.runs.len(), |next| next.first_run as usize)]
    }

    /// Adds pages behind the last.
    fn push(&mut self, extent: Extent, value: Option<V::Kept>) {
        let Some(value) = value else { return };
        let (mut page, end) = (extent.start, extent.end());
        while page < end {
            let start = page / BLOCK_PAGES * BLOCK_PAGES;
            let last = (end - 1).min(start + (BLOCK_PAGES - 1));
            self.push_run(
                start,
                Run {
                    first: (page - start) as u16,
                    last: (last - start) as u16,
                    value,
                },
            );
            page = last + 1;
        }
    }

    fn push_run(&mut self, block_start: u64, run: Run<V::Kept>) {
        if self.blocks.last().is_none_or(|b| b.start != block_start) {
            self.blocks.push(Block {
                start: block_start,
                first_run: u32::try_from(self.runs.len()).expect("tables are bounded"),
            });
        } else if let Some(last) = self.runs.last_mut()
            && last.last + 1 == run.first
            && last.value == run.value
        {
            last.last = run.last;
            return;
        }
        self.runs.push(run);
    }
}

impl<K> Run<K> {
    fn extent(&self, block_start: u64) -> Extent {
        let len = u64::from(self.last - self.first) + 1;
        Extent::new(block_start + u64::from(self.first), len)
    }
}

impl<V: Value> From<RunMap<V>> for Vec<(Extent, V)> {
    fn from(map: RunMap<V>) -> Self {
        map.iter().collect()
    }
}

/// What was read from elsewhere: its runs are those of a map, or it is none.
impl<V: Value> TryFrom<Vec<(Extent, V)>> for RunMap<V> {
    type Error = &'static str;

    fn try_from(runs: Vec<(Extent, V)>) -> Result<Self, Self::Error> {
        let mut map = Self::default();
        let mut next = 0;
        for (extent, value) in runs {
            let end = extent.start.checked_add(extent.len);
            // One that crosses a block's end may stand for so many runs that there is no memory for them.
            let is_run = |end: u64| {
                extent.len > 0
                    && extent.start >= next
                    && extent.start / BLOCK_PAGES == (end - 1) / BLOCK_PAGES
            };
            next = end.filter(|&end| is_run(end)).ok_or("not runs of pages")?;
            map.push(extent, Some(value.kept()));
        }
        Ok(map)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runs_that_no_update_makes_are_refused() {
        let read = |runs: &[(u64, u64, u8)]| {
            let run = |&(start, len, value)| (Extent { start, len }, value);
            let runs: Vec<_> = runs.iter().map(run).collect();
            let map = RunMap::try_from(runs.clone());
            map.map(|map| assert_eq!(Vec::from(map), runs))
        };
        assert!(read(&[(0, 4, 1), (4, 1, 2), (9, 1, 2)]).is_ok());
        assert!(read(&[(0, BLOCK_PAGES, 1), (BLOCK_PAGES, 1, 1)]).is_ok());
        assert!(read(&[(0, 0, 1)]).is_err());
        assert!(read(&[(0, 4, 1), (3, 2, 2)]).is_err());
        assert!(read(&[(9, 1, 1), (4, 1, 2)]).is_err());
        assert!(read(&[(0, BLOCK_PAGES + 1, 1)]).is_err());
        assert!(read(&[(u64::MAX, 2, 1)]).is_err());
    }
}
