//! Launch help without its manager: recordings, extraction, plans, paths, the block map and misses, against naive
//! oracles, page by page and block by block.

use prepage_core::extent::Extent;
use prepage_core::identity::FileId;
use prepage_core::launch::blocks::{BlockKind, BlockMap, FileExtent, Volume};
use prepage_core::launch::extract::{extract, learn, refine, reorder};
use prepage_core::launch::metadata::{self, MetadataRead};
use prepage_core::launch::misses::{self, Misses};
use prepage_core::launch::paths::{PathRead, PathReplay, replays, split};
use prepage_core::launch::plan::{LaunchPlan, PlanLimits, plan};
use prepage_core::launch::recording::{
    Access, BlockRequest, CallKind, Issuer, LaunchEnd, PathCall, Recording, Source, deadline,
    first_accesses, without_absent,
};
use prepage_core::launch::sequence::{LaunchSequence, TURNS};
use prepage_core::params::launch::{LaunchOrder, LaunchParams, LaunchStart};
use proptest::prelude::*;
use std::collections::{BTreeMap, BTreeSet};

const PAGE: u64 = 4096;
const FILES: u32 = 3;
const FILE_PAGES: u64 = 60;

fn file(name: u32) -> FileId {
    FileId {
        path: format!("/usr/lib/{name}").into(),
        device: (8, 1),
        inode: 100 + u64::from(name),
        size: FILE_PAGES * PAGE - 5,
        mtime_ns: 7,
    }
}

fn recording(source: Source, accesses: Vec<Access>) -> Recording {
    Recording {
        source,
        files: (0..FILES).map(file).collect(),
        accesses: first_accesses(accesses),
        calls: Vec::new(),
        is_path_profile: false,
        metadata: Vec::new(),
        requests: Vec::new(),
        events_lost: 0,
        files_left_out: 0,
        end: LaunchEnd::Idle,
    }
}

fn accesses() -> impl Strategy<Value = Vec<Access>> {
    let flags = (any::<bool>(), any::<bool>());
    let access = (0..FILES, 0..FILE_PAGES, 0..12u64, 0..500u64, flags);
    let access = access.prop_map(
        |(file, start, len, at_us, (is_demanded, is_certain))| Access {
            file,
            extent: Extent::new(start, len.min(FILE_PAGES - start)),
            at_us,
            is_demanded,
            is_certain,
        },
    );
    prop::collection::vec(access, 0..40)
}

type Page = (u32, u64);

fn pages(extents: impl IntoIterator<Item = (u32, Extent)>) -> Vec<Page> {
    let pages = |(file, e): (u32, Extent)| (e.start..e.end()).map(move |page| (file, page));
    extents.into_iter().flat_map(pages).collect()
}

fn accessed(recording: &Recording) -> Vec<Page> {
    pages(recording.accesses.iter().map(|a| (a.file, a.extent)))
}

/// The sequence's pages by the files' names, which its indexes need not follow.
fn held(sequence: &LaunchSequence) -> Vec<Page> {
    let name = |at: u32| (sequence.files[at as usize].file.inode - 100) as u32;
    pages(sequence.reads.iter().map(|r| (name(r.file), r.extent)))
}

fn read(plan: &LaunchPlan) -> Vec<Page> {
    let name = |at: u32| (plan.files[at as usize].inode - 100) as u32;
    pages(plan.reads.iter().map(|r| (name(r.file), r.extent)))
}

fn distinct(pages: &[Page]) -> BTreeSet<Page> {
    let set: BTreeSet<Page> = pages.iter().copied().collect();
    assert_eq!(set.len(), pages.len(), "a page twice in {pages:?}");
    set
}

const LIMITS: PlanLimits = PlanLimits {
    page_bytes: PAGE,
    call_bytes_max: 1 << 20,
};

