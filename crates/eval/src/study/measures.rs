//! The numbers, each a pure function of the samples.

use super::stalls::stalls;
use super::switches::{
    Block, Switches, app_cpu_ms, demand_faults, first_frame_ms, of_prepage, settled_ms,
};
use super::{Bound, Comparison, CostRow, ModeRow, ShareRow};
use crate::record::{LIMIT_LEFT, Mode, Setting, Switch};
use crate::statistics::{Estimate, bootstrap, is_clear_gap, median, median_estimate, share_of_gap};

/// One mode by itself.
pub fn mode_row(switches: &Switches, mode: Mode) -> ModeRow {
    let page_bytes = switches.run.machine.page_bytes as f64;
    let estimate = |value: &dyn Fn(&Switch) -> f64| median_estimate(&switches.values(mode, value));
    let left_mib = |s: &Switch| Some(s.system.get(LIMIT_LEFT)? / f64::from(1 << 20));
    ModeRow {
        mode,
        samples: switches.values(mode, settled_ms).len(),
        settled_ms: estimate(&settled_ms),
        first_frame_ms: estimate(&first_frame_ms),
        demand_faults: estimate(&demand_faults),
        app_cpu_ms: estimate(&app_cpu_ms),
        swapped_out_pages: estimate(&|s| s.state.group.swap_bytes as f64 / page_bytes),
        limit_left_mib: median_estimate(&switches.known_values(mode, left_mib)),
        stalls: stalls(switches, mode),
    }
}

/// Time from a cold launch to the settled picture.
pub fn launch_ms(switches: &Switches) -> Option<Estimate> {
    let times: Vec<f64> = switches.launches.iter().map(settled_ms).collect();
    median_estimate(&times)
}

/// One mode against off, and where it lies between off and resident. Blocks are drawn whole: what made a block slow made
/// all of its modes slow.
pub fn comparison(switches: &Switches, mode: Mode, has_gap: Option<bool>) -> Comparison {
    Comparison {
        mode,
        ratio_to_off: ratio_to_off(switches, mode, settled_ms),
        first_frame_ratio_to_off: ratio_to_off(switches, mode, first_frame_ms),
        gap_closed: if mode.is_taken_out() && has_gap == Some(true) {
            let triples = triples(switches, mode);
            bootstrap(triples.len(), |drawn| gap_closed(&triples, drawn, mode))
        } else {
            None
        },
    }
}

/// The median of the pairs' ratios to off.
pub fn ratio_to_off(
    switches: &Switches,
    mode: Mode,
    value: impl Fn(&Switch) -> f64,
) -> Option<Estimate> {
    let pairs = pairs(switches, mode);
    bootstrap(pairs.len(), |drawn| {
        median_ratio(&pairs, drawn, (mode, Mode::Off), &value)
    })
}

/// The blocks by which a mode is compared with off.
pub fn pairs(switches: &Switches, mode: Mode) -> Vec<Block<'_>> {
    switches.blocks(&[mode, Mode::Off])
}

/// The blocks by which a mode is placed between off and resident.
pub fn triples(switches: &Switches, mode: Mode) -> Vec<Block<'_>> {
    switches.blocks(&[Mode::Off, Mode::Resident, mode])
}

