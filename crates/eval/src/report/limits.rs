//! What of the paper on switches (ASAP) a report has, and what this hardware cannot show: nobody is to read a gap as a result.

use super::Chapter;
use crate::record::{Machine, Mode};
use crate::study::Study;
use crate::study::stalls::{LongestOf, Stalls};
use crate::study::text::{Shown, cells, shown_or_not};

/// What the paper shows, and whether these records have it: where not, how it is measured.
pub fn inventory(chapters: &[Chapter]) -> Vec<Vec<String>> {
    const SHOWN: [Shown<Chapter>; 12] = [
        (
            "Figure 1: by what is in memory before",
            |chapter| any(chapter, has_parts_in_memory),
            "--modes resident,files_dropped,off,launch",
        ),
        (
            "Figures 2, 3, 13, 14: use of processors and disk",
            |chapter| any(chapter, |study| !study.utilization.is_empty()),
            "records from before use was recorded, or no block read over time",
        ),
        (
            "Figures 5, 6, 7, 10: footprints",
            |chapter| any(chapter, |study| study.footprint.is_some()),
            "observed switches: --modes observe, with --samples 4 or more",
        ),
        (
            "Figure 11: time by what is prepaged",
            |chapter| any(chapter, |study| !study.comparisons.is_empty()),
            "--modes off,anon,file,full",
        ),
        (
            "Figure 12: precision and recall",
            |chapter| any(chapter, |study| !study.shares.is_empty()),
            "--modes observe,full",
        ),
        (
            "Figure 15: core policies",
            |chapter| !chapter.studies.policies.is_empty(),
            "modes that name one: --modes off,full:asap,full:big1",
        ),
        (
            "Table 3: several orders of the applications",
            |chapter| !chapter.studies.sequences.is_empty(),
            "--setting together --sequences 3",
        ),
        (
            "Section 6.6: what help costs",
            |chapter| any(chapter, |study| !study.costs.is_empty()),
            "--modes full",
        ),
        (
            "Swap on disk",
            |chapter| has_swap(chapter, "disk") || has_swap(chapter, "file"),
            "--swap disk",
        ),
        (
            "A slower disk, as phones have",
            |chapter| {
                any(chapter, |study| {
                    study.run.parameters.factors.throttle.is_some()
                })
            },
            "--throttle emmc or ufs",
        ),
        (
            "The longest single fault of a switch",
            |chapter| any(chapter, |study| has(study, |s| s.longest_fault_ms)),
            "--stall-blocks 4, where the kernel lets perf sample faults",
        ),
        (
            "The longest single mmap, munmap, mremap, mprotect or brk of a switch",
            |chapter| any(chapter, |study| has(study, |s| s.longest_call_ms)),
            "--stall-blocks 4, where the kernel has tracepoints of system calls (CONFIG_FTRACE_SYSCALLS)",
        ),
    ];
    let mut rows = shown_or_not("ASAP", &SHOWN, chapters);
    for (what, why, can_show) in NOT_SHOWN {
        if !chapters.iter().filter_map(machine).any(can_show) {
            rows.push(cells(&[what, &format!("not measured: {why}")]));
        }
    }
    rows
}

fn machine(chapter: &Chapter) -> Option<&Machine> {
    chapter.studies.apps.first().map(|study| &study.run.machine)
}

fn any(chapter: &Chapter, has: fn(&Study) -> bool) -> bool {
    chapter.studies.apps.iter().any(has)
}

fn has(study: &Study, longest: fn(&Stalls) -> Option<LongestOf>) -> bool {
    study.modes.iter().any(|row| longest(&row.stalls).is_some())
}

fn has_parts_in_memory(study: &Study) -> bool {
    let mut modes = study.modes.iter();
    study.launch_ms.is_some() || modes.any(|row| row.mode == Mode::FilesDropped)
}

fn has_swap(chapter: &Chapter, on: &str) -> bool {
    machine(chapter).is_some_and(|machine| machine.swap.iter().any(|swap| swap.on == on))
}