proptest! {
    #[test]
    fn first_accesses_hold_each_page_once_where_it_was_first_accessed(all in accesses()) {
        let flat = |accesses: &[Access]| -> Vec<(Page, Access)> {
            let of = |a: &Access| pages([(a.file, a.extent)]).into_iter().map(|p| (p, *a)).collect::<Vec<_>>();
            accesses.iter().flat_map(of).collect()
        };
        let first = first_accesses(all.clone());
        let found = flat(&first);
        let every: BTreeSet<Page> = flat(&all).into_iter().map(|(page, _)| page).collect();
        prop_assert_eq!(distinct(&found.iter().map(|(page, _)| *page).collect::<Vec<_>>()), every);
        let mut times = Vec::new();
        for (page, access) in found {
            let to_it = flat(&all).into_iter().filter(|(p, _)| *p == page).map(|(_, a)| a);
            let to_it: Vec<_> = to_it.collect();
            prop_assert_eq!(access.is_certain, to_it.iter().any(|a| a.is_certain));
            let at_us = to_it.iter().map(|a| a.at_us).min().expect("it was accessed");
            // Neighbours are joined where they follow each other, and have the time of the first then.
            prop_assert!(access.at_us <= at_us);
            times.push(at_us);
        }
        prop_assert!(times.is_sorted());
        prop_assert!(first.windows(2).all(|pair| pair[0].at_us <= pair[1].at_us));
    }

    #[test]
    fn what_came_into_memory_later_was_not_mapped_along(all in accesses(), inserted in accesses()) {
        let left = without_absent(all.clone(), inserted.clone());
        let came = |page: Page| {
            let of_page = inserted.iter().filter(|i| i.file == page.0 && i.extent.contains(page.1));
            of_page.map(|i| i.at_us).min()
        };
        let mut oracle = Vec::new();
        for access in &all {
            let mut kept = pages([(access.file, access.extent)]);
            kept.retain(|&page| access.is_certain || came(page).is_none_or(|at_us| at_us <= access.at_us));
            oracle.extend(kept.into_iter().map(|page| (page, access.at_us, access.is_certain)));
        }
        let mut found = Vec::new();
        for a in &left {
            found.extend(pages([(a.file, a.extent)]).into_iter().map(|p| (p, a.at_us, a.is_certain)));
        }
        prop_assert_eq!(found, oracle);
    }

    #[test]
    fn each_page_in_doubt_is_left_out_in_one_turn_and_no_other_ever(all in accesses(), first in any::<u32>()) {
        let sequence = extract(&[recording(Source::Accesses, all)]);
        let mut left_out: BTreeMap<Page, u64> = BTreeMap::new();
        for turn in 0..TURNS as u32 {
            let kept = distinct(&held(&sequence.for_turn(first.wrapping_add(turn))));
            for page in distinct(&held(&sequence)).difference(&kept) {
                *left_out.entry(*page).or_default() += 1;
            }
        }
        let mut in_doubt = sequence;
        in_doubt.reads.retain(|read| !read.is_certain);
        let once: BTreeMap<Page, u64> = held(&in_doubt).into_iter().map(|page| (page, 1)).collect();
        prop_assert_eq!(left_out, once);
    }

    #[test]
    fn refining_keeps_what_may_be_used_and_knows_what_is(
        launches in prop::collection::vec(accesses(), 2..5),
    ) {
        let recordings: Vec<_> = launches.into_iter().map(|a| recording(Source::Accesses, a)).collect();
        let (first, others) = recordings.split_first().expect("at least one");
        let mut sequence = extract(std::slice::from_ref(first));
        let certain = |r: &Recording| -> BTreeSet<Page> {
            accessed(&Recording { accesses: r.accesses.iter().copied().filter(|a| a.is_certain).collect(), ..r.clone() })
                .into_iter()
                .collect()
        };
        let (mut used, mut perhaps) = (certain(first), distinct(&accessed(first)));
        perhaps.retain(|page| !used.contains(page));
        let known: BTreeSet<u32> = accessed(first).iter().map(|page| page.0).collect();
        for recording in others {
            refine(&mut sequence, recording, 1);
            used.extend(certain(recording).into_iter().filter(|page| known.contains(&page.0)));
            let seen = distinct(&accessed(recording));
            perhaps.retain(|page| seen.contains(page) && !used.contains(page));
            if used.is_empty() && perhaps.is_empty() {
                return Ok(());
            }
        }
        let name = |at: u32| (sequence.files[at as usize].file.inode - 100) as u32;
        let with = |is_certain: bool| -> BTreeSet<Page> {
            let reads = sequence.reads.iter().filter(|r| r.is_certain == is_certain);
            pages(reads.map(|r| (name(r.file), r.extent))).into_iter().collect()
        };
        distinct(&held(&sequence));
        // A file of which nothing is left is forgotten.
        let left: BTreeSet<u32> = sequence.files.iter().map(|f| (f.file.inode - 100) as u32).collect();
        used.retain(|page| left.contains(&page.0));
        prop_assert_eq!(with(true), used);
        prop_assert_eq!(with(false), perhaps);
    }

    #[test]
    fn pages_come_in_the_order_of_the_last_launch_and_what_it_left_out_stays_behind_what_it_followed(
        launches in prop::collection::vec(accesses(), 2..4),
    ) {
        let recordings: Vec<_> = launches.into_iter().map(|a| recording(Source::Accesses, a)).collect();
        let mut sequence = extract(&recordings[..1]);
        for recording in &recordings[1..] {
            let certain = |sequence: &LaunchSequence| {
                let mut sequence = sequence.clone();
                sequence.reads.retain(|read| read.is_certain);
                held(&sequence).into_iter().collect::<BTreeSet<Page>>()
            };
            let (before, certain_before) = (held(&sequence), certain(&sequence));
            reorder(&mut sequence, recording);
            let access_of = |&(file, page): &Page| {
                recording.accesses.iter().position(|a| a.file == file && a.extent.contains(page))
            };
            let mut last = None;
            let mut oracle: Vec<(Option<usize>, Page)> = Vec::new();
            for page in before {
                last = access_of(&page).or(last);
                oracle.push((last, page));
            }
            oracle.sort_by_key(|(access, _)| *access);
            prop_assert_eq!(held(&sequence), oracle.into_iter().map(|(_, page)| page).collect::<Vec<_>>());
            prop_assert_eq!(certain(&sequence), certain_before);
        }
    }

    #[test]
    fn recordings_of_accesses_have_their_common_pages_in_common(
        launches in prop::collection::vec(accesses(), 1..4),
    ) {
        let recordings: Vec<_> = launches.into_iter().map(|a| recording(Source::Accesses, a)).collect();
        let (first, others) = recordings.split_first().expect("at least one");
        let others: Vec<_> = others.iter().map(|r| distinct(&accessed(r))).collect();
        let mut oracle = accessed(first);
        oracle.retain(|page| others.iter().all(|other| other.contains(page)));
        let sequence = extract(&recordings);
        prop_assert_eq!(held(&sequence), oracle);
        prop_assert_eq!(sequence.confirmed(recordings.len() as u32).count(), sequence.reads.len());
    }

    #[test]
    fn recordings_of_insertions_add_up_and_keep_their_order(
        launches in prop::collection::vec(accesses(), 1..4),
    ) {
        let recordings: Vec<_> = launches.into_iter().map(|a| recording(Source::Insertions, a)).collect();
        let sequence = extract(&recordings);
        let union: BTreeSet<Page> = recordings.iter().flat_map(accessed).collect();
        prop_assert_eq!(distinct(&held(&sequence)), union);
        // What is known keeps its order; what is new comes after what was accessed before it.
        let mut known = LaunchSequence::default();
        for recording in &recordings {
            let before = held(&known);
            learn(&mut known, recording, 2, false);
            let after = held(&known);
            let place = |page: Page| after.iter().position(|p| *p == page).expect("none is lost");
            prop_assert!(before.is_sorted_by_key(|page| place(*page)));
            for pair in recording.accesses.windows(2) {
                let new: Vec<_> = pages([(pair[1].file, pair[1].extent)]);
                for page in new.into_iter().filter(|page| !before.contains(page)) {
                    prop_assert!(place((pair[0].file, pair[0].extent.end() - 1)) < place(page));
                }
            }
        }
    }

    #[test]
    fn a_plan_reads_each_page_once_soon_and_in_bounded_calls(
        all in accesses(),
        gap in 0..20u64,
        shortest_window in 1..40u64,
        windows_max in 1..40u64,
        call_pages in 1..9u64,
        budget_pages in 0..200u64,
    ) {
        let recorded = recording(Source::Accesses, all);
        let sequence = extract(&[recorded]);
        let params = LaunchParams {
            n_rawseq: 1,
            merge_gap_pages: gap,
            merge_window_pages: shortest_window,
            merge_windows_max: windows_max,
            budget_bytes: budget_pages * PAGE,
            ..LaunchParams::default()
        };
        let limits = PlanLimits { call_bytes_max: call_pages * PAGE, ..LIMITS };
        let made = plan(&sequence, LaunchOrder::Launch, LaunchStart::Together, &params, limits);
        let mut wanted = held(&sequence);
        let left_out = wanted.len().saturating_sub(budget_pages as usize);
        wanted.truncate(budget_pages as usize);
        let window = shortest_window.max((wanted.len() as u64).div_ceil(windows_max));
        let read = read(&made);
        let read_set = distinct(&read);
        prop_assert!(wanted.iter().all(|page| read_set.contains(page)));
        prop_assert!(made.reads.iter().all(|r| (1..=call_pages).contains(&r.extent.len)));
        prop_assert_eq!(made.left_out_pages, left_out as u64);
        prop_assert_eq!(made.gap_pages, (read.len() - wanted.len()) as u64);
        prop_assert!(made.pages() <= budget_pages);
        let is_near = |&(file, page): &Page| {
            let near = |pages: std::ops::Range<u64>| pages.into_iter().any(|p| wanted.contains(&(file, p)));
            near(page.saturating_sub(gap)..page) && near(page + 1..page + 1 + gap)
        };
        prop_assert!(read.iter().filter(|page| !wanted.contains(page)).all(is_near));
        // Nothing that is needed first waits for more than its window and the gaps of those before.
        let longest = sequence.reads.iter().map(|r| r.extent.len).max().unwrap_or(0);
        for (at, page) in wanted.iter().enumerate() {
            let before = read.iter().position(|p| p == page).expect("read") as u64;
            prop_assert!(before <= (at as u64 + window.max(longest)) * (1 + gap.saturating_sub(1)));
        }
        if gap == 0 && window == 1 {
            prop_assert_eq!(read, wanted);
        }
    }

    #[test]
    fn sorted_prefetch_follows_the_device(all in accesses(), places in shuffled_blocks()) {
        let (map, oracle) = block_map(&places);
        let mut sequence = extract(&[recording(Source::Accesses, all)]);
        let before = held(&sequence);
        sequence.locate(&map, PAGE);
        prop_assert_eq!(&held(&sequence), &before);
        let address = |page: &Page| {
            let block = oracle.iter().position(|known| *known == Some(*page));
            block.map(|block| block as u64 * PAGE)
        };
        for read in &sequence.reads {
            let of = pages([((sequence.files[read.file as usize].file.inode - 100) as u32, read.extent)]);
            for (page, at) in of.iter().zip(0..) {
                prop_assert_eq!(address(page), read.address_bytes.map(|a| a + at * PAGE));
            }
        }
        let params = LaunchParams { n_rawseq: 1, merge_gap_pages: 0, ..LaunchParams::default() };
        let made = plan(&sequence, LaunchOrder::Lba, LaunchStart::Before, &params, LIMITS);
        let params = LaunchParams { merge_window_pages: 1, merge_windows_max: u64::MAX, ..params };
        let alone = plan(&sequence, LaunchOrder::Lba, LaunchStart::Before, &params, LIMITS);
        let read = read(&alone);
        prop_assert!(read.is_sorted_by_key(|page| (address(page).is_none(), address(page))));
        prop_assert_eq!(distinct(&read), distinct(&before));
        prop_assert_eq!(made.pages(), before.len() as u64);
    }

    #[test]
    fn the_block_map_says_what_every_block_holds(
        places in shuffled_blocks(),
        requests in prop::collection::vec((0..BLOCKS, 0..40u64), 1..8),
    ) {
        let (map, oracle) = block_map(&places);
        for (start, len) in requests {
            let pieces = map.look_up(&request(start, len, Issuer::Launch));
            let blocks: u64 = pieces.iter().map(|p| p.len_bytes / PAGE).sum();
            prop_assert_eq!(blocks, len);
            let mut block = start;
            for piece in pieces {
                for at in 0..piece.len_bytes / PAGE {
                    let held = piece.content.map(|c| {
                        (c.file.expect("a file"), c.offset_bytes / PAGE + at)
                    });
                    let expected = oracle.get(block as usize).copied().flatten();
                    prop_assert_eq!(held, expected);
                    block += 1;
                }
            }
        }
    }

    #[test]
    fn every_path_is_looked_up_once(calls in path_calls(), threads in 1..5usize) {
        let chosen = replays(&calls);
        let looked_up = |path: &str, of: &str| {
            of == path || of.starts_with(&format!("{}/", path.trim_end_matches('/')))
        };
        for call in &calls {
            prop_assert!(chosen.iter().any(|r| looked_up(&call.path, &r.path)));
            let lists = |r: &PathReplay| r.path == call.path && r.read == PathRead::ReadDir;
            prop_assert!(call.kind != CallKind::ReadDir || chosen.iter().any(lists));
        }
        for replay in &chosen {
            let is_implied = |other: &PathReplay| {
                other.path != replay.path && looked_up(&replay.path, &other.path)
            };
            prop_assert!(replay.read == PathRead::ReadDir || !chosen.iter().any(is_implied));
            // As much as the strongest of its calls, and no more.
            let of = calls.iter().filter(|c| c.path == replay.path).map(|c| match c.kind {
                CallKind::ReadLink => PathRead::ReadLink,
                CallKind::ReadDir => PathRead::ReadDir,
                _ => PathRead::Stat,
            });
            prop_assert_eq!(of.max(), Some(replay.read));
        }
        let first = |r: &PathReplay| calls.iter().position(|c| c.path == r.path);
        prop_assert!(chosen.windows(2).all(|pair| first(&pair[0]) < first(&pair[1])));
        let shares = split(&chosen, threads);
        prop_assert!(shares.len() <= threads);
        let dealt = (0..chosen.len()).map(|at| &shares[at % shares.len()][at / shares.len()]);
        prop_assert!(dealt.eq(&chosen));
        prop_assert_eq!(shares.iter().map(Vec::len).sum::<usize>(), chosen.len());
    }
}

