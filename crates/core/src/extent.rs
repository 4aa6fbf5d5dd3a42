//! Contiguous page ranges and sets of them.
//!
//! An [`Extent`] is a half-open range `[start, start + len)` of pages: of a file, or of an address space
//! (a *region*). An [`ExtentSet`] is the set of pages that its extents cover.

use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// A contiguous range of pages, `[start, start + len)`; never empty inside an [`ExtentSet`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Extent {
    /// First page.
    pub start: u64,
    /// Number of pages.
    pub len: u64,
}

impl Extent {
    /// The extent `[start, start + len)`.
    pub const fn new(start: u64, len: u64) -> Self {
        Self { start, len }
    }

    /// The extent `[start, end)`; empty where `end <= start`.
    pub const fn between(start: u64, end: u64) -> Self {
        Self {
            start,
            len: end.saturating_sub(start),
        }
    }

    /// The page after the last one.
    pub const fn end(&self) -> u64 {
        self.start.saturating_add(self.len)
    }

    /// It, cut into pieces of at most `len_max` pages, or of one, in order.
    pub fn pieces(self, len_max: u64) -> impl Iterator<Item = Self> {
        let len_max = len_max.max(1);
        (self.start..self.end())
            .step_by(usize::try_from(len_max).unwrap_or(usize::MAX))
            .map(move |start| Self::between(start, self.end().min(start.saturating_add(len_max))))
    }

    /// Those of its pages that `count` counts, where it says of an extent how many there are in it: halved for as long as it is
    /// neither none nor all.
    pub fn counted(self, count: &impl Fn(Self) -> u64) -> ExtentSet {
        let mut found = ExtentSet::new();
        self.add_counted(count, &mut found);
        found
    }

    fn add_counted(self, count: &impl Fn(Self) -> u64, found: &mut ExtentSet) {
        match count(self) {
            0 => {}
            counted if counted >= self.len => found.push_back(self),
            _ => {
                let middle = self.start + self.len / 2;
                Self::between(self.start, middle).add_counted(count, found);
                Self::between(middle, self.end()).add_counted(count, found);
            }
        }
    }

    /// Whether it covers no page.
    pub const fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Whether it covers `page`.
    pub const fn contains(&self, page: u64) -> bool {
        self.start <= page && page < self.end()
    }
}

/// A set of pages, kept as sorted, disjoint extents of which no two touch.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "Vec<Extent>", into = "Vec<Extent>")]
pub struct ExtentSet {
    extents: Vec<Extent>,
}

impl ExtentSet {
    /// The empty set.
    pub const fn new() -> Self {
        Self {
            extents: Vec::new(),
        }
    }

    /// The set of the given pages, in any order, repeated or not.
    pub fn from_pages(mut pages: Vec<u64>) -> Self {
        pages.sort_unstable();
        pages.dedup();
        let mut set = Self::new();
        for page in pages {
            set.push_back(Extent::new(page, 1));
        }
        set
    }

    /// Its extents, ascending.
    pub fn extents(&self) -> &[Extent] {
        &self.extents
    }

    /// Number of pages in it.
    pub fn pages(&self) -> u64 {
        self.extents.iter().map(|e| e.len).sum()
    }

