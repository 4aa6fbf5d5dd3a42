//! Extent sets, run maps, histories and calibrations against naive oracles, page by page.

use prepage_core::extent::{Extent, ExtentSet};
use prepage_core::history::{Calibration, HISTORY_LEN, History};
use prepage_core::run_map::RunMap;
use proptest::prelude::*;
use std::collections::{BTreeMap, BTreeSet};

/// Page numbers below this: small, so that extents meet.
const PAGES: u64 = 120;

fn extents() -> impl Strategy<Value = Vec<Extent>> {
    let extent = (0..PAGES, 0..20u64).prop_map(|(start, len)| Extent::new(start, len));
    prop::collection::vec(extent, 0..12)
}

fn pages(extents: &[Extent]) -> BTreeSet<u64> {
    extents.iter().flat_map(|e| e.start..e.end()).collect()
}

fn sets() -> impl Strategy<Value = (ExtentSet, BTreeSet<u64>)> {
    extents().prop_map(|e| (ExtentSet::from(e.clone()), pages(&e)))
}

/// That `set` is sorted, disjoint, without empty or touching extents, and covers what the oracle holds.
fn check_set(set: &ExtentSet, oracle: &BTreeSet<u64>) {
    assert!(set.extents().iter().all(|e| !e.is_empty()), "{set:?}");
    let in_order = |pair: &[Extent]| pair[0].end() < pair[1].start;
    assert!(set.extents().windows(2).all(in_order), "{set:?}");
    assert!(set.iter_pages().eq(oracle.iter().copied()), "{set:?}");
    assert_eq!(set.pages(), oracle.len() as u64);
    assert_eq!(set.is_empty(), oracle.is_empty());
}

proptest! {
    #[test]
    fn what_is_counted_is_found((_, held) in sets(), start in 0..PAGES, len in 1..40u64) {
        let asked = Extent::new(start, len);
        let count = |part: Extent| held.range(part.start..part.end()).count() as u64;
        let within = held.range(start..asked.end()).copied().collect();
        check_set(&asked.counted(&count), &within);
    }

    #[test]
    fn a_set_is_its_pages(listed in prop::collection::vec(0..PAGES, 0..60)) {
        check_set(&ExtentSet::from_pages(listed.clone()), &listed.into_iter().collect());
    }

    #[test]
    fn any_extents_make_a_set(listed in extents()) {
        let oracle = pages(&listed);
        check_set(&listed.iter().copied().collect(), &oracle);
        let set = ExtentSet::from(listed);
        check_set(&set, &oracle);
        prop_assert_eq!(&ExtentSet::from(Vec::from(set.clone())), &set);
        let mut contains_ascending = set.contains_ascending();
        for page in 0..PAGES + 30 {
            prop_assert_eq!(set.contains(page), oracle.contains(&page));
            prop_assert_eq!(contains_ascending(page), oracle.contains(&page));
        }
    }

    #[test]
    fn sets_combine_page_by_page((a, pages_a) in sets(), (b, pages_b) in sets()) {
        check_set(&a.union(&b), &(&pages_a | &pages_b));
        check_set(&a.intersection(&b), &(&pages_a & &pages_b));
        prop_assert_eq!(a.common_pages(&b), (&pages_a & &pages_b).len() as u64);
        check_set(&a.difference(&b), &(&pages_a - &pages_b));
    }

    #[test]
    fn truncation_keeps_the_pages_below((set, pages) in sets(), end in 0..PAGES + 30) {
        check_set(&set.truncated(end), &pages.into_iter().filter(|&p| p < end).collect());
    }

    #[test]
    fn pushing_in_order_keeps_every_page(steps in prop::collection::vec((0..5u64, 0..9u64), 0..20)) {
        let (mut set, mut oracle, mut end) = (ExtentSet::new(), BTreeSet::new(), 0);
        for (gap, len) in steps {
            let extent = Extent::new(end + gap, len);
            set.push_back(extent);
            oracle.extend(extent.start..extent.end());
            end = set.extents().last().map_or(0, Extent::end);
        }
        check_set(&set, &oracle);
    }

    #[test]
    fn merging_fills_the_short_gaps_without_bars(
        (set, wanted) in sets(),
        (barred, bars) in sets(),
        gap_max in 0..24u64,
    ) {
        let (merged, gap_pages) = set.merged(gap_max, &barred);
        let mut oracle = wanted.clone();
        let listed: Vec<u64> = wanted.iter().copied().collect();
        for pair in listed.windows(2) {
            let gap = pair[0] + 1..pair[1];
            if gap.end - gap.start < gap_max && !gap.clone().any(|p| bars.contains(&p)) {
                oracle.extend(gap);
            }
        }
        check_set(&merged, &oracle);
        prop_assert_eq!(gap_pages, (oracle.len() - wanted.len()) as u64);
        prop_assert!(merged.difference(&set).intersection(&barred).is_empty());
    }

    #[test]
    fn the_end_of_the_page_numbers_is_cut(
        starts in prop::collection::vec((0..40u64, 0..60u64), 0..8),
        below in 0..50u64,
    ) {
        let extent = |&(back, len): &(u64, u64)| Extent::new(u64::MAX - back, len);
        let listed: Vec<Extent> = starts.iter().map(extent).collect();
        let oracle = pages(&listed);
        let set = ExtentSet::from(listed);
        check_set(&set, &oracle);
        check_set(&ExtentSet::from_pages(oracle.iter().copied().chain([u64::MAX]).collect()), &oracle);
        let other = ExtentSet::from(vec![Extent::new(u64::MAX - below, 2 * below)]);
        check_set(&set.union(&other), &(&oracle | &other.iter_pages().collect()));
        check_set(&set.difference(&other), &(&oracle - &other.iter_pages().collect()));
    }
}