/// Whether a record, by its machine, can show something nevertheless.
type CanShow = fn(&Machine) -> bool;
/// What, why, and that.
const NOT_SHOWN: [(&str, &str, CanShow); 6] = [
    (
        "Seeks of a rotational disk",
        "the disk is a virtual one; that the kernel may call it rotational says nothing of how long its reads wait for a head",
        |_| false,
    ),
    (
        "big.LITTLE: fast and slow cores",
        "the record names one kind of core",
        |_| false,
    ),
    (
        "Phones' storage itself, eMMC and UFS",
        "--throttle holds a disk to their throughput and requests; its latency and its queue are its own",
        |_| false,
    ),
    (
        "F2FS, which phones have",
        "the applications' files are on another file system: see the circumstances",
        |machine| {
            machine
                .disk
                .get("file_system")
                .is_some_and(|name| name == "f2fs")
        },
    ),
    (
        "Reclaim by MGLRU, which phones have",
        "the kernel has none, or it is off",
        |machine| {
            machine
                .settings
                .get("mglru")
                .is_some_and(|bits| bits != "0x0000")
        },
    ),
    (
        "Android's applications and its launcher",
        "desktop applications in an X server without a screen",
        |_| false,
    ),
];

/// What a comparison of core policies says of the cores of its record; nothing where it has none.
pub fn of_cores(chapter: &Chapter) -> Option<String> {
    let machine = machine(chapter)?;
    (!chapter.studies.policies.is_empty()).then(|| {
        format!(
            "Measured on {} x {}: one kind of core. Which of them are big and which little is only what prepage's configuration calls \
             them, so this compares how many fetch and where, not fast cores with slow ones.",
            machine.cores, machine.cpu_model
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::tests::{run, switch};
    use crate::record::{Line, Longest};
    use crate::study::study_apps;
    use crate::study::switches::Switches;

    fn chapter(modes: &[Mode], settings: &[(&str, &str)]) -> Chapter {
        let mut circumstances = run(modes);
        circumstances.machine.cpu_model = "One Kind".into();
        let settings = settings.iter();
        circumstances.machine.settings = settings
            .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()))
            .collect();
        let mut lines = vec![Line::Run(Box::new(circumstances))];
        for block in 0..6 {
            for (&mode, ms) in modes.iter().zip([400.0, 200.0, 220.0]) {
                lines.push(Line::Sample(Box::new(switch(block, mode, ms))));
            }
        }
        let switches = Switches::by_app(lines);
        Chapter {
            source: Default::default(),
            studies: study_apps(&switches),
            switches,
        }
    }

    fn here(chapters: &[Chapter], what: &str) -> Option<String> {
        let rows = inventory(chapters);
        let mut rows = rows.iter();
        Some(rows.find(|row| row[0].contains(what))?[1].clone())
    }

    #[test]
    fn what_no_record_can_show_is_not_measured() {
        let chapters = [chapter(&[Mode::Off, Mode::Full], &[])];
        assert_eq!(here(&chapters, "Figure 11").as_deref(), Some("shown above"));
        for what in [
            "Figure 1:",
            "Figure 15",
            "Seeks",
            "big.LITTLE",
            "F2FS",
            "MGLRU",
            "eMMC",
            "longest single fault",
            "longest single mmap",
        ] {
            let said = here(&chapters, what).unwrap_or_default();
            assert!(said.starts_with("not measured: "), "{what}: {said}");
        }
        let with_mglru = [chapter(&[Mode::Off], &[("mglru", "0x0007")])];
        assert_eq!(here(&with_mglru, "MGLRU"), None);
    }

    #[test]
    fn the_longest_waits_that_were_measured_are_shown_and_calls_that_nobody_saw_are_not() {
        let mut lines = vec![Line::Run(Box::new(run(&[Mode::Off])))];
        for block in 0..4 {
            let mut stalled = switch(block, Mode::Off, 400.0);
            lines.push(Line::Sample(Box::new(stalled.clone())));
            stalled.longest = Some(Longest {
                fault_ns: 7_000_000,
                ..Longest::default()
            });
            lines.push(Line::Stalls(Box::new(stalled)));
        }
        let switches = Switches::by_app(lines);
        let chapters = [Chapter {
            source: Default::default(),
            studies: study_apps(&switches),
            switches,
        }];
        let fault = here(&chapters, "longest single fault");
        assert_eq!(fault.as_deref(), Some("shown above"));
        let call = here(&chapters, "longest single mmap").unwrap_or_default();
        assert!(call.contains("CONFIG_FTRACE_SYSCALLS"), "{call}");
    }

    #[test]
    fn core_policies_say_that_the_cores_are_of_one_kind() {
        let policy = *Mode::ALL.last().expect("one");
        let said = of_cores(&chapter(&[Mode::Off, policy], &[]));
        assert!(said.is_some_and(|said| said.contains("2 x One Kind")));
        assert_eq!(of_cores(&chapter(&[Mode::Off, Mode::Full], &[])), None);
    }
}