fn path_calls() -> impl Strategy<Value = Vec<PathCall>> {
    use CallKind::{Exec, Open, ReadDir, ReadLink, Stat};
    let kind = prop::sample::select(vec![Open, Stat, ReadDir, ReadLink, Exec]);
    let path = prop::collection::vec(prop::sample::select(vec!["a", "ab", "b"]), 0..4);
    let call = (kind, path, any::<bool>()).prop_map(|(kind, names, is_found)| PathCall {
        kind,
        path: format!("/{}", names.join("/")).into(),
        is_found,
    });
    prop::collection::vec(call, 0..30)
}

const BLOCKS: u64 = 250;
const VOLUME: Volume = Volume {
    device: (8, 0),
    start_bytes: 0,
};

fn request(start: u64, len: u64, issuer: Issuer) -> BlockRequest {
    BlockRequest {
        device: VOLUME.device,
        start_bytes: start * PAGE,
        len_bytes: len * PAGE,
        is_write: false,
        issuer,
        completed_us: None,
    }
}

/// Runs of files' pages at places on the device, which may overlap: the first to come has a block.
fn shuffled_blocks() -> impl Strategy<Value = Vec<(u32, u64, u64, u64)>> {
    let extent = (0..FILES, 0..FILE_PAGES, 0..BLOCKS - 20, 1..20u64);
    prop::collection::vec(extent, 0..12).prop_map(|extents| {
        // No page of a file is in two of its extents.
        let mut taken = BTreeSet::new();
        let is_new = |&(file, page, _, len): &(u32, u64, u64, u64)| {
            let pages: Vec<_> = (page..page + len).map(|page| (file, page)).collect();
            let is_new = pages.iter().all(|page| !taken.contains(page));
            taken.extend(is_new.then_some(pages).into_iter().flatten());
            is_new
        };
        extents.into_iter().filter(is_new).collect()
    })
}

