//! The order of a run: blocks that hold every mode once, pairs of them each in a seeded random order and its reverse, and
//! what is gone through between them. Pure.

use crate::random::Random;
use crate::record::{Mode, Parameters, Setting, Slot};
use crate::statistics::SAMPLES_MIN;
use std::ops::Range;

/// A slot, and which of the applications that run at once it is of.
pub type Turn = (usize, Slot);

/// What is measured, and where need be repeated, as a whole: together, a round, since what is out of memory at a switch
/// is what those before it have pushed out; else one switch.
pub type Round = Vec<Turn>;

/// Every slot of applications that run at once, in order.
pub fn rounds(parameters: &Parameters, apps: &[&str]) -> Vec<Round> {
    match parameters.setting {
        Setting::Together => through_sequences(parameters, apps),
        Setting::Reclaimed | Setting::Pressure => {
            let slots = apps.iter().map(|app| slots(parameters, app)).enumerate();
            slots
                .flat_map(|(index, slots)| slots.into_iter().map(move |slot| vec![(index, slot)]))
                .collect()
        }
    }
}

fn slot(app: &str, block: u32, order: usize, mode: Mode) -> Slot {
    Slot {
        app: app.to_owned(),
        block,
        order: order as u32,
        mode,
        position: None,
        attempt: 0,
    }
}

/// A round of applications together: each slot says at which place of it it is.
fn in_turn(mut round: Round) -> Round {
    for (position, (_, slot)) in (0..).zip(&mut round) {
        slot.position = Some(position);
    }
    round
}

/// Every slot of an application, in order.
fn slots(parameters: &Parameters, app: &str) -> Vec<Slot> {
    let of_block = |block| {
        let modes = modes(parameters, &[app], block).into_iter().enumerate();
        modes.map(move |(order, mode)| slot(app, block, order, mode))
    };
    let blocks = (0..parameters.samples).chain(stall_blocks(parameters));
    blocks.flat_map(of_block).collect()
}

/// The first of the blocks in which the longest single waits are measured.
const FIRST_STALL_BLOCK: u32 = 1 << 15;

/// The first of the blocks that are gone through for what prepage learns from them.
const FIRST_SEEN_BLOCK: u32 = 1 << 16;

/// The first of the blocks that are gone through for the state in which they leave memory.
const FIRST_SETTLING_BLOCK: u32 = 1 << 17;

/// The blocks in which the longest single waits are measured: of their own, since that makes each fault dearer.
fn stall_blocks(parameters: &Parameters) -> Range<u32> {
    FIRST_STALL_BLOCK..FIRST_STALL_BLOCK + parameters.stall_blocks
}

/// Whether a switch is there for its longest single waits, and is no sample.
pub fn is_for_stalls(slot: &Slot) -> bool {
    (FIRST_STALL_BLOCK..FIRST_SEEN_BLOCK).contains(&slot.block)
}

/// Launches of each application: the fewest that have an interval, since each takes some seconds.
const LAUNCHES_MAX: u32 = SAMPLES_MIN as u32;

/// The launches of an application, in order. They are in no order with its switches: all come before these.
pub fn launches(parameters: &Parameters, app: &str) -> Vec<Slot> {
    let count = match parameters.modes.contains(&Mode::Launch) {
        true => parameters.samples.min(LAUNCHES_MAX),
        false => 0,
    };
    (0..count)
        .map(|block| slot(app, block, 0, Mode::Launch))
        .collect()
}

/// The modes in the order that they have in a block of these applications. Each application has orders of its own, where
/// each has switches of its own.
fn modes(parameters: &Parameters, apps: &[&str], block: u32) -> Vec<Mode> {
    let mut modes = parameters.modes.clone();
    modes.retain(|mode| *mode != Mode::Launch);
    let purpose = format!("modes {}", apps.join(","));
    Random::in_block(parameters.seed, &purpose, block, &modes)
}

/// The orders in which so many applications are gone through, as their indices (ASAP's Table 3 has three such).
fn sequences(parameters: &Parameters, apps: usize) -> Vec<Vec<usize>> {
    let sequence = |number| {
        let mut order: Vec<usize> = (0..apps).collect();
        Random::stream(parameters.seed, &format!("sequence {number}")).shuffle(&mut order);
        order
    };
    (0..parameters.sequences).map(sequence).collect()
}