#[test]
fn one_extent_may_cut_many() {
    let set = ExtentSet::from(vec![
        Extent::new(0, 4),
        Extent::new(6, 4),
        Extent::new(12, 4),
    ]);
    let cut = ExtentSet::from(vec![Extent::new(2, 11)]);
    check_set(&set.difference(&cut), &[0, 1, 13, 14, 15].into());
}

#[test]
#[should_panic(expected = "in order")]
fn pushing_out_of_order_is_the_callers_fault() {
    let mut set = ExtentSet::from(vec![Extent::new(10, 5)]);
    set.push_back(Extent::new(3, 2));
}

/// A change of values that depends on the old value only, as the estimators' do.
#[derive(Clone, Debug)]
enum Change {
    Set(u8),
    Clear,
    InsertMissing(u8),
    Halve,
    KeepOnly(u8),
}

impl Change {
    fn apply(&self, old: Option<u8>) -> Option<u8> {
        match *self {
            Self::Set(value) => Some(value),
            Self::Clear => None,
            Self::InsertMissing(value) => old.or(Some(value)),
            Self::Halve => old.map(|v| v / 2),
            Self::KeepOnly(value) => old.filter(|&v| v == value),
        }
    }
}

fn changes() -> impl Strategy<Value = Change> {
    prop_oneof![
        (0..5u8).prop_map(Change::Set),
        Just(Change::Clear),
        (0..5u8).prop_map(Change::InsertMissing),
        Just(Change::Halve),
        (0..5u8).prop_map(Change::KeepOnly),
    ]
}

/// Pages before the first that the maps below are tried on: a block of the map ends among those.
const BEFORE: u64 = (1 << 16) - PAGES / 2;

/// `map` maps what `oracle` says, [`BEFORE`] pages further on.
fn check_map(map: &RunMap<u8>, oracle: &BTreeMap<u64, u8>) {
    let back = |(e, v): (Extent, u8)| (Extent::new(e.start - BEFORE, e.len), v);
    let runs: Vec<(Extent, u8)> = map.iter().map(back).collect();
    assert_eq!(runs.len(), map.runs());
    assert!(runs.iter().all(|(e, _)| !e.is_empty()), "{runs:?}");
    for pair in runs.windows(2) {
        let ((a, value_a), (b, value_b)) = (pair[0], pair[1]);
        let coalesced = a.end() < b.start
            || (a.end() == b.start && (value_a != value_b || b.start == PAGES / 2));
        assert!(coalesced, "{runs:?}");
    }
    let listed = runs
        .iter()
        .flat_map(|&(e, v)| (e.start..e.end()).map(move |p| (p, v)));
    assert!(listed.eq(oracle.iter().map(|(&p, &v)| (p, v))), "{runs:?}");
    assert_eq!(map.pages(), oracle.len() as u64);
    assert_eq!(map.is_empty(), oracle.is_empty());
    for page in 0..PAGES + 30 {
        assert_eq!(map.get(BEFORE + page), oracle.get(&page).copied());
    }
    assert_eq!(map.get(BEFORE - 1), None);
    for value in 0..5 {
        let pages = oracle.iter().filter(|&(_, &v)| v == value);
        let pages = pages.map(|(&p, _)| BEFORE + p);
        check_set(&map.pages_where(|v| v == value), &pages.collect());
    }
}

proptest! {
    #[test]
    fn a_run_map_is_a_map_of_pages(
        steps in prop::collection::vec((extents(), changes()), 0..14),
    ) {
        let mut map: RunMap<u8> = RunMap::default();
        let mut oracle: BTreeMap<u64, u8> = BTreeMap::new();
        for (extents, change) in steps {
            let set = ExtentSet::from(extents);
            let mut counted: BTreeMap<Option<u8>, u64> = BTreeMap::new();
            let further = set.extents().iter();
            let further = further.map(|e| Extent::new(BEFORE + e.start, e.len));
            let further: ExtentSet = further.collect();
            let within = map.within(&further);
            let within = within.flat_map(|(e, v)| (e.start..e.end()).map(move |p| (p - BEFORE, v)));
            let value = |page| Some((page, *oracle.get(&page)?));
            let values = set.iter_pages().filter_map(value);
            prop_assert!(within.eq(values));
            map.update(&further, |old, pages| {
                *counted.entry(old).or_default() += pages;
                change.apply(old)
            });
            let mut expected: BTreeMap<Option<u8>, u64> = BTreeMap::new();
            for page in set.iter_pages() {
                let old = oracle.remove(&page);
                *expected.entry(old).or_default() += 1;
                oracle.extend(change.apply(old).map(|new| (page, new)));
            }
            prop_assert_eq!(counted, expected);
            check_map(&map, &oracle);
        }
    }
}