fn block_map(extents: &[(u32, u64, u64, u64)]) -> (BlockMap, Vec<Option<Page>>) {
    let (mut map, mut oracle) = (BlockMap::default(), vec![None; BLOCKS as usize]);
    for name in 0..FILES {
        let of: Vec<_> = extents.iter().filter(|e| e.0 == name).collect();
        let fiemap = of.iter().map(|&&(_, page, block, len)| FileExtent {
            logical_bytes: page * PAGE,
            physical_bytes: block * PAGE,
            len_bytes: len * PAGE,
        });
        let fiemap: Vec<_> = fiemap.collect();
        map.insert_file(VOLUME, file(name), BlockKind::File, &fiemap);
        for &&(_, page, block, len) in &of {
            for at in 0..len {
                let known: &mut Option<Page> = &mut oracle[(block + at) as usize];
                *known = known.or(Some((name, page + at)));
            }
        }
    }
    (map, oracle)
}

/// A launch of three files and a directory on a volume with a journal and blocks of others.
fn traced_launch() -> (Recording, BlockMap) {
    let mut map = BlockMap::default();
    let one = |page: u64, block: u64, len: u64| FileExtent {
        logical_bytes: page * PAGE,
        physical_bytes: block * PAGE,
        len_bytes: len * PAGE,
    };
    map.insert_file(VOLUME, file(0), BlockKind::File, &[one(0, 10, 40)]);
    map.insert_file(VOLUME, file(1), BlockKind::File, &[one(0, 60, 20)]);
    let rewritten = FileId {
        mtime_ns: 1_000,
        ..file(2)
    };
    map.insert_file(
        VOLUME,
        rewritten.clone(),
        BlockKind::File,
        &[one(0, 90, 10)],
    );
    map.insert_file(VOLUME, file(3), BlockKind::Directory, &[one(0, 120, 1)]);
    map.insert(VOLUME, 200 * PAGE, 10 * PAGE, BlockKind::Journal);
    let access = |file, start, len| Access {
        file,
        extent: Extent::new(start, len),
        at_us: 0,
        is_demanded: true,
        is_certain: true,
    };
    let mut seen = recording(
        Source::Accesses,
        vec![access(0, 0, 8), access(1, 0, 4), access(2, 0, 2)],
    );
    seen.files[2] = rewritten;
    (seen, map)
}

