//! Simple predictors over the same records, to compare the state machine with.
//!
//! They are told the whole truth of every past switch, which no executor sees on a machine that prepages; they
//! keep no bound and no budget.

use super::{RecordedSwitch, Replayed, ReplayedSwitch, Tally, Truth, out};
use crate::extent::ExtentSet;
use crate::identity::{AppId, FileId, Instance};
use crate::outcome::Share;
use crate::run_map::RunMap;
use std::borrow::{Borrow, Cow};
use std::collections::BTreeMap;

/// How a predictor without an estimator chooses.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Baseline {
    /// Nothing: demand paging.
    Nothing,
    /// What the last switch accessed.
    LastFootprint,
    /// What any switch before accessed.
    Union,
    /// What at least this share (0 to 1) of the switches before accessed, in the life of the process instance or
    /// file.
    Frequency(
        /// The share.
        f32,
    ),
    /// What this switch accesses: the bound for all others.
    Oracle,
}

/// What a predictor knows of one process's or file's pages.
#[derive(Clone, Debug, Default)]
struct Seen {
    accesses: RunMap<u32>,
    last: ExtentSet,
    switches: u32,
}

impl Seen {
    fn predict<'a>(&'a self, baseline: Baseline, truth: &'a ExtentSet) -> Cow<'a, ExtentSet> {
        match baseline {
            Baseline::Nothing => Cow::Owned(ExtentSet::new()),
            Baseline::LastFootprint => Cow::Borrowed(&self.last),
            Baseline::Union => Cow::Owned(self.accesses.pages_where(|_| true)),
            Baseline::Frequency(share) => {
                let least = share * self.switches as f32;
                Cow::Owned(self.accesses.pages_where(|count| count as f32 >= least))
            }
            Baseline::Oracle => Cow::Borrowed(truth),
        }
    }

    fn learn(&mut self, accessed: &ExtentSet) {
        self.accesses
            .update(accessed, |count, _| Some(count.unwrap_or(0) + 1));
        self.last = accessed.clone();
        self.switches += 1;
    }

    fn bytes(&self) -> u64 {
        self.accesses.bytes() as u64
    }
}

#[derive(Default)]
struct App {
    anon: BTreeMap<Instance, Seen>,
    files: BTreeMap<FileId, Seen>,
    number: u64,
}

/// Runs recorded switches through simple predictors, which learn the same.
pub fn replay_baselines<const N: usize>(
    recorded: impl IntoIterator<Item: Borrow<RecordedSwitch>>,
    baselines: [Baseline; N],
) -> [Replayed; N] {
    let mut apps: BTreeMap<AppId, App> = BTreeMap::new();
    let mut replayed = [(); N].map(|()| Replayed::default());
    for recorded in recorded {
        let recorded = recorded.borrow();
        let app = apps.entry(recorded.app.clone()).or_default();
        let switches = app.switch(recorded, &baselines);
        for (replayed, switch) in replayed.iter_mut().zip(switches) {
            replayed.push(switch);
        }
    }
    replayed
}

impl App {
    fn switch<const N: usize>(
        &mut self,
        recorded: &RecordedSwitch,
        baselines: &[Baseline; N],
    ) -> [ReplayedSwitch; N] {
        self.number += 1;
        self.between(recorded);
        let anon = self.anon(recorded, baselines);
        let file = self.file(recorded, baselines);
        let seen = self.anon.values().chain(self.files.values());
        let bytes = seen.map(Seen::bytes).sum();
        std::array::from_fn(|index| ReplayedSwitch {
            app: recorded.app.clone(),
            number: self.number,
            anon: anon[index],
            file: file[index],
            anon_seen: Share::default(),
            file_seen: Share::default(),
            confidence: 0.0,
            bytes,
        })
    }

    fn between(&mut self, recorded: &RecordedSwitch) {
        for instance in &recorded.ended {
            self.anon.remove(instance);
        }
        for anon in &recorded.anon {
            let instance = anon.instance;
            self.anon
                .retain(|known, _| known.pid != instance.pid || *known == instance);
            self.anon.entry(instance).or_default();
        }
        for file in &recorded.changed {
            self.files.remove(file);
        }
        for file in &recorded.files {
            let file = &file.file;
            self.files
                .retain(|known, _| known.path != file.path || known == file);
            self.files.entry(file.clone()).or_default();
        }
    }

    fn anon<const N: usize>(
        &mut self,
        recorded: &RecordedSwitch,
        baselines: &[Baseline; N],
    ) -> [Tally; N] {
        let mut tallies = [Tally::default(); N];
        let truths: BTreeMap<_, _> = recorded.anon.iter().map(|r| (r.instance, r)).collect();
        let nothing = ExtentSet::new();
        for (instance, seen) in &mut self.anon {
            let truth = truths.get(instance);
            let accessed = truth.map_or(&nothing, |r| &r.accessed);
            let swapped = truth.and_then(|r| r.swapped.as_ref());
            let demanded = out(accessed, swapped);
            let truth = Truth {
                accessed: &demanded,
                demanded: &demanded,
            };
            for (tally, &baseline) in tallies.iter_mut().zip(baselines) {
                let predicted = seen.predict(baseline, accessed);
                let fetched = out(&predicted, swapped);
                tally.demanded += demanded.pages();
                tally.count(&fetched, &fetched, &truth);
            }
            seen.learn(accessed);
        }
        tallies
    }

    fn file<const N: usize>(
        &mut self,
        recorded: &RecordedSwitch,
        baselines: &[Baseline; N],
    ) -> [Tally; N] {
        let mut tallies = [Tally::default(); N];
        let truths: BTreeMap<_, _> = recorded.files.iter().map(|r| (&r.file, r)).collect();
        let nothing = ExtentSet::new();
        for (file, seen) in &mut self.files {
            let truth = truths.get(file);
            let accessed = truth.map_or(&nothing, |r| &r.accessed);
            let demanded = truth.map_or(&nothing, |r| &r.demanded);
            let cached = accessed.difference(demanded);
            for (tally, &baseline) in tallies.iter_mut().zip(baselines) {
                let fetched = seen.predict(baseline, accessed).difference(&cached);
                tally.demanded += demanded.pages();
                tally.count(&fetched, &fetched, &Truth { accessed, demanded });
            }
            seen.learn(accessed);
        }
        tallies
    }
}