#[test]
fn a_run_longer_than_a_block_is_split_and_nothing_is_lost() {
    let len = (1 << 17) + 7;
    let all = ExtentSet::from(vec![Extent::new(5, len)]);
    let mut map = RunMap::default();
    map.update(&all, |_, _| Some(1u8));
    assert_eq!((map.pages(), map.runs()), (len, 3));
    assert_eq!(map.pages_where(|_| true), all);
    let middle = ExtentSet::from(vec![Extent::new(1 << 15, 1 << 16)]);
    map.update(&middle, |old, _| old.map(|v| v + 1));
    assert_eq!(map.pages_where(|v| v == 2), middle);
    assert_eq!(map.pages(), len);
    assert_eq!(map.get(5 + len), None);
    map.update(&all, |_, _| None);
    assert!(map.is_empty());
}

proptest! {
    #[test]
    fn a_history_is_the_last_seven_observations(seen in prop::collection::vec(any::<bool>(), 0..30)) {
        let history = seen.iter().fold(History::EMPTY, |h, &used| h.with(used));
        let kept = &seen[seen.len().saturating_sub(HISTORY_LEN as usize)..];
        prop_assert_eq!(history.len() as usize, kept.len());
        prop_assert_eq!(history.is_empty(), kept.is_empty());
        prop_assert_eq!(history.used() as usize, kept.iter().filter(|&&used| used).count());
        // Below a bit that marks their number.
        prop_assert_eq!(history.class(), kept.iter().fold(1, |bits, &used| bits << 1 | usize::from(used)));
        let again = kept.iter().fold(History::EMPTY, |h, &used| h.with(used));
        prop_assert_eq!(again, history, "what is older leaves no trace");
    }

    #[test]
    fn a_probability_is_one_and_nears_the_measured_ratio(
        counts in prop::collection::vec((prop::collection::vec(any::<bool>(), 0..7), any::<bool>(), 0..1u64 << 40), 0..40),
        keeps in prop::collection::vec(0.0..=1.0f32, 0..10),
    ) {
        let mut calibration = Calibration::default();
        let mut keeps = keeps.into_iter().cycle();
        for (seen, used, pages) in &counts {
            let history = seen.iter().fold(History::EMPTY, |h, &used| h.with(used));
            let mut shown = Calibration::default();
            shown.count(history, *used, *pages);
            calibration.add(&shown, keeps.next().unwrap_or(1.0));
        }
        prop_assert!(calibration.is_valid());
        for (seen, ..) in &counts {
            let history = seen.iter().fold(History::EMPTY, |h, &used| h.with(used));
            prop_assert!((0.0..=1.0).contains(&calibration.probability(history)));
        }
    }

    #[test]
    fn a_measured_ratio_outweighs_the_prior(used in 0..10_000u64, unused in 0..10_000u64, first in any::<bool>()) {
        prop_assume!(used + unused > 2_000);
        let history = History::EMPTY.with(first);
        let mut calibration = Calibration::default();
        calibration.count(history, true, used);
        calibration.count(history, false, unused);
        let ratio = used as f32 / (used + unused) as f32;
        prop_assert!((calibration.probability(history) - ratio).abs() < 0.01);
    }
}

#[test]
fn what_a_switch_shows_nothing_of_is_as_it_was() {
    let (one, other) = (History::EMPTY.with(true), History::EMPTY.with(false));
    let mut known = Calibration::default();
    known.count(one, true, 1_000);
    known.count(one, false, 4_000);
    let mut shown = Calibration::default();
    known.add(&shown, 0.0);
    assert!(
        known.probability(one) < 0.21,
        "a switch that showed nothing"
    );
    shown.count(other, true, 1_000);
    known.add(&shown, 0.0);
    assert!(known.probability(one) < 0.21, "one that showed others");
    assert!(known.probability(other) > 0.98);
    shown.count(one, true, 1_000);
    known.add(&shown, 0.0);
    assert!(known.probability(one) > 0.98, "one that showed them");
}

#[test]
fn more_use_in_the_past_is_a_higher_prior() {
    let calibration = Calibration::default();
    let history = |seen: &[bool]| seen.iter().fold(History::EMPTY, |h, &used| h.with(used));
    let of = |seen: &[bool]| calibration.probability(history(seen));
    assert!(of(&[true, true]) > of(&[true]));
    assert!(of(&[true]) > of(&[]));
    assert!(of(&[]) > of(&[false]));
    assert!(of(&[false]) > of(&[false, false]));
}
