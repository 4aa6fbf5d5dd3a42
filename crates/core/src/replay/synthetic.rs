//! A seeded generator of recorded switches, so that the simulator can be run with no recording.
//!
//! An application's pages come in clusters that are accessed together. Some clusters are accessed in nearly every
//! switch, some while a context lasts (the page, the document, the level that the application shows), some now and
//! then, and some once. The defaults give the recurrence of ASAP's figures 5 and 6: of the anonymous pages
//! that ten switches access, 44 % are accessed in nine or ten of them; of the file pages, 75 %.

use super::{RecordedAnon, RecordedFile, RecordedSwitch};
use crate::extent::{Extent, ExtentSet};
use crate::identity::{AppId, AppKind, FileId, Instance};
use crate::run_map::RunMap;
use std::borrow::Borrow;
use std::collections::BTreeMap;
use std::sync::Arc;

/// The generator `splitmix64` (Steele, Lea and Flood, OOPSLA 2014): small, and the same everywhere.
#[derive(Clone, Debug)]
pub struct SplitMix64(
    /// The state: the seed.
    pub u64,
);

impl SplitMix64 {
    /// The next 64 bits.
    pub fn next_u64(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut bits = self.0;
        bits = (bits ^ (bits >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        bits = (bits ^ (bits >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        bits ^ (bits >> 31)
    }

    /// A number below `end`; 0 where `end` is 0.
    pub fn below(&mut self, end: u64) -> u64 {
        ((u128::from(self.next_u64()) * u128::from(end)) >> 64) as u64
    }

    /// Whether an event of this probability (0 to 1) comes.
    pub fn chance(&mut self, probability: f32) -> bool {
        let unit = (self.next_u64() >> 40) as f32 / (1u32 << 24) as f32;
        unit < probability
    }
}

/// How one kind of pages recurs, for one application. Shares and probabilities are 0 to 1.
#[derive(Clone, Debug, PartialEq)]
pub struct Recurrence {
    /// Pages of the invariant part.
    pub invariant_pages: u64,
    /// Probability that a switch accesses a cluster of the invariant part.
    pub invariant_access: f32,
    /// Number of contexts.
    pub contexts: u32,
    /// Pages of each context.
    pub context_pages: u64,
    /// Probability that a switch accesses a cluster of the context that it shows.
    pub context_access: f32,
    /// Probability that a switch shows another context than the last.
    pub context_change: f32,
    /// Pages that are accessed now and then.
    pub occasional_pages: u64,
    /// Highest probability that a switch accesses a cluster of them; each has its own, from 0 to this.
    pub occasional_access_max: f32,
    /// Pages that each switch accesses and none after it.
    pub noise_pages: u64,
    /// Probability that a cluster moves to another address between two switches: the context drifts.
    pub drift: f32,
    /// Most pages of a cluster.
    pub cluster_pages_max: u64,
    /// Most pages between a cluster and the next.
    pub gap_pages_max: u64,
}

/// What to generate.
#[derive(Clone, Debug, PartialEq)]
pub struct Synthetic {
    /// Seed: the same gives the same switches.
    pub seed: u64,
    /// Applications.
    pub apps: u32,
    /// Switches of each.
    pub switches: u32,
    /// Processes of each application; its anonymous pages are spread over them.
    pub processes: u32,
    /// Probability that an application was restarted between two switches.
    pub restart: f32,
    /// Files of each application; its file pages are spread over them.
    pub files: u32,
    /// Probability that one of the files was updated between two switches.
    pub file_update: f32,
    /// How anonymous pages recur.
    pub anon: Recurrence,
    /// How file pages recur.
    pub file: Recurrence,
}

impl Default for Synthetic {
    fn default() -> Self {
        Self {
            seed: 1,
            apps: 1,
            switches: 100,
            processes: 2,
            restart: 0.0,
            files: 24,
            file_update: 0.0,
            anon: Recurrence::ANON,
            file: Recurrence::FILE,
        }
    }
}

impl Recurrence {
    /// ASAP's figure 6. What the figure does not tell, how the other 56 % recur, is spread over contexts that
    /// last a few switches, pages accessed now and then, and pages accessed once.
    pub const ANON: Self = Self {
        invariant_pages: 2_460,
        invariant_access: 0.985,
        contexts: 5,
        context_pages: 400,
        context_access: 0.93,
        context_change: 0.45,
        occasional_pages: 900,
        occasional_access_max: 0.8,
        noise_pages: 90,
        drift: 0.004,
        cluster_pages_max: 8,
        gap_pages_max: 24,
    };

    /// ASAP's figure 5: 10 % of the pages are accessed in fewer than five of ten switches.
    pub const FILE: Self = Self {
        invariant_pages: 1_900,
        invariant_access: 0.99,
        contexts: 3,
        context_pages: 150,
        context_access: 0.95,
        context_change: 0.35,
        occasional_pages: 384,
        occasional_access_max: 1.0,
        noise_pages: 0,
        drift: 0.0,
        cluster_pages_max: 48,
        gap_pages_max: 96,
    };

    /// The same recurrence over `parts` times fewer pages.
    fn split(&self, parts: u32) -> Self {
        let parts = u64::from(parts.max(1));
        Self {
            invariant_pages: self.invariant_pages / parts,
            context_pages: self.context_pages / parts,
            occasional_pages: self.occasional_pages / parts,
            noise_pages: self.noise_pages / parts,
            ..self.clone()
        }
    }
}

impl Synthetic {
    /// The switches, one application after the other, made as they are asked for.
    pub fn switches(&self) -> impl Iterator<Item = RecordedSwitch> + '_ {
        (0..self.apps).flat_map(|index| self.switches_of(index))
    }

    /// The switches of one application, which its number among them and the seed determine.
    pub fn switches_of(&self, index: u32) -> impl Iterator<Item = RecordedSwitch> + '_ {
        let mut app = App::new(self, index);
        (0..self.switches).map(move |number| app.switch(self, number))
    }
}

struct Cluster {
    extent: Extent,
    /// The context that it belongs to; `None` is accessed in all.
    context: Option<u32>,
    access: f32,
}

/// The pages of one process or file.
struct Space {
    clusters: Vec<Cluster>,
    /// Where the next new cluster goes.
    next: u64,
    recurrence: Recurrence,
}

impl Space {
    fn new(recurrence: Recurrence, random: &mut SplitMix64) -> Self {
        let mut space = Self {
            clusters: Vec::new(),
            next: 0,
            recurrence,
        };
        let r = space.recurrence.clone();
        // What is allocated together is accessed together only in part: the kinds alternate in the address space.
        let mut left: Vec<(u64, Option<u32>)> = vec![(r.invariant_pages, None)];
        left.extend((0..r.contexts).map(|context| (r.context_pages, Some(context))));
        left.push((r.occasional_pages, None));
        let occasional = left.len() - 1;
        while !left.iter().all(|&(pages, _)| pages == 0) {
            let kind = random.below(left.len() as u64) as usize;
            let (pages, context) = &mut left[kind];
            if *pages == 0 {
                continue;
            }
            let extent = space.allocate(*pages, random);
            *pages -= extent.len;
            let access = match kind {
                0 => r.invariant_access,
                kind if kind == occasional => {
                    r.occasional_access_max * random.below(1 << 16) as f32 / 65_536.0
                }
                _ => r.context_access,
            };
            let context = *context;
            space.clusters.push(Cluster {
                extent,
                context,
                access,
            });
        }
        space
    }

    fn allocate(&mut self, pages_max: u64, random: &mut SplitMix64) -> Extent {
        let r = &self.recurrence;
        let len = 1 + random.below(r.cluster_pages_max.min(pages_max));
        let start = self.next + random.below(r.gap_pages_max + 1);
        self.next = start + len;
        Extent::new(start, len)
    }

    /// What the next switch accesses.
    fn access(&mut self, context: u32, random: &mut SplitMix64) -> ExtentSet {
        let mut accessed = Vec::new();
        for index in 0..self.clusters.len() {
            if random.chance(self.recurrence.drift) {
                let len = self.clusters[index].extent.len;
                let start = self.next + random.below(self.recurrence.gap_pages_max + 1);
                self.next = start + len;
                self.clusters[index].extent = Extent::new(start, len);
            }
            let cluster = &self.clusters[index];
            let is_shown = cluster.context.is_none_or(|own| own == context);
            if is_shown && random.chance(cluster.access) {
                accessed.push(cluster.extent);
            }
        }
        let mut noise = self.recurrence.noise_pages;
        while noise > 0 {
            let extent = self.allocate(noise, random);
            noise -= extent.len;
            accessed.push(extent);
        }
        ExtentSet::from(accessed)
    }
}

/// Clock ticks between two starts of an application.
const RESTART_TICKS: u64 = 1_000;

struct App {
    id: AppId,
    random: SplitMix64,
    context: (u32, u32),
    restarts: u64,
    processes: Vec<(Instance, Space)>,
    files: Vec<(FileId, Space)>,
}

impl App {
    fn new(what: &Synthetic, index: u32) -> Self {
        let seed = SplitMix64(what.seed ^ (u64::from(index) << 32)).next_u64();
        let mut random = SplitMix64(seed);
        let each = what.file.split(what.files);
        let files = (0..what.files).map(|file| {
            let id = FileId {
                path: Arc::from(format!("/usr/lib/app{index}/lib{file}.so")),
                device: (8, 1),
                inode: u64::from(index) << 32 | u64::from(file),
                size: 1 << 30,
                mtime_ns: 0,
            };
            (id, Space::new(each.clone(), &mut random))
        });
        let files = files.collect();
        let mut app = Self {
            id: AppId {
                kind: AppKind::Named,
                name: Arc::from(format!("app{index}")),
                owner: 1000,
            },
            random,
            context: (0, 0),
            restarts: 0,
            processes: Vec::new(),
            files,
        };
        app.start(what, index);
        app
    }

    /// Starts the application's processes, with pages at new addresses.
    fn start(&mut self, what: &Synthetic, index: u32) {
        let each = what.anon.split(what.processes);
        self.processes = (0..what.processes)
            .map(|process| {
                let instance = Instance {
                    pid: (index * what.processes + process + 2) as i32,
                    start_ticks: self.restarts * RESTART_TICKS,
                    exec: 0,
                };
                (instance, Space::new(each.clone(), &mut self.random))
            })
            .collect();
    }

    fn switch(&mut self, what: &Synthetic, number: u32) -> RecordedSwitch {
        let mut ended = Vec::new();
        let mut changed = Vec::new();
        if number > 0 && self.random.chance(what.restart) {
            ended.extend(self.processes.iter().map(|(instance, _)| *instance));
            self.restarts += 1;
            let first_pid = ended.first().map_or(2, |i| i.pid);
            self.start(what, (first_pid as u32 - 2) / what.processes.max(1));
        }
        if number > 0 && self.random.chance(what.file_update) && !self.files.is_empty() {
            let index = self.random.below(self.files.len() as u64) as usize;
            let (file, space) = &mut self.files[index];
            changed.push(file.clone());
            file.mtime_ns += 1;
            *space = Space::new(what.file.split(what.files), &mut self.random);
        }
        let started = match number {
            0 => self.processes.iter().map(|(i, _)| *i).collect(),
            _ if ended.is_empty() => Vec::new(),
            _ => self.processes.iter().map(|(i, _)| *i).collect(),
        };
        self.choose_contexts(what);
        RecordedSwitch {
            app: self.id.clone(),
            ended,
            started,
            changed,
            anon: self.access_anon(),
            files: self.access_files(),
        }
    }

    fn choose_contexts(&mut self, what: &Synthetic) {
        let random = &mut self.random;
        let mut choose =
            |now: u32, recurrence: &Recurrence| match random.chance(recurrence.context_change) {
                true => random.below(u64::from(recurrence.contexts)) as u32,
                false => now,
            };
        let (anon, file) = self.context;
        self.context = (choose(anon, &what.anon), choose(file, &what.file));
    }

    fn access_anon(&mut self) -> Vec<RecordedAnon> {
        let (context, _) = self.context;
        let random = &mut self.random;
        let processes = self.processes.iter_mut();
        let access = processes.map(|(instance, space)| RecordedAnon {
            instance: *instance,
            accessed: space.access(context, random),
            swapped: None,
        });
        access.collect()
    }

    fn access_files(&mut self) -> Vec<RecordedFile> {
        let (_, context) = self.context;
        let random = &mut self.random;
        let access = self.files.iter_mut().map(|(file, space)| {
            let accessed = space.access(context, random);
            RecordedFile {
                file: file.clone(),
                demanded: accessed.clone(),
                accessed,
                unknown: ExtentSet::new(),
            }
        });
        access.filter(|file| !file.accessed.is_empty()).collect()
    }
}

/// How many anonymous and how many file pages were accessed in exactly 1, 2, ... of the recorded switches of one
/// application (index 0 is 1): ASAP's figures 6 and 5. Counts above `N` are counted as `N`.
pub fn recurrence<const N: usize>(
    recorded: impl IntoIterator<Item: Borrow<RecordedSwitch>>,
) -> ([u64; N], [u64; N]) {
    let mut anon: BTreeMap<Instance, RunMap<usize>> = BTreeMap::new();
    let mut files: BTreeMap<FileId, RunMap<usize>> = BTreeMap::new();
    for switch in recorded {
        let switch = switch.borrow();
        for seen in &switch.anon {
            let counts = anon.entry(seen.instance).or_default();
            counts.update(&seen.accessed, |count, _| Some(count.unwrap_or(0) + 1));
        }
        for seen in &switch.files {
            let counts = files.entry(seen.file.clone()).or_default();
            counts.update(&seen.accessed, |count, _| Some(count.unwrap_or(0) + 1));
        }
    }
    (histogram(anon.values()), histogram(files.values()))
}

fn histogram<'a, const N: usize>(maps: impl Iterator<Item = &'a RunMap<usize>>) -> [u64; N] {
    let mut bars = [0; N];
    for (extent, count) in maps.flat_map(RunMap::iter) {
        if let Some(bar) = bars.get_mut(count.min(N).saturating_sub(1)) {
            *bar += extent.len;
        }
    }
    bars
}
