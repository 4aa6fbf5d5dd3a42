//! A map from pages to small values, kept as runs of pages that share a value.
//!
//! Both estimators keep their tables in it: the candidate and the target table of one address space or file are
//! one map, so that no page can be in both. A run takes 16 bytes where the value takes 4.

use crate::extent::{Extent, ExtentSet};
use serde::{Deserialize, Serialize};

/// Longest run, in pages: a length is kept in 32 bits.
const RUN_PAGES_MAX: u64 = u32::MAX as u64;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Run<V> {
    start: u64,
    len: u32,
    value: V,
}

/// A map from pages to values; adjacent pages with equal values share a run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RunMap<V> {
    runs: Vec<Run<V>>,
}

impl<V> Default for RunMap<V> {
    fn default() -> Self {
        Self { runs: Vec::new() }
    }
}

impl<V: Copy + PartialEq> RunMap<V> {
    /// Number of runs: what the map's memory grows with.
    pub fn runs(&self) -> usize {
        self.runs.len()
    }

    /// Bytes of memory that the runs take, in use.
    pub fn bytes(&self) -> usize {
        self.runs.len() * size_of::<Run<V>>()
    }

    /// Whether it maps no page.
    pub fn is_empty(&self) -> bool {
        self.runs.is_empty()
    }

    /// Whether it keeps its invariants and every value satisfies `check`: what was read from elsewhere may not.
    pub(crate) fn is_valid(&self, mut check: impl FnMut(V) -> bool) -> bool {
        let mut end = 0;
        self.runs.iter().all(|run| {
            let in_order = run.start >= end;
            let run_end = run.start.checked_add(u64::from(run.len));
            end = run_end.unwrap_or(u64::MAX);
            in_order && run.len > 0 && run_end.is_some() && check(run.value)
        })
    }

    /// Number of pages that it maps.
    pub fn pages(&self) -> u64 {
        self.runs.iter().map(|r| u64::from(r.len)).sum()
    }

    /// The value of `page`.
    pub fn get(&self, page: u64) -> Option<V> {
        let after = self.runs.partition_point(|r| r.start <= page);
        let run = self.runs.get(after.checked_sub(1)?)?;
        (page - run.start < u64::from(run.len)).then_some(run.value)
    }

    /// Its runs, ascending.
    pub fn iter(&self) -> impl Iterator<Item = (Extent, V)> + '_ {
        self.runs
            .iter()
            .map(|r| (Extent::new(r.start, u64::from(r.len)), r.value))
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

    /// Number of pages whose value satisfies `count`.
    pub fn count_where(&self, mut count: impl FnMut(V) -> bool) -> u64 {
        self.iter()
            .filter(|&(_, v)| count(v))
            .map(|(e, _)| e.len)
            .sum()
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
        let old = std::mem::take(&mut self.runs);
        self.runs.reserve(old.len() + pages.extents().len());
        let mut old = old.into_iter();
        let mut pending = old.next();
        for &extent in pages.extents() {
            let mut page = extent.start;
            while let Some(run) = pending {
                let run_end = run.start + u64::from(run.len);
                if run.start >= extent.end() {
                    break;
                }
                // Before the extent, between runs, and where both overlap.
                self.push(
                    Extent::between(run.start, run_end.min(page)),
                    Some(run.value),
                );
                let overlap = Extent::between(run.start.max(page), run_end.min(extent.end()));
                if !overlap.is_empty() {
                    let before = Extent::between(page, overlap.start);
                    if !before.is_empty() {
                        self.push(before, change(None, before.len));
                    }
                    self.push(overlap, change(Some(run.value), overlap.len));
                    page = overlap.end();
                }
                if run_end > extent.end() {
                    pending = Some(Run {
                        start: extent.end(),
                        len: (run_end - extent.end()) as u32,
                        value: run.value,
                    });
                    break;
                }
                pending = old.next();
            }
            let rest = Extent::between(page, extent.end());
            if !rest.is_empty() {
                self.push(rest, change(None, rest.len));
            }
        }
        for run in pending.into_iter().chain(old) {
            self.push(Extent::new(run.start, u64::from(run.len)), Some(run.value));
        }
        self.runs.shrink_to(self.runs.len() + self.runs.len() / 4);
    }

    /// Gives every mapped page the value `change` makes of its present one; `None` removes it.
    pub fn update_all(&mut self, mut change: impl FnMut(V) -> Option<V>) {
        for run in std::mem::take(&mut self.runs) {
            self.push(
                Extent::new(run.start, u64::from(run.len)),
                change(run.value),
            );
        }
    }

    fn push(&mut self, extent: Extent, value: Option<V>) {
        let Some(value) = value else { return };
        let mut start = extent.start;
        if let Some(last) = self.runs.last_mut() {
            let last_end = last.start + u64::from(last.len);
            let joined = u64::from(last.len) + extent.len;
            if last_end == start && last.value == value && joined <= RUN_PAGES_MAX {
                last.len = joined as u32;
                return;
            }
        }
        while start < extent.end() {
            let len = (extent.end() - start).min(RUN_PAGES_MAX);
            self.runs.push(Run {
                start,
                len: len as u32,
                value,
            });
            start += len;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runs_that_no_update_makes_are_not_valid() {
        let run = |start, len, value| Run { start, len, value };
        let is_valid = |runs: Vec<Run<u8>>| RunMap { runs }.is_valid(|value| value < 9);
        assert!(is_valid(vec![run(0, 4, 1), run(4, 1, 2), run(9, 1, 2)]));
        assert!(!is_valid(vec![run(0, 0, 1)]));
        assert!(!is_valid(vec![run(0, 4, 9)]));
        assert!(!is_valid(vec![run(0, 4, 1), run(3, 2, 2)]));
        assert!(!is_valid(vec![run(9, 1, 1), run(4, 1, 2)]));
        assert!(!is_valid(vec![run(u64::MAX, 2, 1)]));
    }
}
