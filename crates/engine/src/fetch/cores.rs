//! Which threads fetch file pages, and where (ASAP sections 5.2 and 6.5).

use crate::params::CorePolicy;

/// A thread that fetches file pages.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileThread {
    /// The cores it may run on.
    pub cores: Vec<usize>,
    /// Whether it runs under SCHED_IDLE instead of SCHED_OTHER.
    pub idle: bool,
    /// Whether it takes the largest files first; else the smallest.
    pub largest: bool,
}

/// The cores of this machine, by kind.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Cores {
    /// All of them.
    pub all: Vec<usize>,
    /// Those of the highest capacity, or as configured.
    pub big: Vec<usize>,
    /// Those of the lowest capacity, or as configured.
    pub little: Vec<usize>,
}

impl Cores {
    /// Sorts cores by capacity, given as (core, capacity). A configured set, where it is not empty, takes the place
    /// of what capacity says, so that equal cores can stand in for big and little ones. Configured cores that are
    /// not there are left out.
    pub fn new(capacities: &[(usize, u32)], big: &[usize], little: &[usize]) -> Self {
        let all: Vec<usize> = capacities.iter().map(|&(core, _)| core).collect();
        let of = |wanted: Option<u32>| {
            let cores = capacities.iter().filter(|&&(_, c)| Some(c) == wanted);
            cores.map(|&(core, _)| core).collect::<Vec<_>>()
        };
        let configured = |set: &[usize], otherwise: Vec<usize>| {
            let there: Vec<usize> = set.iter().copied().filter(|c| all.contains(c)).collect();
            if there.is_empty() { otherwise } else { there }
        };
        let largest = of(capacities.iter().map(|&(_, c)| c).max());
        let smallest = of(capacities.iter().map(|&(_, c)| c).min());
        Self {
            big: configured(big, largest),
            little: configured(little, smallest),
            all,
        }
    }
}

/// The threads of a policy. Never empty where there is a core.
pub fn file_threads(policy: CorePolicy, cores: &Cores) -> Vec<FileThread> {
    let other = |cores: Vec<usize>| FileThread {
        cores,
        idle: false,
        largest: true,
    };
    let one = |set: &[usize]| set.iter().take(1).map(|&core| other(vec![core])).collect();
    let each = |set: &[usize]| set.iter().map(|&core| other(vec![core])).collect();
    match policy {
        CorePolicy::Asap => {
            // The large-file thread keeps one core's worth of the set; the rest get one idle thread each.
            let rest = cores
                .all
                .iter()
                .filter(|&core| cores.big.first() != Some(core));
            let rest = rest.map(|&core| FileThread {
                cores: vec![core],
                idle: true,
                largest: false,
            });
            std::iter::once(other(cores.big.clone()))
                .chain(rest)
                .collect()
        }
        CorePolicy::Big1 => one(&cores.big),
        CorePolicy::BigAll => each(&cores.big),
        CorePolicy::Little1 => one(&cores.little),
        CorePolicy::LittleAll => each(&cores.little),
        CorePolicy::Iorap => vec![other(cores.all.clone())],
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn capacity_or_configuration_says_which_cores_are_big() {
        let phone = [(0, 250), (1, 250), (2, 1024), (3, 1024)];
        let cores = Cores::new(&phone, &[], &[]);
        assert_eq!((cores.big, cores.little), (vec![2, 3], vec![0, 1]));
        let equal = [(0, 1024), (1, 1024)];
        let cores = Cores::new(&equal, &[0], &[1, 7]);
        assert_eq!((cores.big, cores.little), (vec![0], vec![1]));
        let cores = Cores::new(&equal, &[], &[]);
        assert_eq!((&cores.big, &cores.little), (&cores.all, &cores.all));
    }

    #[test]
    fn every_policy_has_a_thread_that_is_not_idle_and_takes_large_files() {
        let cores = Cores::new(&[(0, 250), (1, 1024), (2, 1024)], &[], &[]);
        for policy in [
            CorePolicy::Asap,
            CorePolicy::Big1,
            CorePolicy::BigAll,
            CorePolicy::Little1,
            CorePolicy::LittleAll,
            CorePolicy::Iorap,
        ] {
            let threads = file_threads(policy, &cores);
            assert!(threads.iter().any(|t| !t.idle && t.largest), "{policy:?}");
        }
        let asap = file_threads(CorePolicy::Asap, &cores);
        assert_eq!(asap[0].cores, [1, 2]);
        assert_eq!(asap.len(), 3);
        assert_eq!(file_threads(CorePolicy::BigAll, &cores).len(), 2);
        assert_eq!(file_threads(CorePolicy::Little1, &cores)[0].cores, [0]);
    }
}
