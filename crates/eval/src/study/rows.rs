//! The tables of the paper's figures.

use super::beside::Beside;
use super::paper::{POLICIES, Reported};
use super::text::{cells, counts, interval};
use super::{Studies, Study};
use crate::record::Mode;

/// A row for each number of the paper that the record has.
pub fn beside_rows(beside: &[Beside]) -> Vec<Vec<String>> {
    let mut rows = vec![cells(&[
        "what", "here", "of apps", "Pixel 4", "Pixel 3a", "figure", "section",
    ])];
    for row in beside {
        let Reported {
            figure,
            what,
            unit,
            pixel_4,
            pixel_3a,
            section,
        } = row.reported;
        let shown = |value: f64| match unit {
            "x" => format!("{value:.2}"),
            _ => format!("{value:.1}"),
        };
        let here = match row.interval {
            Some((low, high)) => {
                format!("{} [{}, {}]", shown(row.value), shown(low), shown(high))
            }
            None => shown(row.value),
        };
        let mut line = cells(&[what]);
        line[0] += &format!(", {unit}");
        let of = row.of.as_ref().map(|of| format!(", {of}"));
        line.push(here + &of.unwrap_or_default());
        line.push(match row.apps == row.of_apps {
            true => row.apps.to_string(),
            false => format!("{} of {}", row.apps, row.of_apps),
        });
        line.extend(cells(&[pixel_4, pixel_3a, figure, section]));
        rows.push(line);
    }
    rows
}

/// A row for each mode of which use was recorded over time.
pub fn utilization_rows(study: &Study) -> Vec<Vec<String>> {
    let mut rows = vec![cells(&[
        "use in a switch",
        "n",
        "CPU %",
        "application %",
        "prepage %",
        "disk MB/s",
        "disk %",
        "CPU, ratio to off",
        "disk, ratio to off",
        "a reading, us",
    ])];
    for u in &study.utilization {
        rows.push(vec![
            u.mode.word().into(),
            counts(u.cpu_percent.map(|e| e.n)),
            interval(u.cpu_percent, 0),
            interval(u.app_percent, 0),
            interval(u.service_percent, 0),
            interval(u.disk_mb_per_s, 0),
            interval(u.disk_percent, 1),
            interval(u.cpu_ratio_to_off, 2),
            interval(u.disk_ratio_to_off, 2),
            interval(u.reading_us, 0),
        ]);
    }
    rows
}

/// A row for each application whose switches were observed.
pub fn footprint_rows(studies: &Studies) -> Vec<Vec<String>> {
    let mut rows = vec![cells(&[
        "footprint",
        "switches",
        "anon pages",
        "file pages",
        "anon in all but one %",
        "file in all but one %",
        "file in less than half %",
        "in the largest 15 % of files %",
    ])];
    for study in &studies.apps {
        let Some(f) = &study.footprint else { continue };
        let mut row = vec![study.app.clone(), f.switches.to_string()];
        row.extend([f.anon_pages, f.file_pages].map(|pages| format!("{pages:.0}")));
        let shares = [
            f.anon_recurrent_percent,
            f.file_recurrent_percent,
            f.file_rare_percent,
            f.large_files_percent,
        ];
        row.extend(shares.map(|percent| format!("{percent:.0}")));
        rows.push(row);
    }
    rows
}

/// A row for each core policy that the record's switches name, beside the paper's.
pub fn policy_rows(studies: &Studies) -> Vec<Vec<String>> {
    let mut rows = vec![cells(&[
        "core policy",
        "applications",
        "mean ratio to off",
        "to asap",
        "Pixel 4, file pages only (6.5)",
    ])];
    for row in &studies.policies {
        let paper = POLICIES.iter().find(|(policy, _)| *policy == row.policy);
        rows.push(vec![
            row.policy.to_owned(),
            counts(row.ratio_to_off.map(|e| e.n)),
            interval(row.ratio_to_off, 2),
            interval(row.ratio_to_asap, 2),
            paper.map_or("", |(_, ratio)| ratio).to_owned(),
        ]);
    }
    rows
}

/// What help costs an application in mode full: a row for each (ASAP section 6.6).
pub fn overhead_rows(studies: &Studies) -> Vec<Vec<String>> {
    let mut rows = vec![cells(&[
        "overhead, full",
        "n",
        "switch path us",
        "fetching, CPU ms",
        "learning, CPU ms",
        "anon for nothing, pages",
        "file for nothing, pages",
        "tables kB",
    ])];
    for study in &studies.apps {
        let of = |name: &str| {
            let mut costs = study.costs.iter();
            let cost = costs.find(|cost| cost.mode == Mode::Full && cost.name == name);
            cost.map(|cost| cost.median)
        };
        let ms = |name| of(name).map(|cost| cost.map(|us| us / 1e3));
        let Some(path) = of("switch_path_us") else {
            continue;
        };
        rows.push(vec![
            study.app.clone(),
            path.n.to_string(),
            interval(Some(path), 0),
            interval(ms("fetch_cpu_us"), 1),
            interval(ms("management_cpu_us"), 1),
            interval(of("anon_wasted_pages"), 0),
            interval(of("file_wasted_pages"), 0),
            study
                .table_bytes
                .map_or("-".into(), |bytes| (bytes / 1_000).to_string()),
        ]);
    }
    rows
}