#[test]
fn misses_are_shown_in_the_papers_classes() {
    let (mut seen, map) = traced_launch();
    let mut known = seen.clone();
    known.files.truncate(1);
    known.bound();
    let sequence = extract(&[known]);
    seen.requests = vec![
        // In the sequence, or the prefetch's: no misses.
        request(10, 8, Issuer::Launch),
        request(60, 4, Issuer::Prefetcher),
        // Read around by the launch: nobody waited for it.
        request(30, 4, Issuer::Launch),
        request(240, 1, Issuer::Other),
        request(30, 4, Issuer::Other),
        request(202, 1, Issuer::Launch),
        request(90, 2, Issuer::Launch),
        request(60, 4, Issuer::Launch),
    ];
    let counted = misses::from_requests(&seen, &map, &sequence, 500, PAGE);
    let expected = Misses {
        daemons: Some(2),
        journal: Some(1),
        swap: Some(0),
        transient: 1,
        others: 1,
        sequence_requests: 1,
    };
    assert_eq!(counted, expected);
    assert!((counted.ratio() - 5.0).abs() < 1e-9 && (counted.update_ratio() - 1.0).abs() < 1e-9);
    // What shows in neither view is not known: that is not none.
    let by_accesses = Misses {
        daemons: None,
        journal: None,
        swap: None,
        ..expected
    };
    assert_eq!(misses::from_accesses(&seen, &sequence, 500), by_accesses);
    let mut map = map;
    map.lacks(BlockKind::Swap);
    let by_requests = Misses {
        swap: None,
        ..expected
    };
    let counted = misses::from_requests(&seen, &map, &sequence, 500, PAGE);
    assert_eq!((counted, counted.all()), (by_requests, 5));
}