/// The median of the drawn blocks' ratios of a mode to another.
pub fn median_ratio(
    blocks: &[Block<'_>],
    drawn: &[usize],
    (mode, other): (Mode, Mode),
    value: impl Fn(&Switch) -> f64,
) -> Option<f64> {
    let ratio = |b: &Block<'_>| value(b[&mode]) / value(b[&other]);
    let ratios: Vec<f64> = drawn.iter().map(|&i| ratio(&blocks[i])).collect();
    median(&ratios)
}

/// (off - mode) / (off - resident), of medians over the drawn blocks.
pub fn gap_closed(blocks: &[Block<'_>], drawn: &[usize], mode: Mode) -> Option<f64> {
    let of = |mode| median_over(blocks, drawn, mode, settled_ms);
    share_of_gap(of(Mode::Off)?, of(mode)?, of(Mode::Resident)?)
}

/// Whether an application is clearly slower swapped out than resident. Nothing where too few blocks tell.
pub fn has_gap(switches: &Switches) -> Option<bool> {
    let blocks = switches.blocks(&[Mode::Off, Mode::Resident]);
    let resident_over_off = bootstrap(blocks.len(), |drawn| {
        let of = |mode| median_over(&blocks, drawn, mode, settled_ms);
        Some(of(Mode::Resident)? / of(Mode::Off)?)
    });
    resident_over_off.map(is_clear_gap)
}

/// The median of one number over drawn blocks.
fn median_over(
    blocks: &[Block<'_>],
    drawn: &[usize],
    mode: Mode,
    value: impl Fn(&Switch) -> f64,
) -> Option<f64> {
    let values: Vec<f64> = drawn.iter().map(|&i| value(blocks[i][&mode])).collect();
    median(&values)
}

/// How much longer a switch takes in this mode, where nothing has to be fetched.
pub fn cost_where_resident(switches: &Switches, mode: Mode) -> Option<Estimate> {
    let blocks = switches.blocks(&[Mode::Resident, mode]);
    let more = |b: &Block<'_>| settled_ms(b[&mode]) - settled_ms(b[&Mode::Resident]);
    median_estimate(&blocks.iter().map(more).collect::<Vec<f64>>())
}

/// The least time: the application's own work and the pages' work, spread over all cores without any loss.
pub fn bound(switches: &Switches, has_gap: Option<bool>) -> Option<Bound> {
    // Below a limit that is reached a page costs reclaim as well, and that can be done ahead.
    let is_reclaimed = switches.run.parameters.setting == Setting::Reclaimed;
    // Where off is not clearly slower than resident, what its pages cost is a matter of chance, and may be negative.
    if !is_reclaimed || has_gap != Some(true) {
        return None;
    }
    let blocks = switches.blocks(&[Mode::Off, Mode::Resident]);
    let cores = switches.run.machine.cores.max(1) as f64;
    let fetch_us = fetch_us_per_page(switches);
    let parts = |drawn: &[usize]| {
        let own_ms = median_over(&blocks, drawn, Mode::Resident, app_cpu_ms)?;
        let pages = median_over(&blocks, drawn, Mode::Off, demand_faults)?;
        let off_cpu_ms = median_over(&blocks, drawn, Mode::Off, app_cpu_ms)?;
        let demand_us = (off_cpu_ms - own_ms) * 1e3 / pages.max(1.0);
        let us_per_page = fetch_us.unwrap_or(demand_us);
        Some((
            own_ms,
            pages,
            us_per_page,
            (own_ms + pages * us_per_page / 1e3) / cores,
        ))
    };
    // Where the processors would allow less than the resident time, that is the least.
    let least = |drawn: &[usize]| {
        let resident = median_over(&blocks, drawn, Mode::Resident, settled_ms)?;
        Some(parts(drawn)?.3.max(resident))
    };
    let all: Vec<usize> = (0..blocks.len()).collect();
    let (app_cpu_ms, pages, us_per_page, _) = parts(&all)?;
    Some(Bound {
        settled_ms: bootstrap(blocks.len(), least)?,
        gap_closed: bootstrap(blocks.len(), |drawn| {
            let of = |mode| median_over(&blocks, drawn, mode, settled_ms);
            share_of_gap(of(Mode::Off)?, least(drawn)?, of(Mode::Resident)?)
        })?,
        app_cpu_ms,
        pages,
        us_per_page,
        us_per_page_of: if fetch_us.is_some() {
            "fetch"
        } else {
            "demand"
        },
    })
}

/// What an anonymous page costs prepage's threads, in mode anon: there they fetch next to nothing else.
fn fetch_us_per_page(switches: &Switches) -> Option<f64> {
    let per_page = |s: &Switch| {
        let pages = of_prepage(s, "anon.fetched")?;
        let us = of_prepage(s, "timing.fetch_cpu_us")?;
        (pages > 0.0 && us > 0.0).then_some(us / pages)
    };
    let of_anon = switches
        .samples
        .iter()
        .filter(|s| s.slot.mode == Mode::Anon);
    median(&of_anon.filter_map(per_page).collect::<Vec<f64>>())
}

/// The precision with pages counted that were read between wanted ones.
const WITH_GAPS: &str = "precision_with_gaps";

const SHARES: [&str; 4] = [
    "precision",
    WITH_GAPS,
    "holdout_precision",
    "holdout_recall",
];

/// Precision and recall: the pages of all samples together, the interval by drawing samples.
pub fn shares(switches: &Switches) -> Vec<ShareRow> {
    let mut rows = Vec::new();
    for of in ["anon", "file"] {
        for share in SHARES {
            let counts = share_counts(switches, of, share);
            if let Some(percent) = bootstrap(counts.len(), |drawn| pooled(&counts, drawn)) {
                rows.push(ShareRow {
                    of,
                    share,
                    percent,
                    pages: counts.iter().map(|c| c.1 as u64).sum(),
                });
            }
        }
    }
    rows
}

/// The hits of every sample that has such a share, and what they are of: pages.
pub fn share_counts(switches: &Switches, of: &str, share: &str) -> Vec<(f64, f64)> {
    let counts = |s: &Switch| {
        let pages = |path: &str| of_prepage(s, &format!("{of}.{path}"));
        if share != WITH_GAPS {
            let part = |part: &str| pages(&format!("{share}.{part}"));
            return Some((part("hits")?, part("of")?));
        }
        // Pages of which nothing is known are taken to be used as the others are.
        let (gap, fetched) = (pages("gap")?, pages("fetched")?);
        let used = pages("precision.hits")? / pages("precision.of")? * fetched;
        (gap > 0.0 && used.is_finite()).then_some((used, fetched + gap))
    };
    let counts = switches.samples.iter().filter_map(counts);
    counts.filter(|&(_, of)| of > 0.0).collect()
}

/// The share of the drawn samples' pages together, in hundredths.
pub fn pooled(counts: &[(f64, f64)], drawn: &[usize]) -> Option<f64> {
    let sum = |part: fn(&(f64, f64)) -> f64| drawn.iter().map(|&i| part(&counts[i])).sum::<f64>();
    Some(100.0 * sum(|c| c.0) / sum(|c| c.1))
}

/// Pages of a kind (`anon` or `file`) that a switch fetched for nothing: those that were seen to be unused, and those
/// between wanted ones.
pub fn wasted_pages(switch: &Switch, of: &str) -> Option<f64> {
    let pages = |name: &str| of_prepage(switch, &format!("{of}.{name}"));
    Some(pages("unused")? + pages("gap")?)
}

/// What prepage took, by mode.
pub fn costs(switches: &Switches) -> Vec<CostRow> {
    const PATHS: [(&str, &str); 10] = [
        ("signal_to_fetch_us", "timing.signal_to_fetch_us"),
        ("switch_path_us", "timing.switch_path_us"),
        ("fetch_us", "timing.fetch_us"),
        ("fetch_cpu_us", "timing.fetch_cpu_us"),
        ("management_cpu_us", "timing.management_cpu_us"),
        ("anon_fetched_pages", "anon.fetched"),
        ("file_fetched_pages", "file.fetched"),
        ("anon_overtaken_pages", "anon.overtaken"),
        ("file_late_pages", "file.late.pages"),
        ("file_late_wait_us", "file.late.wait_us"),
    ];
    let mut rows = Vec::new();
    for mode in switches.modes() {
        let samples = || {
            switches
                .samples
                .iter()
                .filter(|s| s.slot.mode == mode && !s.prepage.is_empty())
        };
        for (name, path) in PATHS {
            let values: Vec<f64> = samples().filter_map(|s| of_prepage(s, path)).collect();
            rows.extend(median_estimate(&values).map(|median| CostRow { mode, name, median }));
        }
        for (name, of) in [("anon_wasted_pages", "anon"), ("file_wasted_pages", "file")] {
            let values: Vec<f64> = samples().filter_map(|s| wasted_pages(s, of)).collect();
            rows.extend(median_estimate(&values).map(|median| CostRow { mode, name, median }));
        }
        let service: Vec<f64> = samples().map(|s| s.service_cpu_us as f64).collect();
        rows.extend(median_estimate(&service).map(|median| CostRow {
            mode,
            name: "service_cpu_us",
            median,
        }));
    }
    rows
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::Line;
    use crate::record::tests::{run, switch};

    /// Ten blocks, some twice as slow as others in every mode.
    fn switches() -> Switches {
        let modes = [Mode::Resident, Mode::Off, Mode::Anon];
        let mut lines = vec![Line::Run(Box::new(run(&modes)))];
        for block in 0..10 {
            let slow = 1.0 + f64::from(block % 2);
            for (mode, ms) in [
                (Mode::Resident, 100.0),
                (Mode::Off, 400.0),
                (Mode::Anon, 200.0),
            ] {
                let mut sample = switch(block, mode, ms * slow);
                if mode == Mode::Off {
                    sample.frames[0].majflt = 20_000;
                    sample.frames[0].cpu_us = 200_000;
                }
                if mode == Mode::Anon {
                    sample.prepage = vec![serde_json::json!({
                        "void": null,
                        "anon": {"fetched": 10_000, "precision": {"hits": 90, "of": 100}},
                        "file": {"fetched": 0},
                        "timing": {"fetch_cpu_us": 40_000}
                    })];
                }
                lines.push(Line::Sample(Box::new(sample)));
            }
        }
        Switches::by_app(lines).remove(0)
    }

    #[test]
    fn pairs_are_free_of_what_slows_a_whole_block() {
        let full = comparison(&switches(), Mode::Anon, has_gap(&switches()));
        let ratio = full.ratio_to_off.unwrap();
        assert_eq!((ratio.value, ratio.low, ratio.high), (0.5, 0.5, 0.5));
        let gap = full.gap_closed.unwrap();
        assert!(
            (gap.value - 2.0 / 3.0).abs() < 1e-9 && (gap.low - gap.high).abs() < 1e-9,
            "{gap:?}"
        );
    }

    #[test]
    fn the_bound_adds_own_work_and_pages_over_the_cores() {
        let bound = bound(&switches(), has_gap(&switches())).unwrap();
        // (100 ms + 20,000 pages x 4 us) / 2 cores = 90 ms, and resident took longer.
        assert_eq!((bound.us_per_page, bound.us_per_page_of), (4.0, "fetch"));
        assert_eq!(bound.settled_ms.value, 150.0);
        assert_eq!(bound.gap_closed.value, 1.0);
    }

    #[test]
    fn what_is_closed_of_a_gap_that_is_not_clear_is_not_said() {
        let mut switches = switches();
        assert_eq!(has_gap(&switches), Some(true));
        for sample in &mut switches.samples {
            // In every other block resident switches are the slowest.
            if sample.slot.mode == Mode::Resident && sample.slot.block % 2 == 0 {
                sample.t_settled_ns *= 8;
            }
        }
        assert_eq!(has_gap(&switches), Some(false));
        let full = comparison(&switches, Mode::Anon, has_gap(&switches));
        assert!(full.gap_closed.is_none() && full.ratio_to_off.is_some());
        switches.samples.truncate(9);
        assert_eq!(has_gap(&switches), None);
    }

    #[test]
    fn shares_are_pooled() {
        let shares = shares(&switches());
        assert_eq!(shares.len(), 1);
        assert_eq!(
            (shares[0].of, shares[0].share, shares[0].pages),
            ("anon", "precision", 1000)
        );
        assert_eq!(shares[0].percent.value, 90.0);
    }

    #[test]
    fn few_samples_make_no_claim() {
        let mut few = switches();
        few.samples.truncate(9);
        assert!(
            comparison(&few, Mode::Anon, has_gap(&few))
                .gap_closed
                .is_none()
        );
        assert!(mode_row(&few, Mode::Off).settled_ms.is_none());
    }
}
