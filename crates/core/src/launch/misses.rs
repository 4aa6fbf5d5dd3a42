//! What a launch had to read although the prefetcher knew its sequence (FAST section 5.2).

use super::blocks::{BlockKind, BlockMap, Content, Piece, covering};
use super::recording::{Access, Issuer, Recording};
use super::sequence::{LaunchSequence, index_of, pages_of};
use serde::{Deserialize, Serialize};

/// Requests that the prefetcher did not issue, by the paper's classes, of a launch sequence.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Misses {
    /// Class 1: by processes outside the launch, for files that daemons opened at boot. `None`: not known.
    pub daemons: Option<u64>,
    /// Class 2: of the journal. `None`: not known, since nobody can tell where it lies.
    pub journal: Option<u64>,
    /// Class 2: of swap. `None` as of the journal.
    pub swap: Option<u64>,
    /// Class 3: for files that were created or renamed since the launch before.
    pub transient: u64,
    /// Any other: what an update of the application looks like.
    pub others: u64,
    /// Requests of the launch sequence.
    pub sequence_requests: u64,
}

impl Misses {
    fn none(sequence: &LaunchSequence) -> Self {
        let sequence_requests = sequence.reads.len() as u64;
        Self {
            sequence_requests,
            ..Self::default()
        }
    }

    /// The miss ratio of FAST Table 2: requests not issued by the prefetcher, of the requests of the sequence.
    pub fn ratio(&self) -> f64 {
        self.all() as f64 / self.sequence_requests.max(1) as f64
    }

    /// All of them. A request of a class that is not known is one of the others, or of the daemons.
    pub fn all(&self) -> u64 {
        let known = [self.daemons, self.journal, self.swap];
        let known: u64 = known.into_iter().flatten().sum();
        known + self.transient + self.others
    }

    /// The share of it that R_miss is compared with: the three classes are there without any update, and learning anew
    /// does not cure them. The paper could not tell them apart at run time.
    pub fn update_ratio(&self) -> f64 {
        self.others as f64 / self.sequence_requests.max(1) as f64
    }
}

/// The misses that block requests show. What the sequence holds is not missed, whoever came first, nor are pages around
/// it that the launch did not access. Writes are no misses: nothing can read them ahead. `since_ns` is when the launch
/// before began, in nanoseconds since 1970.
pub fn from_requests(
    recording: &Recording,
    map: &BlockMap,
    sequence: &LaunchSequence,
    since_ns: i64,
    page_bytes: u64,
) -> Misses {
    let index = index_of(map.files().iter());
    let held = pages_of(&index, sequence.file_reads());
    let accesses = recording.file_accesses().map(|(file, a)| (file, a.extent));
    let accessed = pages_of(&index, accesses);
    let is_missed = |piece: &Piece, issuer| match piece.content {
        Some(Content {
            kind: BlockKind::File,
            file: Some(file),
            offset_bytes,
            ..
        }) => {
            let pages = covering(offset_bytes, piece.len_bytes, page_bytes);
            let wanted = match issuer {
                Issuer::Launch => accessed.common(file, pages),
                _ => vec![pages],
            };
            wanted.into_iter().any(|pages| !held.covers(file, pages))
        }
        _ => true,
    };
    let none_of = |kind| map.knows(kind).then_some(0);
    let mut misses = Misses {
        daemons: Some(0),
        journal: none_of(BlockKind::Journal),
        swap: none_of(BlockKind::Swap),
        ..Misses::none(sequence)
    };
    let reads = recording.requests.iter().filter(|r| !r.is_write);
    for request in reads.filter(|r| r.issuer != Issuer::Prefetcher) {
        let pieces = map.look_up(request);
        let missed = pieces.iter().find(|piece| is_missed(piece, request.issuer));
        if let Some(piece) = missed {
            let kind = piece.content.map(|c| c.kind);
            let file = piece.content.and_then(|c| c.file);
            let file = file.and_then(|f| map.files().get(f as usize));
            *match (kind, file) {
                (Some(BlockKind::Journal), _) => misses.journal.get_or_insert(0),
                (Some(BlockKind::Swap), _) => misses.swap.get_or_insert(0),
                _ if request.issuer == Issuer::Other => misses.daemons.get_or_insert(0),
                (_, Some(file)) if file.mtime_ns >= since_ns => &mut misses.transient,
                _ => &mut misses.others,
            } += 1;
        }
    }
    misses
}

/// The same from the page cache's view alone: what the launch's processes demanded. A run of pages is a request. It
/// shows neither the first two classes, which are not known then, nor metadata.
///
/// Of a launch that nobody fetched for, the kernel's own readahead brings in what a refined sequence has left out, and
/// faults map it along: that is demanded, and its use is not certain. It is no miss, or every launch held out would have
/// the sequence deleted.
pub fn from_accesses(recording: &Recording, sequence: &LaunchSequence, since_ns: i64) -> Misses {
    let held = pages_of(&index_of(recording.files.iter()), sequence.file_reads());
    let mut misses = Misses::none(sequence);
    let used = |(_, access): &(_, &Access)| access.is_demanded && access.is_certain;
    for (file, access) in recording.file_accesses().filter(used) {
        if !held.covers(access.file, access.extent) {
            *match file.mtime_ns >= since_ns {
                true => &mut misses.transient,
                false => &mut misses.others,
            } += 1;
        }
    }
    misses
}