/// Every round of a run of applications together, in order: each goes through a sequence once, in one mode; a block has
/// one round of each mode. Each block begins its sequence one application later, so that every application comes by at
/// every position: what a round finds first is not what it finds last.
fn through_sequences(parameters: &Parameters, apps: &[&str]) -> Vec<Round> {
    let sequences = sequences(parameters, apps.len());
    let each = |sequence| std::iter::repeat_n(sequence, parameters.rounds as usize);
    let samples = (0..).zip(sequences.iter().flat_map(each));
    let for_stalls = stall_blocks(parameters).zip(sequences.iter().cycle());
    let mut all = Vec::new();
    for (block, sequence) in samples.chain(for_stalls) {
        let mut sequence = sequence.clone();
        sequence.rotate_left(block as usize % apps.len());
        for (order, mode) in modes(parameters, apps, block).into_iter().enumerate() {
            let turn = |&index: &usize| (index, slot(apps[index], block, order, mode));
            all.push(in_turn(sequence.iter().map(turn).collect()));
        }
    }
    all
}

/// What a round is gone through for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Purpose {
    /// What prepage learns from it.
    Learn,
    /// The state in which it leaves memory. It is not recorded.
    Settle,
    /// Its samples.
    Measure,
}

/// One round of a run, with all that is between the measured ones.
#[derive(Clone, Debug, PartialEq)]
pub struct Step {
    /// What it is gone through for.
    pub purpose: Purpose,
    /// The round.
    pub round: Round,
}

/// All that these applications, which run at once, go through for these rounds, in order.
pub fn steps(parameters: &Parameters, apps: &[&str], left: &[Round]) -> Vec<Step> {
    let step = |purpose| move |round| Step { purpose, round };
    if left.is_empty() {
        return Vec::new();
    }
    let learned = warmups(parameters, apps).into_iter();
    let mut steps: Vec<Step> = learned.map(step(Purpose::Learn)).collect();
    for (number, round) in left.iter().enumerate() {
        let before = steps.last().map(|step| &step.round);
        let settling = settling_round(parameters, before, round);
        steps.extend(settling.map(step(Purpose::Settle)));
        steps.push(step(Purpose::Measure)(round.clone()));
        let next = left.get(number + 1).unwrap_or(round);
        let seen = seen_round(parameters, round, next);
        steps.extend(seen.map(step(Purpose::Learn)));
    }
    steps
}

/// The mode of a round's switches.
fn mode_of(round: &Round) -> Mode {
    round[0].1.mode
}

/// The mode whose switches leave memory as those of this one do: one in which prepage only watches reclaims nothing ahead.
fn as_leaving(mode: Mode) -> Mode {
    match mode {
        Mode::Observe => Mode::Off,
        mode => mode,
    }
}

/// The round to be gone through before this one, after the one before, where that leaves memory otherwise than this one
/// itself does: what its first switches find is to be what they find where its mode is always in force, and not what prepage
/// reclaimed ahead in another one. Nor is an application used more recently than its sequence has it.
///
/// Before a round that is gone through again, nothing counts as `before`: its applications were left for the round after it.
pub fn settling_round(
    parameters: &Parameters,
    before: Option<&Round>,
    round: &Round,
) -> Option<Round> {
    let mode = as_leaving(mode_of(round));
    let order = |round: &Round| round.iter().map(|(index, _)| *index).collect::<Vec<_>>();
    let is_alike =
        |before: &Round| as_leaving(mode_of(before)) == mode && order(before) == order(round);
    let is_needed = parameters.settles && !before.is_some_and(is_alike);
    is_needed.then(|| of_another_block(round, FIRST_SETTLING_BLOCK, mode))
}

/// The same round in another mode, in a block that no sample has: so its choices are others.
fn of_another_block(round: &Round, first_block: u32, mode: Mode) -> Round {
    let turn = |(index, slot): &Turn| {
        let block = first_block + slot.block;
        let slot = Slot {
            block,
            mode,
            ..slot.clone()
        };
        (*index, slot)
    };
    round.iter().map(turn).collect()
}