    /// Its pages, ascending.
    pub fn iter_pages(&self) -> impl Iterator<Item = u64> + '_ {
        self.extents.iter().flat_map(|e| e.start..e.end())
    }

    /// Whether it is empty.
    pub fn is_empty(&self) -> bool {
        self.extents.is_empty()
    }

    /// Whether it contains `page`.
    pub fn contains(&self, page: u64) -> bool {
        let after = self.extents.partition_point(|e| e.start <= page);
        after > 0 && self.extents[after - 1].contains(page)
    }

    /// Says of page after page whether it contains it, of pages that ascend.
    pub fn contains_ascending(&self) -> impl FnMut(u64) -> bool + '_ {
        let mut left = self.extents.as_slice();
        move |page| {
            while let [first, rest @ ..] = left
                && first.end() <= page
            {
                left = rest;
            }
            left.first().is_some_and(|extent| extent.contains(page))
        }
    }

    /// Appends an extent that starts at or after the end of the last one. An end past the last page number is cut.
    ///
    /// # Panics
    /// If the extent starts before the end of the last one: the caller's order is wrong.
    pub fn push_back(&mut self, extent: Extent) {
        // The last page number has no page after it, so that no extent can hold it: an end beyond it is cut.
        let extent = Extent::between(extent.start, extent.end());
        if extent.is_empty() {
            return;
        }
        match self.extents.last_mut() {
            Some(last) if extent.start == last.end() => last.len += extent.len,
            Some(last) => {
                assert!(extent.start > last.end(), "extents must be pushed in order");
                self.extents.push(extent);
            }
            None => self.extents.push(extent),
        }
    }

    /// Appends what of an extent lies past the last one; it may overlap that, but not start before it.
    fn push_joined(&mut self, extent: Extent) {
        let end = self.extents.last().map_or(0, Extent::end);
        self.push_back(Extent::between(extent.start.max(end), extent.end()));
    }

    fn with_capacity(extents: usize) -> Self {
        Self {
            extents: Vec::with_capacity(extents),
        }
    }

    /// The pages in `self` or in `other`.
    pub fn union(&self, other: &Self) -> Self {
        let (mut a, mut b) = (self.extents.as_slice(), other.extents.as_slice());
        let mut set = Self::with_capacity(a.len() + b.len());
        while let ([x, rest_a @ ..], [y, rest_b @ ..]) = (a, b) {
            if x.start <= y.start {
                set.push_joined(*x);
                a = rest_a;
            } else {
                set.push_joined(*y);
                b = rest_b;
            }
        }
        for extent in a.iter().chain(b) {
            set.push_joined(*extent);
        }
        set
    }

    /// The pages in both.
    pub fn intersection(&self, other: &Self) -> Self {
        let mut set = Self::with_capacity(self.extents.len().min(other.extents.len()));
        self.for_each_common(other, |extent| set.push_back(extent));
        set
    }

    /// Number of pages in both.
    pub fn common_pages(&self, other: &Self) -> u64 {
        let mut pages = 0;
        self.for_each_common(other, |extent| pages += extent.len);
        pages
    }

    /// The extents that both cover, ascending, and none of them empty.
    fn for_each_common(&self, other: &Self, mut visit: impl FnMut(Extent)) {
        let (mut a, mut b) = (self.extents.as_slice(), other.extents.as_slice());
        while let ([x, rest_a @ ..], [y, rest_b @ ..]) = (a, b) {
            let common = Extent::between(x.start.max(y.start), x.end().min(y.end()));
            if !common.is_empty() {
                visit(common);
            }
            if x.end() < y.end() {
                a = rest_a;
            } else {
                b = rest_b;
            }
        }
    }

    /// The pages in `self` that are not in `other`.
    pub fn difference(&self, other: &Self) -> Self {
        let mut set = Self::with_capacity(self.extents.len());
        let mut cuts = other.extents.as_slice();
        for extent in &self.extents {
            let mut start = extent.start;
            while let [cut, rest @ ..] = cuts {
                if cut.end() <= start {
                    cuts = rest;
                    continue;
                }
                if cut.start >= extent.end() {
                    break;
                }
                set.push_back(Extent::between(start, cut.start));
                start = cut.end();
                if start >= extent.end() {
                    // It may cut the next extent too.
                    break;
                }
            }
            set.push_back(Extent::between(start, extent.end()));
        }
        set
    }

    /// Joins extents less than `gap_max` pages apart into one, as reads are planned (ASAP section 4.2, extent
    /// merging), but never across a page of `barred`. Returns the joined set and the number of gap pages that it
    /// covers in addition.
    pub fn merged(&self, gap_max: u64, barred: &Self) -> (Self, u64) {
        let mut set = Self::new();
        let mut gap_pages = 0;
        let mut bars = barred.extents.iter().peekable();
        for extent in &self.extents {
            if let Some(last) = set.extents.last_mut() {
                let gap = Extent::between(last.end(), extent.start);
                while bars.next_if(|bar| bar.end() <= gap.start).is_some() {}
                let is_barred = bars.peek().is_some_and(|bar| bar.start < gap.end());
                if gap.len < gap_max && !is_barred {
                    gap_pages += gap.len;
                    last.len = extent.end() - last.start;
                    continue;
                }
            }
            set.extents.push(*extent);
        }
        (set, gap_pages)
    }

    /// The pages below `end`: what remains of a file that was truncated to `end` pages.
    pub fn truncated(&self, end: u64) -> Self {
        let mut set = Self::new();
        for extent in self.extents.iter().take_while(|e| e.start < end) {
            set.push_back(Extent::between(extent.start, extent.end().min(end)));
        }
        set
    }
}

impl From<Vec<Extent>> for ExtentSet {
    /// Any extents, in any order, overlapping or empty; an end past the last page number is cut.
    fn from(mut extents: Vec<Extent>) -> Self {
        extents.sort_unstable();
        let mut set = Self::with_capacity(extents.len());
        for extent in extents {
            set.push_joined(extent);
        }
        set
    }
}

/// Keeps the first pages of what holds extents, `pages_max` of them, and drops what holds none. Returns how many were left out.
pub fn keep_first<T>(
    list: &mut Vec<T>,
    pages_max: u64,
    extent: impl Fn(&mut T) -> &mut Extent,
) -> u64 {
    let (mut left, mut left_out) = (pages_max, 0u64);
    list.retain_mut(|item| {
        let extent = extent(item);
        let len = extent.len.min(left);
        left_out = left_out.saturating_add(extent.len - len);
        left -= len;
        extent.len = len;
        len > 0
    });
    left_out
}

/// The pages of each key, from extents in any order, overlapping or empty.
pub fn by_key<K: Ord>(extents: impl IntoIterator<Item = (K, Extent)>) -> BTreeMap<K, ExtentSet> {
    let mut keys: BTreeMap<K, Vec<Extent>> = BTreeMap::new();
    for (key, extent) in extents {
        keys.entry(key).or_default().push(extent);
    }
    let set = |(key, extents)| (key, ExtentSet::from(extents));
    keys.into_iter().map(set).collect()
}

impl From<ExtentSet> for Vec<Extent> {
    fn from(set: ExtentSet) -> Self {
        set.extents
    }
}

impl FromIterator<Extent> for ExtentSet {
    fn from_iter<I: IntoIterator<Item = Extent>>(extents: I) -> Self {
        Self::from(extents.into_iter().collect::<Vec<_>>())
    }
}
