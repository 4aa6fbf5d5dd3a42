//! Which pages of several files were seen, and where: the bookkeeping that extraction, planning and misses share.

use crate::extent::Extent;
use std::collections::BTreeMap;

/// Pages of files, which are named by an index, each with the place where it was added. Insertion and look-up take
/// logarithmic time in the number of extents.
#[derive(Debug, Default)]
pub(super) struct PageMap {
    /// From file and first page to the page after the last one and the place; disjoint.
    extents: BTreeMap<(u32, u64), (u64, usize)>,
}

impl PageMap {
    /// Adds what of an extent is not in the map yet, and returns that, ascending.
    pub(super) fn add(&mut self, file: u32, extent: Extent, place: usize) -> Vec<Extent> {
        let mut added = Vec::new();
        let mut page = extent.start;
        while page < extent.end() {
            if let Some((known, _)) = self.find(file, page) {
                page = known.end();
                continue;
            }
            let next = self.extents.range((file, page)..(file, extent.end()));
            let end = next.map(|(&(_, start), _)| start).next();
            let end = end.unwrap_or(extent.end());
            self.extents.insert((file, page), (end, place));
            added.push(Extent::between(page, end));
            page = end;
        }
        added
    }

    /// The extent that holds a page, and its place.
    pub(super) fn find(&self, file: u32, page: u64) -> Option<(Extent, usize)> {
        let before = self.extents.range((file, 0)..=(file, page)).next_back();
        let (&(_, start), &(end, place)) = before?;
        (page < end).then(|| (Extent::between(start, end), place))
    }

    /// What of an extent is in the map, ascending, each piece with its place.
    pub(super) fn pieces(
        &self,
        file: u32,
        extent: Extent,
    ) -> impl Iterator<Item = (Extent, usize)> {
        let before = self.find(file, extent.start).map(|(known, _)| known.start);
        let first = before.unwrap_or(extent.start);
        let known = self
            .extents
            .range((file, first)..(file, extent.end().max(first)));
        known.map(move |(&(_, start), &(end, place))| {
            let piece = Extent::between(start.max(extent.start), end.min(extent.end()));
            (piece, place)
        })
    }

    /// The same without the places, neighbours joined.
    pub(super) fn common(&self, file: u32, extent: Extent) -> Vec<Extent> {
        let mut common: Vec<Extent> = Vec::new();
        for (piece, _) in self.pieces(file, extent) {
            match common.last_mut() {
                Some(last) if last.end() == piece.start => last.len += piece.len,
                _ => common.push(piece),
            }
        }
        common
    }

    /// Whether all pages of an extent are in the map.
    pub(super) fn covers(&self, file: u32, extent: Extent) -> bool {
        self.common(file, extent) == [Extent::between(extent.start, extent.end())]
    }
}