#[test]
fn the_last_block_is_the_last_that_was_read_for_the_launch() {
    let mut seen = recording(Source::Accesses, Vec::new());
    let completed = |issuer, at_us| BlockRequest {
        completed_us: at_us,
        ..request(0, 1, issuer)
    };
    assert_eq!(seen.last_block_us(), None);
    seen.requests = vec![
        completed(Issuer::Launch, Some(20)),
        completed(Issuer::Prefetcher, Some(30)),
        completed(Issuer::Other, Some(70)),
        completed(Issuer::Launch, None),
        BlockRequest {
            is_write: true,
            ..completed(Issuer::Launch, Some(90))
        },
    ];
    assert_eq!(seen.last_block_us(), Some(30));
}

#[test]
fn what_a_fault_maps_along_is_not_missed() {
    let access = |start, is_certain| Access {
        file: 0,
        extent: Extent::new(start, 4),
        at_us: start,
        is_demanded: true,
        is_certain,
    };
    let sequence = extract(&[recording(Source::Accesses, vec![access(0, true)])]);
    let others = |is_certain| {
        let accesses = vec![access(0, true), access(4, is_certain)];
        misses::from_accesses(&recording(Source::Accesses, accesses), &sequence, 500).others
    };
    assert_eq!((others(false), others(true)), (0, 1));
}

