//! A record sorted for study: samples by mode and by block.

use crate::record::{Application, Line, Mode, Run, Switch};
use crate::settle::FrameRecord;
use std::collections::BTreeMap;

/// The samples of one application in a record.
#[derive(Clone, Debug)]
pub struct Switches {
    /// The circumstances.
    pub run: Run,
    /// The application.
    pub app: String,
    /// In the order in which they were measured.
    pub samples: Vec<Switch>,
    /// Those in which its longest single waits were measured, which are no samples.
    pub stalls: Vec<Switch>,
    /// Its cold launches, which are paired with no switch.
    pub launches: Vec<Switch>,
    /// How many switches prepage learned from before the first sample.
    pub warmups: usize,
    /// And how many after it, between samples.
    pub warmups_between: usize,
    /// Discarded switches by reason.
    pub discarded: BTreeMap<String, usize>,
    /// What all its switches came to.
    pub application: Application,
}

/// The samples of one block by mode.
pub type Block<'a> = BTreeMap<Mode, &'a Switch>;

impl Switches {
    /// Sorts the lines of a record, whose first line is its circumstances, by application. Those of which there is no
    /// line are left out.
    pub fn by_app(lines: Vec<Line>) -> Vec<Self> {
        let mut lines = lines.into_iter();
        let Some(Line::Run(run)) = lines.next() else {
            panic!("a record begins with its circumstances")
        };
        let mut found: Vec<Self> = Vec::new();
        for line in lines {
            let app = match &line {
                Line::Sample(switch) | Line::Warmup(switch) | Line::Stalls(switch) => {
                    &switch.slot.app
                }
                Line::Discarded(discarded) => &discarded.slot.app,
                Line::Application(application) => &application.app,
                Line::Run(_) => continue,
            };
            let at = found.iter().position(|s| s.app == *app);
            let at = at.unwrap_or_else(|| {
                found.push(Self::empty(&run, app));
                found.len() - 1
            });
            found[at].add(line);
        }
        let place = |s: &Self| run.parameters.apps.iter().position(|app| *app == s.app);
        found.sort_by_key(place);
        found
    }

    fn empty(run: &Run, app: &str) -> Self {
        Self {
            run: run.clone(),
            app: app.to_owned(),
            samples: Vec::new(),
            stalls: Vec::new(),
            launches: Vec::new(),
            warmups: 0,
            warmups_between: 0,
            discarded: BTreeMap::new(),
            application: Application::default(),
        }
    }

    /// A run that was resumed has several: the footprint of the most switches counts, and the last tables.
    fn add_application(&mut self, new: Application) {
        let switches = |of: &Application| of.footprint.as_ref().map_or(0, |f| f.switches);
        if switches(&new) >= switches(&self.application) {
            self.application.footprint = new.footprint;
        }
        self.application.table_bytes = new.table_bytes.or(self.application.table_bytes);
    }

    fn add(&mut self, line: Line) {
        match line {
            Line::Sample(launch) if launch.slot.mode == Mode::Launch => {
                self.launches.push(*launch);
            }
            Line::Sample(switch) => self.samples.push(*switch),
            Line::Stalls(switch) => self.stalls.push(*switch),
            Line::Warmup(_) if self.samples.is_empty() && self.stalls.is_empty() => {
                self.warmups += 1
            }
            Line::Warmup(_) => self.warmups_between += 1,
            // Two readings of one cause differ in their numbers only.
            Line::Discarded(d) => {
                let reason = d.reason.split(':').next().unwrap_or_default().to_owned();
                *self.discarded.entry(reason).or_default() += 1;
            }
            Line::Application(application) => self.add_application(*application),
            Line::Run(_) => {}
        }
    }

    /// The modes that were measured.
    pub fn modes(&self) -> Vec<Mode> {
        let mut modes: Vec<Mode> = self.samples.iter().map(|s| s.slot.mode).collect();
        modes.sort_unstable();
        modes.dedup();
        modes
    }

    /// One number of every sample of a mode.
    pub fn values(&self, mode: Mode, value: impl Fn(&Switch) -> f64) -> Vec<f64> {
        self.known_values(mode, |s| Some(value(s)))
    }

    /// Those values of the samples of a mode that are known.
    pub fn known_values(&self, mode: Mode, value: impl Fn(&Switch) -> Option<f64>) -> Vec<f64> {
        let own = self.samples.iter().filter(|s| s.slot.mode == mode);
        own.filter_map(value).collect()
    }