/// Whether prepage takes part in a run.
fn has_prepage(parameters: &Parameters) -> bool {
    parameters.modes.iter().any(|mode| mode.needs_prepage())
}

/// The switches before the samples of these applications that run at once.
fn warmups(parameters: &Parameters, apps: &[&str]) -> Vec<Round> {
    let mode = match has_prepage(parameters) {
        true => parameters.learning_mode(),
        false => Mode::Off,
    };
    let orders = match parameters.setting {
        Setting::Together => sequences(parameters, apps.len()),
        Setting::Reclaimed | Setting::Pressure => vec![vec![0]],
    };
    let blocks = (0..parameters.warmup).zip(orders.iter().cycle());
    let round = |(block, order): (u32, &Vec<usize>)| {
        let turn = |&index: &usize| (index, slot(apps[index], block, 0, mode));
        order.iter().map(turn).collect()
    };
    let rounds = blocks.map(round);
    match parameters.setting {
        Setting::Together => rounds.map(in_turn).collect(),
        Setting::Reclaimed | Setting::Pressure => rounds.collect(),
    }
}

/// The round to be gone through after this one, which prepage did not see, for what it learns from it: helped, in another
/// context than the samples of any block have, and in the order of the round that comes next. `None` where it saw the round,
/// or is not to learn between samples.
fn seen_round(parameters: &Parameters, unseen: &Round, next: &Round) -> Option<Round> {
    let is_seen = mode_of(unseen).needs_prepage();
    if is_seen || !parameters.keeps_learning || !has_prepage(parameters) {
        return None;
    }
    let mut seen = of_another_block(unseen, FIRST_SEEN_BLOCK, parameters.learning_mode());
    seen.sort_by_key(|(index, _)| next.iter().position(|(other, _)| other == index));
    Some(match parameters.setting {
        Setting::Together => in_turn(seen),
        Setting::Reclaimed | Setting::Pressure => seen,
    })
}

/// The choices of one slot: the same for every mode of a block, and for every attempt at it, so that a pair differs in
/// nothing but the mode, whichever of its switches were discarded.
pub fn choices(seed: u64, slot: &Slot, purpose: &str) -> Random {
    let Slot { app, block, .. } = slot;
    Random::stream(seed, &format!("{purpose} {app} {block}"))
}