#[test]
fn what_two_reads_of_the_sequence_hold_together_is_not_missed() {
    let access = |start, len, at_us| Access {
        file: 0,
        extent: Extent::new(start, len),
        at_us,
        is_demanded: true,
        is_certain: true,
    };
    let parts = vec![access(4, 4, 1), access(0, 4, 2)];
    let sequence = extract(&[recording(Source::Accesses, parts)]);
    assert_eq!(sequence.reads.len(), 2);
    let others = |len| {
        let seen = recording(Source::Accesses, vec![access(0, len, 1)]);
        misses::from_accesses(&seen, &sequence, 500).others
    };
    assert_eq!((others(8), others(9)), (0, 1));
}

#[test]
fn whole_files_are_read_from_beginning_to_end_and_nothing_where_the_order_is_none() {
    let access = |file, start| Access {
        file,
        extent: Extent::new(start, 2),
        at_us: 0,
        is_demanded: true,
        is_certain: true,
    };
    let sequence = extract(&[recording(
        Source::Accesses,
        vec![access(2, 9), access(0, 3), access(2, 1)],
    )]);
    let params = LaunchParams {
        n_rawseq: 1,
        ..LaunchParams::default()
    };
    let whole = plan(
        &sequence,
        LaunchOrder::WholeFiles,
        LaunchStart::Together,
        &params,
        LIMITS,
    );
    let all = |name| (0..FILE_PAGES).map(move |page| (name, page));
    assert_eq!(read(&whole), all(2).chain(all(0)).collect::<Vec<_>>());
    let none = plan(
        &sequence,
        LaunchOrder::None,
        LaunchStart::Together,
        &params,
        LIMITS,
    );
    assert!(none.is_empty());
}

#[test]
fn a_launch_is_over_after_t_idle_or_t_timeout() {
    let params = LaunchParams::default();
    assert_eq!(deadline(500_000, &params), (2_500_000, LaunchEnd::Idle));
    assert_eq!(
        deadline(29_000_000, &params),
        (30_000_000, LaunchEnd::Timeout)
    );
}