    /// The blocks that hold all of these modes.
    pub fn blocks(&self, modes: &[Mode]) -> Vec<Block<'_>> {
        let mut blocks: BTreeMap<u32, Block<'_>> = BTreeMap::new();
        for sample in &self.samples {
            blocks
                .entry(sample.slot.block)
                .or_default()
                .insert(sample.slot.mode, sample);
        }
        blocks
            .into_values()
            .filter(|block| modes.iter().all(|mode| block.contains_key(mode)))
            .collect()
    }
}

/// Time to the settled picture.
pub fn settled_ms(switch: &Switch) -> f64 {
    switch.t_settled_ns as f64 / 1e6
}

/// Time to the first frame.
pub fn first_frame_ms(switch: &Switch) -> f64 {
    switch.t_first_frame_ns as f64 / 1e6
}

/// The frame from which on the picture stayed; none if the cap came first.
fn settled_frame(switch: &Switch) -> Option<&FrameRecord> {
    switch.frames.iter().find(|f| f.t_ns == switch.t_settled_ns)
}

/// Major faults of the application until its picture settled.
pub fn demand_faults(switch: &Switch) -> f64 {
    let all = || switch.processes.values().map(|c| c.majflt).sum();
    settled_frame(switch).map_or_else(all, |f| f.majflt) as f64
}

/// CPU time of the application until its picture settled; what it does afterwards holds nobody up.
pub fn app_cpu_ms(switch: &Switch) -> f64 {
    settled_frame(switch).map_or(switch.app_cpu_us, |f| f.cpu_us) as f64 / 1e3
}

/// A number of prepage's record of the switch, by its path such as `timing.fetch_us`; `None` if there is no record, or
/// it is void: an observation of which nothing can be said.
pub fn of_prepage(switch: &Switch, path: &str) -> Option<f64> {
    let record = switch.prepage.last()?;
    if record.get("void").is_some_and(|void| !void.is_null()) {
        return None;
    }
    path.split('.')
        .try_fold(record, |value, name| value.get(name))?
        .as_f64()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::tests::{run, switch};

    #[test]
    fn samples_are_sorted_by_application_in_the_order_of_the_run() {
        let mut circumstances = run(&[Mode::Off]);
        circumstances.parameters.apps = ["gimp", "evince", "chromium"].map(String::from).into();
        let mut of_gimp = switch(0, Mode::Off, 1.0);
        of_gimp.slot.app = "gimp".into();
        let all = Switches::by_app(vec![
            Line::Run(Box::new(circumstances)),
            Line::Warmup(Box::new(switch(0, Mode::Off, 1.0))),
            Line::Sample(Box::new(switch(0, Mode::Off, 1.0))),
            Line::Sample(Box::new(of_gimp)),
        ]);
        let found: Vec<(&str, usize, usize)> = all
            .iter()
            .map(|s| (s.app.as_str(), s.samples.len(), s.warmups))
            .collect();
        assert_eq!(found, [("gimp", 1, 0), ("chromium", 1, 1)]);
    }

    #[test]
    fn only_what_comes_before_the_first_sample_is_before_the_samples() {
        let warmup = || Line::Warmup(Box::new(switch(0, Mode::Full, 1.0)));
        let launch = Line::Sample(Box::new(switch(0, Mode::Launch, 1.0)));
        let sample = || Line::Sample(Box::new(switch(0, Mode::Off, 1.0)));
        let run = Line::Run(Box::new(run(&[Mode::Launch, Mode::Off])));
        let lines = vec![
            run,
            launch,
            warmup(),
            warmup(),
            sample(),
            warmup(),
            sample(),
        ];
        let one = Switches::by_app(lines).remove(0);
        assert_eq!((one.warmups, one.warmups_between), (2, 1));
    }

    #[test]
    fn numbers_of_prepage_by_path() {
        let mut sample = switch(0, Mode::Full, 200.0);
        assert_eq!(of_prepage(&sample, "timing.fetch_us"), None);
        sample.prepage = vec![serde_json::json!({"void": null, "timing": {"fetch_us": 70}})];
        assert_eq!(of_prepage(&sample, "timing.fetch_us"), Some(70.0));
        sample
            .prepage
            .push(serde_json::json!({"void": "reclaimed", "timing": {"fetch_us": 80}}));
        assert_eq!(of_prepage(&sample, "timing.fetch_us"), None);
    }
}