/// The slots of a round, each with that which its application has next, by which it is left: that of the round that comes
/// next, or of the same round where none does.
pub fn with_next<'a>(
    round: &'a Round,
    next: &'a Round,
) -> impl Iterator<Item = (usize, &'a Slot, &'a Slot)> {
    round.iter().map(|(index, slot)| {
        let next = next.iter().find(|(other, _)| other == index);
        (*index, slot, next.map_or(slot, |(_, next)| next))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::tests::run;
    use std::collections::{HashMap, HashSet};

    #[test]
    fn every_block_holds_every_mode_once_and_orders_differ() {
        let modes = [Mode::Resident, Mode::Off, Mode::Anon, Mode::Full];
        let parameters = Parameters {
            samples: 20,
            ..run(&modes).parameters
        };
        let all = slots(&parameters, "chromium");
        assert_eq!(all, slots(&parameters, "chromium"));
        assert_eq!(all.len(), 80);
        let mut orders = HashSet::new();
        for block in all.chunks(4) {
            let mut order: Vec<Mode> = block.iter().map(|s| s.mode).collect();
            orders.insert(order.clone());
            order.sort_unstable();
            assert_eq!(order, modes);
        }
        assert!(orders.len() > 5);
        assert!(launches(&parameters, "chromium").is_empty(), "nobody asked");
    }

    #[test]
    fn every_mode_comes_before_each_other_one_as_often_as_after_it() {
        let modes = [
            Mode::Resident,
            Mode::Off,
            Mode::Anon,
            Mode::File,
            Mode::Full,
        ];
        let reclaimed = Parameters {
            samples: 8,
            stall_blocks: 4,
            ..run(&modes).parameters
        };
        let taken_out = [Mode::Off, Mode::Anon, Mode::Full];
        let together = together(&taken_out, 6);
        for (parameters, apps) in [(reclaimed, &["gimp"][..]), (together, &EIGHT)] {
            let all = rounds(&parameters, apps);
            for stalls in [true, false] {
                let of_part = all
                    .iter()
                    .map(|round| &round[0].1)
                    .filter(|s| is_for_stalls(s) == stalls);
                let mut places: HashMap<(Mode, u32), u32> = HashMap::new();
                for slot in of_part.clone() {
                    places.insert((slot.mode, slot.block), slot.order);
                }
                let blocks: HashSet<u32> = of_part.map(|slot| slot.block).collect();
                let before = |a, b| {
                    let is_before = |block: &&u32| places[&(a, **block)] < places[&(b, **block)];
                    blocks.iter().filter(is_before).count()
                };
                for &a in &parameters.modes {
                    for &b in parameters.modes.iter().filter(|b| **b != a) {
                        assert_eq!(before(a, b) * 2, blocks.len(), "{a:?} before {b:?}");
                    }
                }
            }
        }
    }

    #[test]
    fn switches_of_a_block_have_the_same_choices_in_every_mode_and_attempt() {
        let draw = |slot: &Slot| choices(1, slot, "context").next_u64();
        let first = slot("gimp", 3, 0, Mode::Off);
        let again = Slot {
            mode: Mode::Full,
            order: 1,
            attempt: 2,
            ..first.clone()
        };
        assert_eq!(draw(&first), draw(&again));
        assert_ne!(draw(&first), draw(&slot("gimp", 4, 0, Mode::Off)));
        assert_ne!(draw(&first), draw(&slot("evince", 3, 0, Mode::Off)));
    }

    #[test]
    fn together_every_application_is_left_for_the_switch_that_it_has_next() {
        let parameters = together(&[Mode::Off, Mode::Full], 4);
        let all = rounds(&parameters, &EIGHT);
        let steps = steps(&parameters, &EIGHT, &all);
        let draw = |slot: &Slot| choices(1, slot, "context").next_u64();
        let mut drawn: HashMap<(usize, u32), HashSet<u64>> = HashMap::new();
        for pair in steps.windows(2) {
            let left: Vec<_> = with_next(&pair[0].round, &pair[1].round).collect();
            assert_eq!(left.len(), 8);
            for (index, slot, next) in left {
                assert_eq!(slot.app, EIGHT[index]);
                assert!(pair[1].round.contains(&(index, next.clone())));
                if measures(&pair[1]) {
                    let of_block = drawn.entry((index, next.block)).or_default();
                    of_block.insert(draw(next));
                }
            }
        }
        assert_eq!(drawn.len(), all.len() / 2 * 8);
        assert!(drawn.values().all(|contexts| contexts.len() == 1));
        let last = &steps[steps.len() - 1].round;
        assert!(with_next(last, last).all(|(_, slot, next)| slot == next));
    }

    #[test]
    fn each_application_has_orders_of_its_own() {
        let parameters = Parameters {
            samples: 20,
            ..run(&[Mode::Off, Mode::Full]).parameters
        };
        let order = |app| slots(&parameters, app).iter().map(|s| s.mode).collect();
        let orders: HashSet<Vec<Mode>> = EIGHT.into_iter().map(order).collect();
        assert!(orders.len() > 4, "{orders:?}");
    }

    #[test]
    fn launches_are_few_and_leave_the_order_of_the_switches_as_it_is() {
        let modes = [Mode::Off, Mode::Full];
        let switches = Parameters {
            samples: 20,
            ..run(&modes).parameters
        };
        let mut asked = switches.clone();
        asked.modes.insert(0, Mode::Launch);
        assert_eq!(slots(&asked, "gimp"), slots(&switches, "gimp"));
        let few = launches(&asked, "gimp");
        assert_eq!(few.len(), SAMPLES_MIN);
        assert!(few.iter().all(|slot| slot.mode == Mode::Launch));
        asked.samples = 1;
        assert_eq!(launches(&asked, "gimp").len(), 1);
    }

    #[test]
    fn what_prepage_did_not_see_is_followed_by_what_it_helps() {
        let parameters = run(&[Mode::Resident, Mode::Off, Mode::Anon, Mode::Full]).parameters;
        let all = rounds(&parameters, &["gimp"]);
        for round in &all {
            let seen = seen_round(&parameters, round, round);
            let (_, sample) = &round[0];
            assert_eq!(seen.is_some(), !sample.mode.needs_prepage());
            for (index, slot) in seen.iter().flatten() {
                assert_eq!(
                    (*index, slot.app.as_str(), slot.mode),
                    (0, "gimp", Mode::Full)
                );
                let has_its_choices = |round: &Round| round[0].1.block == slot.block;
                assert!(!all.iter().any(has_its_choices));
            }
        }
        let untold = run(&[Mode::Off, Mode::FullOnset]).parameters;
        let all_untold = rounds(&untold, &["gimp"]);
        let seen = all_untold.iter().filter_map(|r| seen_round(&untold, r, r));
        let seen: Vec<Turn> = seen.flatten().collect();
        assert!(!seen.is_empty());
        assert!(seen.iter().all(|(_, slot)| slot.mode == Mode::FullOnset));
        let as_before = Parameters {
            keeps_learning: false,
            ..parameters.clone()
        };
        assert!(
            all.iter()
                .all(|round| seen_round(&as_before, round, round).is_none())
        );
        let unhelped = run(&[Mode::Resident, Mode::Off]).parameters;
        let all = rounds(&unhelped, &["gimp"]);
        assert!(
            all.iter()
                .all(|round| seen_round(&unhelped, round, round).is_none()),
            "there is no service"
        );
    }

    #[test]
    fn blocks_for_stalls_follow_the_samples_and_are_none() {
        let modes = [Mode::Off, Mode::Full];
        for setting in [Setting::Reclaimed, Setting::Together] {
            let parameters = Parameters {
                stall_blocks: 4,
                sequences: 3,
                rounds: 2,
                setting,
                ..run(&modes).parameters
            };
            let all = rounds(&parameters, &["a", "b"]);
            let without = Parameters {
                stall_blocks: 0,
                ..parameters.clone()
            };
            let is_for_stalls = |round: &Round| round.iter().all(|(_, slot)| is_for_stalls(slot));
            let (further, samples): (Vec<Round>, Vec<Round>) =
                all.iter().cloned().partition(is_for_stalls);
            assert_eq!(samples, rounds(&without, &["a", "b"]));
            let of_a = further.iter().flatten().filter(|(index, _)| *index == 0);
            assert_eq!(of_a.count(), 4 * modes.len(), "{setting:?}");
            let seen = all
                .iter()
                .filter_map(|round| seen_round(&parameters, round, round));
            let seen: Vec<Round> = seen.collect();
            assert_eq!(seen.len(), all.len() / 2);
            assert!(!seen.iter().any(is_for_stalls), "they are to learn from");
        }
    }

    #[test]
    fn every_round_goes_through_its_sequence_once_and_every_block_has_every_mode() {
        let parameters = Parameters {
            sequences: 3,
            rounds: 10,
            stall_blocks: 0,
            ..Parameters::of(Setting::Together)
        };
        let apps = ["a", "b", "c", "d"];
        let all = rounds(&parameters, &apps);
        assert_eq!(all, rounds(&parameters, &apps));
        assert_eq!(all.len(), 3 * 10 * 2);
        let keys: HashSet<_> = all.iter().flatten().map(|(_, slot)| slot.key()).collect();
        assert_eq!(keys.len(), 4 * all.len());
        for (number, round) in all.iter().enumerate() {
            let order: Vec<usize> = round.iter().map(|(index, _)| *index).collect();
            let mut expected = sequences(&parameters, 4)[number / 20].clone();
            expected.rotate_left(number / 2 % 4);
            assert_eq!(order, expected);
            let positions: Vec<_> = round.iter().map(|(_, s)| s.position).collect();
            assert_eq!(positions, [0, 1, 2, 3].map(Some));
            assert!(round.iter().all(|(_, s)| s.mode == round[0].1.mode));
        }
        let orders: HashSet<Vec<usize>> = sequences(&parameters, 4).into_iter().collect();
        assert!(orders.len() > 1);
    }

    /// Eight applications together, with this many rounds of each mode.
    fn together(modes: &[Mode], rounds: u32) -> Parameters {
        Parameters {
            modes: modes.to_vec(),
            rounds,
            ..Parameters::of(Setting::Together)
        }
    }

    const EIGHT: [&str; 8] = ["a", "b", "c", "d", "e", "f", "g", "h"];

    #[test]
    fn every_application_comes_by_at_every_position_of_a_sequence() {
        let parameters = together(&[Mode::Off, Mode::Full], 8);
        let all = rounds(&parameters, &EIGHT);
        let samples = all.iter().flatten().filter(|(_, s)| !is_for_stalls(s));
        let places: HashSet<_> = samples
            .map(|(index, s)| (s.block / 8, *index, s.position, s.mode))
            .collect();
        assert_eq!(places.len(), 3 * 8 * 8 * 2);
    }

    #[test]
    fn together_every_measured_round_follows_one_that_leaves_memory_as_it_does_in_the_same_order() {
        use Mode::{Anon, File, Full, FullOnset, Observe, Off};
        let order = |round: &Round| round.iter().map(|(i, _)| *i).collect::<Vec<_>>();
        for modes in [
            &[Off, Full][..],
            &[Off, FullOnset],
            &[Off],
            &[Full],
            &[Off, Observe, Anon, File, Full],
        ] {
            for (keeps_learning, warmup) in [(true, 6), (false, 6), (true, 0)] {
                let parameters = Parameters {
                    keeps_learning,
                    warmup,
                    ..together(modes, 10)
                };
                let all = rounds(&parameters, &EIGHT);
                for left in [&all[..], &all[7..]] {
                    let steps = steps(&parameters, &EIGHT, left);
                    let measured = steps
                        .iter()
                        .filter(|step| measures(step))
                        .map(|step| &step.round);
                    assert!(measured.eq(left), "each once, in order");
                    for pair in steps.windows(2).filter(|w| measures(&w[1])) {
                        let (before, round) = (&pair[0].round, &pair[1].round);
                        let (mode, mode_before) = (mode_of(round), mode_of(before));
                        assert_eq!(mode.is_helped(), mode_before.is_helped(), "{modes:?}");
                        assert_eq!(as_leaving(mode), as_leaving(mode_before));
                        assert_eq!(order(before), order(round));
                    }
                    assert_ne!(steps[0].purpose, Purpose::Measure);
                }
            }
        }
    }

    fn measures(step: &Step) -> bool {
        step.purpose == Purpose::Measure
    }

    #[test]
    fn what_only_settles_has_choices_of_its_own_and_is_no_more_than_is_needed() {
        let parameters = together(&[Mode::Off, Mode::Full], 10);
        let all = rounds(&parameters, &EIGHT);
        let all_steps = steps(&parameters, &EIGHT, &all);
        let blocks: HashSet<u32> = all.iter().flatten().map(|(_, s)| s.block).collect();
        let of = |purpose| all_steps.iter().filter(move |step| step.purpose == purpose);
        for step in of(Purpose::Settle) {
            assert!(step.round.iter().all(|(_, s)| !blocks.contains(&s.block)));
            assert!(step.round.iter().all(|(_, s)| !is_for_stalls(s)));
        }
        let settled = |mode| {
            let of_mode = of(Purpose::Settle).filter(|step| mode_of(&step.round) == mode);
            of_mode.count()
        };
        assert_eq!(settled(Mode::Off), 34, "one for each round in mode off");
        assert!(
            settled(Mode::Full) <= 34 / 2,
            "what prepage learned from is mostly like it"
        );
        let before = Parameters {
            settles: false,
            ..parameters
        };
        let steps = steps(&before, &EIGHT, &all);
        assert!(steps.iter().all(|step| step.purpose != Purpose::Settle));
        assert!(super::steps(&before, &EIGHT, &[]).is_empty());
    }

    #[test]
    fn one_application_alone_goes_through_no_more_than_before() {
        let parameters = run(&[Mode::Resident, Mode::Off, Mode::Full]).parameters;
        let all = rounds(&parameters, &["gimp"]);
        let steps = steps(&parameters, &["gimp"], &all);
        assert!(steps.iter().all(|step| step.purpose != Purpose::Settle));
        let slots = || steps.iter().flat_map(|step| &step.round);
        assert!(slots().all(|(_, slot)| slot.position.is_none()));
        let unseen = all.iter().filter(|round| !mode_of(round).needs_prepage());
        assert_eq!(steps.len(), all.len() + unseen.count());
    }
}