#[test]
fn the_length_of_a_launch_is_known_but_where_insertions_show_that_it_is_idle() {
    let ends = [
        LaunchEnd::Exit,
        LaunchEnd::Settled,
        LaunchEnd::Idle,
        LaunchEnd::Timeout,
    ];
    let known = |source| ends.map(|end| end.is_of_length(source));
    assert_eq!(known(Source::Accesses), [true; 4]);
    assert_eq!(known(Source::Insertions), [true, true, false, true]);
}

#[test]
fn huge_and_wrong_extents_are_bounded() {
    let huge = |file, start, len| Access {
        file,
        extent: Extent::new(start, len),
        at_us: 0,
        is_demanded: true,
        is_certain: true,
    };
    let all = vec![
        huge(0, 0, u64::MAX),
        huge(9, 3, 1),
        huge(1, u64::MAX, u64::MAX),
        huge(1, 0, 9),
    ];
    let mut seen = recording(Source::Accesses, all);
    seen.bound();
    let pages: u64 = seen.accesses.iter().map(|a| a.extent.len).sum();
    assert!(pages <= prepage_core::launch::recording::PAGES_MAX);
    assert!(seen.accesses.iter().all(|a| a.file < FILES));
    let sequence = extract(&[seen]);
    let params = LaunchParams {
        n_rawseq: 1,
        budget_bytes: 10 * PAGE,
        ..LaunchParams::default()
    };
    let made = plan(
        &sequence,
        LaunchOrder::Launch,
        LaunchStart::Together,
        &params,
        LIMITS,
    );
    assert_eq!(made.pages(), 10);
}

/// Page by page: the devices' pages in the order in which they are wanted.
fn metadata_pages(reads: &[MetadataRead]) -> Vec<(u32, u64)> {
    let pages = |r: &MetadataRead| {
        let device = r.device.1;
        (r.extent.start..r.extent.end()).map(move |page| (device, page))
    };
    reads.iter().flat_map(pages).collect()
}

proptest! {
    #[test]
    fn metadata_comes_once_where_it_is_wanted_first_in_calls_within_its_bounds(
        wanted in prop::collection::vec((0..2u32, 0..80u64, 0..6u64), 0..40),
        pages_max in 0..200u64,
        call_pages in 0..6u64,
    ) {
        let read = |&(minor, start, len): &(u32, u64, u64)| MetadataRead {
            device: (8, minor),
            extent: Extent::new(start, len),
        };
        let wanted: Vec<MetadataRead> = wanted.iter().map(read).collect();
        let reads = metadata::in_order(&wanted);
        let (asked, read) = (metadata_pages(&wanted), metadata_pages(&reads));
        let (needed, distinct): (BTreeSet<_>, BTreeSet<_>) =
            (asked.iter().copied().collect(), read.iter().copied().collect());
        prop_assert_eq!(distinct.len(), read.len(), "a page twice");
        prop_assert_eq!(&distinct, &needed);
        // Neighbours are read as one.
        let is_within = |device, page| {
            let mut around = reads.iter().filter(|r| r.device.1 == device);
            around.any(|r| r.extent.start <= page && page + 1 < r.extent.end())
        };
        for &(device, page) in &needed {
            prop_assert!(!needed.contains(&(device, page + 1)) || is_within(device, page));
        }
        // An extent comes where the first of its pages is wanted.
        let first = |r: &MetadataRead| {
            let pages = metadata_pages(&[*r]);
            asked.iter().position(|page| pages.contains(page))
        };
        prop_assert!(reads.iter().map(first).is_sorted());

        let calls = metadata::calls(&reads, pages_max, call_pages);
        let called = metadata_pages(&calls);
        prop_assert_eq!(&called[..], &read[..read.len().min(pages_max as usize)]);
        prop_assert!(calls.iter().all(|call| (1..=call_pages.max(1)).contains(&call.extent.len)));
    }
}
