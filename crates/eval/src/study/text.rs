//! A study as a small table of text.

use super::overall::{LOSS_MAX, Overall};
use super::rows::{beside_rows, footprint_rows, overhead_rows, policy_rows, utilization_rows};
use super::{Studies, Study, sequences, stalls};
use crate::circumstances::factors_line;
use crate::record::{Mode, Parameters, Setting};
use crate::statistics::Estimate;
use std::collections::BTreeMap;
use std::fmt::Write;

/// "value [low, high]", or nothing where there is no interval.
pub fn interval(estimate: Option<Estimate>, decimals: usize) -> String {
    match estimate {
        Some(e) => format!(
            "{:.decimals$} [{:.decimals$}, {:.decimals$}]",
            e.value, e.low, e.high
        ),
        None => "-".into(),
    }
}

/// The same in hundredths.
pub fn percent(estimate: Option<Estimate>) -> String {
    match estimate.map(|e| e.map(|share| share * 100.0)) {
        Some(e) => format!("{:.0} % [{:.0}, {:.0}]", e.value, e.low, e.high),
        None => "-".into(),
    }
}

/// What is closed of a gap in hundredths, where it is known whether that is clear.
pub fn gap_percent(gap_closed: Option<Estimate>, has_gap: Option<bool>) -> String {
    match (gap_closed, has_gap) {
        (None, Some(false)) => "no clear gap".into(),
        _ => percent(gap_closed),
    }
}

/// A mean in hundredths, and of how many it is.
pub fn mean_percent(mean: Option<Estimate>) -> String {
    match mean {
        Some(e) => format!("{} of {}", percent(mean), e.n),
        None => "-".into(),
    }
}

/// How many something is of, where it may differ: "8", or "5-8".
pub fn counts(counts: impl IntoIterator<Item = usize>) -> String {
    let counts: Vec<usize> = counts.into_iter().collect();
    match (counts.iter().min(), counts.iter().max()) {
        (Some(least), Some(most)) if least == most => most.to_string(),
        (Some(least), Some(most)) => format!("{least}-{most}"),
        _ => "-".into(),
    }
}

/// The setting in words.
pub fn setting_words(parameters: &Parameters) -> String {
    let is_resident = parameters.modes.iter().all(|mode| mode.is_resident());
    let what = match parameters.setting {
        Setting::Reclaimed if is_resident => "everything resident",
        Setting::Reclaimed => "everything swapped out and dropped",
        Setting::Pressure => "pushed out by other applications under a shared limit",
        Setting::Together => "all applications at once under a shared limit",
    };
    match parameters.limit_bytes {
        Some(bytes) => format!("{what} of {} MiB", bytes >> 20),
        None => what.to_owned(),
    }
}

/// Adds those of the tables that have more than a head.
pub fn add_tables(out: &mut String, tables: &[Vec<Vec<String>>]) {
    for rows in tables.iter().filter(|rows| rows.len() > 1) {
        let _ = write!(out, "\n{}", table(rows));
    }
}

/// Adds how many samples were discarded for what reason, if any were.
pub fn add_discarded(out: &mut String, discarded: &BTreeMap<String, usize>) {
    if !discarded.is_empty() {
        let reasons = discarded.iter();
        let listed: Vec<String> = reasons.map(|(why, n)| format!("{n} {why}")).collect();
        let _ = writeln!(out, "\n  discarded: {}", listed.join(", "));
    }
}

/// Rows of cells as aligned columns: the first to the left, the others to the right.
pub fn table(rows: &[Vec<String>]) -> String {
    let columns = rows.iter().map(Vec::len).max().unwrap_or(0);
    let width = |c: usize| {
        rows.iter()
            .filter_map(|r| r.get(c))
            .map(|cell| cell.chars().count())
            .max()
            .unwrap_or(0)
    };
    let widths: Vec<usize> = (0..columns).map(width).collect();
    let mut out = String::new();
    for row in rows {
        let mut line = String::new();
        for (c, cell) in row.iter().enumerate() {
            let width = widths[c];
            let _ = if c == 0 {
                write!(line, "  {cell:<width$}")
            } else {
                write!(line, "  {cell:>width$}")
            };
        }
        let _ = writeln!(out, "{}", line.trim_end());
    }
    out
}

/// Words as cells.
pub fn cells(words: &[&str]) -> Vec<String> {
    words.iter().map(|w| w.to_string()).collect()
}

/// What a paper shows, whether a study has it, and how it is measured.
pub type Shown<T> = (&'static str, fn(&T) -> bool, &'static str);

/// A row for each, whether one of these has it; below a first one that names the paper.
pub fn shown_or_not<T>(paper: &str, shown: &[Shown<T>], studies: &[T]) -> Vec<Vec<String>> {
    let row = |(what, has, how): &Shown<T>| match studies.iter().any(has) {
        true => cells(&[what, "shown above"]),
        false => cells(&[what, &format!("not measured: {how}")]),
    };
    let first = cells(&[paper, "here"]);
    std::iter::once(first)
        .chain(shown.iter().map(row))
        .collect()
}

/// The studies of one record: of each application, then of all.
pub fn show(studies: &Studies) -> String {
    let mut parts: Vec<String> = studies.apps.iter().map(show_app).collect();
    let tables = [
        footprint_rows(studies),
        policy_rows(studies),
        overhead_rows(studies),
    ];
    for rows in tables {
        parts.extend((rows.len() > 1).then(|| table(&rows)));
    }
    if !studies.overall.is_empty() {
        parts.push(format!(
            "every application against off\n{}\nall applications, each counted alike\n{}{}",
            table(&app_rows(studies)),
            table(&overall_rows(studies)),
            [losses(studies), left_out(studies)]
                .into_iter()
                .flatten()
                .map(|note| format!("  {note}\n"))
                .collect::<String>()
        ));
    }
    if let rows @ [_, _, ..] = &sequences::sequence_rows(studies)[..] {
        parts.push(table(rows));
    }
    if let rows @ [_, _, ..] = &stalls::stall_rows(studies)[..] {
        parts.push(format!("{}\n  {}\n", table(rows), stalls::NOTE));
    }
    if !studies.beside.is_empty() {
        let rows = beside_rows(&studies.beside);
        parts.push(format!("beside the paper (ASAP)\n{}", table(&rows)));
    }
    parts.join("\n")
}

fn show_app(study: &Study) -> String {
    let p = &study.run.parameters;
    let mut out = format!(
        "{}: {} (seed {}); medians with 95 % intervals\n",
        study.app,
        setting_words(p),
        p.seed
    );
    let factors = factors_line(&study.run.machine, p.factors.throttle);
    let _ = writeln!(out, "{factors}");
    out += &table(&mode_rows(study));
    if let Some(launch) = study.launch_ms {
        let _ = writeln!(
            out,
            "\n  launched, with nothing cached: {} ms to the settled picture ({} launches)",
            interval(Some(launch), 0),
            launch.n
        );
    }
    if !study.comparisons.is_empty() {
        out += "\n";
        out += &table(&comparison_rows(study));
    }
    if let Some(bound) = &study.bound {
        let _ = writeln!(
            out,
            "\n  bound: ({:.0} ms application CPU + {:.0} pages x {:.1} us by {}) / {} cores, at least resident: {} ms, \
             {} of the gap ({} pairs)",
            bound.app_cpu_ms,
            bound.pages,
            bound.us_per_page,
            bound.us_per_page_of,
            study.run.machine.cores,
            interval(Some(bound.settled_ms), 0),
            percent(Some(bound.gap_closed)),
            bound.gap_closed.n,
        );
    }
    for line in remarks(study) {
        let _ = writeln!(out, "\n  {line}");
    }
    if !study.shares.is_empty() {
        out += "\n";
        out += &table(&share_rows(study));
    }
    if !study.costs.is_empty() {
        out += "\n";
        out += &table(&cost_rows(study));
    }
    add_tables(&mut out, &[utilization_rows(study)]);
    add_discarded(&mut out, &study.discarded);
    out
}

/// A row for each mode.
pub fn mode_rows(study: &Study) -> Vec<Vec<String>> {
    let mut rows = vec![cells(&[
        "mode",
        "n",
        "settled ms",
        "first frame ms",
        "demand faults",
        "CPU ms",
        "swapped out pages",
    ])];
    let is_limited = study.modes.iter().any(|m| m.limit_left_mib.is_some());
    let limit_left = is_limited.then(|| "left by the limit, MiB".to_owned());
    rows[0].extend(limit_left);
    let has_stalls = stalls::is_known(study);
    rows[0].extend(
        stalls::HEADS
            .iter()
            .filter(|_| has_stalls)
            .map(|head| (*head).to_owned()),
    );
    for m in &study.modes {
        let mut row = vec![
            m.mode.word().into(),
            m.samples.to_string(),
            interval(m.settled_ms, 0),
            interval(m.first_frame_ms, 0),
            interval(m.demand_faults, 0),
            interval(m.app_cpu_ms, 0),
            interval(m.swapped_out_pages, 0),
        ];
        row.extend(is_limited.then(|| interval(m.limit_left_mib, 0)));
        row.extend(
            stalls::stall_cells(&m.stalls)
                .into_iter()
                .filter(|_| has_stalls),
        );
        rows.push(row);
    }
    rows
}

/// A row for each mode against off.
pub fn comparison_rows(study: &Study) -> Vec<Vec<String>> {
    let mut rows = vec![cells(&[
        "against off",
        "pairs",
        "settled, ratio",
        "first frame, ratio",
        "gap closed",
    ])];
    for c in &study.comparisons {
        rows.push(vec![
            c.mode.word().into(),
            c.ratio_to_off.map_or(0, |e| e.n).to_string(),
            interval(c.ratio_to_off, 2),
            interval(c.first_frame_ratio_to_off, 2),
            gap_percent(
                c.gap_closed,
                study.has_gap.filter(|_| c.mode.is_taken_out()),
            ),
        ]);
    }
    rows
}

/// A row for each application and each mode that helps.
pub fn app_rows(studies: &Studies) -> Vec<Vec<String>> {
    let mut rows = vec![cells(&[
        "application",
        "mode",
        "off ms",
        "ms",
        "pairs",
        "settled, ratio",
        "gap closed",
    ])];
    for study in &studies.apps {
        let settled = |mode| {
            let row = study.modes.iter().find(|row| row.mode == mode);
            interval(row.and_then(|row| row.settled_ms), 0)
        };
        for c in study.comparisons.iter().filter(|c| c.mode.is_taken_out()) {
            rows.push(vec![
                study.app.clone(),
                c.mode.word().into(),
                settled(Mode::Off),
                settled(c.mode),
                c.ratio_to_off.map_or(0, |e| e.n).to_string(),
                interval(c.ratio_to_off, 2),
                gap_percent(c.gap_closed, study.has_gap),
            ]);
        }
    }
    rows
}

/// A row for each mode, over all applications.
pub fn overall_rows(studies: &Studies) -> Vec<Vec<String>> {
    let mut rows = vec![cells(&["mode", "mean ratio", "mean gap closed", "faster"])];
    let loss = 100.0 * LOSS_MAX;
    rows[0].push(format!("excludes a loss of {loss:.0} %"));
    rows[0].extend(["open".into(), "slower".into()]);
    for o in &studies.overall {
        let of_apps = |count: usize| format!("{count} of {}", o.apps);
        rows.push(vec![
            o.mode.word().into(),
            interval(o.ratio_to_off, 2),
            mean_percent(o.gap_closed),
            of_apps(o.faster),
            of_apps(o.no_loss),
            of_apps(o.open),
            of_apps(o.slower),
        ]);
    }
    rows
}

/// What is known of losses in a mode: never that none is slower where it is not so of each.
pub fn loss_words(o: &Overall) -> String {
    let loss = 100.0 * LOSS_MAX;
    let (mode, apps) = (o.mode.word(), o.apps);
    let known = match o.no_loss == apps {
        true => format!("{mode}: all {apps} exclude a loss of {loss:.0} % (95 % intervals)"),
        false => format!(
            "{mode}: {} of {apps} exclude a loss of {loss:.0} % (95 % intervals)",
            o.no_loss
        ),
    };
    let slower = match o.slower {
        0 => String::new(),
        slower => format!("; {slower} slower"),
    };
    let open = match o.open {
        0 => String::new(),
        1 => "; for the other one it is open".to_owned(),
        open => format!("; for the other {open} it is open"),
    };
    format!("{known}{slower}{open}.")
}

/// What is known of losses in each mode that helps.
pub fn losses(studies: &Studies) -> Option<String> {
    let helped = studies.overall.iter().filter(|o| o.mode.is_helped());
    let words: Vec<String> = helped.map(loss_words).collect();
    (!words.is_empty()).then(|| words.join(" "))
}

/// Which applications the mean gap closed leaves out, and why; nothing where it leaves out none.
pub fn left_out(studies: &Studies) -> Option<String> {
    let names = studies.without_gap.join(", ");
    (!names.is_empty()).then(|| {
        format!(
            "The mean gap closed leaves out {names}: not clearly slower swapped out than resident (the interval of resident over \
             off, of their medians, reaches 1)."
        )
    })
}

/// A row for each precision and recall.
pub fn share_rows(study: &Study) -> Vec<Vec<String>> {
    let mut rows = vec![cells(&["prepage", "switches", "%", "pages"])];
    for s in &study.shares {
        let name = format!("{} {}", s.of, s.share.replace('_', " "));
        rows.push(vec![
            name,
            s.percent.n.to_string(),
            interval(Some(s.percent), 1),
            s.pages.to_string(),
        ]);
    }
    rows
}

/// What prepage itself took: a row for each cost, a column for each mode, with the number of its samples.
pub fn cost_rows(study: &Study) -> Vec<Vec<String>> {
    let mut modes: Vec<Mode> = study.costs.iter().map(|cost| cost.mode).collect();
    modes.dedup();
    let mut names: Vec<&str> = Vec::new();
    for cost in &study.costs {
        if !names.contains(&cost.name) {
            names.push(cost.name);
        }
    }
    let mut rows = vec![cells(&["prepage's own"])];
    let samples = |mode: &Mode| {
        let own = study.costs.iter().filter(|cost| cost.mode == *mode);
        counts(own.map(|cost| cost.median.n))
    };
    let head = |mode: &Mode| format!("{} (n {})", mode.word(), samples(mode));
    rows[0].extend(modes.iter().map(head));
    for name in names {
        let of = |mode| {
            study
                .costs
                .iter()
                .find(|c| c.name == name && c.mode == mode)
        };
        let mut row = vec![name.replace('_', " ")];
        row.extend(
            modes
                .iter()
                .map(|&mode| interval(of(mode).map(|c| c.median), 0)),
        );
        rows.push(row);
    }
    rows
}

/// In words: what watching and helping cost where nothing has to be fetched, how many switches had no end, and of how many
/// the longest waits may be missing.
pub fn remarks(study: &Study) -> Vec<String> {
    let costs = [("observe", study.watching_ms), ("full", study.needless_ms)];
    let line = |(mode, cost): (&str, Option<Estimate>)| {
        let (ms, pairs) = (interval(cost, 2), cost?.n);
        Some(format!(
            "{mode} against off, all resident: {ms} ms ({pairs} pairs)"
        ))
    };
    let mut lines: Vec<String> = costs.into_iter().filter_map(line).collect();
    let samples: usize = study.modes.iter().map(|m| m.samples).sum();
    let cap_s = study.run.parameters.cap_ms as f64 / 1e3;
    let capped = [
        (
            study.unanswered,
            "did not answer the key, or without one was not drawn again as it was: name a key that always changes it (--answer-key)",
        ),
        (study.restless, "did not come to rest"),
    ];
    for (count, what) in capped.into_iter().filter(|&(count, _)| count > 0) {
        lines.push(format!(
            "{count} of {samples} switches count as {cap_s} s, since their picture {what}"
        ));
    }
    if study.incomplete_stalls > 0 {
        lines.push(format!(
            "in {} switches events are missing: the longest fault or mmap may have been longer",
            study.incomplete_stalls
        ));
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::tests::{run, switch};
    use crate::record::{Line, Switch};
    use crate::study::study_switches;
    use crate::study::switches::Switches;

    #[test]
    fn switches_that_only_the_cap_ended_are_told() {
        let sample = |mode, capped, answer_tiles| {
            Line::Sample(Box::new(Switch {
                capped,
                answer_tiles,
                ..switch(0, mode, 6_000.0)
            }))
        };
        let lines = vec![
            Line::Run(Box::new(run(&[Mode::Resident, Mode::Off, Mode::Full]))),
            sample(Mode::Resident, false, 500),
            sample(Mode::Off, true, 10),
            sample(Mode::Full, true, 500),
        ];
        let said = remarks(&study_switches(&Switches::by_app(lines)[0]));
        assert_eq!(said.len(), 2, "{said:?}");
        assert!(said[0].starts_with("1 of 3") && said[0].contains("--answer-key"));
        assert!(said[1].starts_with("1 of 3") && said[1].contains("rest"));
    }

    #[test]
    fn columns_are_aligned() {
        let text = table(&[cells(&["a", "bb"]), cells(&["ccc", "d"])]);
        assert_eq!(text, "  a    bb\n  ccc   d\n");
    }

    #[test]
    fn a_loss_is_excluded_or_open_or_there() {
        let of = |no_loss, slower, open| {
            loss_words(&Overall {
                mode: Mode::Full,
                apps: 8,
                ratio_to_off: None,
                gap_closed: None,
                faster: 0,
                no_loss,
                slower,
                open,
            })
        };
        assert_eq!(
            of(8, 0, 0),
            "full: all 8 exclude a loss of 3 % (95 % intervals)."
        );
        assert!(of(5, 0, 3).ends_with(
            "5 of 8 exclude a loss of 3 % (95 % intervals); for the other 3 it is open."
        ));
        assert!(of(6, 1, 1).ends_with("; 1 slower; for the other one it is open."));
    }

    #[test]
    fn numbers_that_differ_are_a_range() {
        assert_eq!(counts([8, 8]), "8");
        assert_eq!(counts([8, 5, 7]), "5-8");
        assert_eq!(counts([]), "-");
    }

    #[test]
    fn nothing_without_an_interval_is_printed() {
        assert_eq!(interval(None, 1), "-");
        let e = Estimate {
            value: 0.7,
            low: 0.6,
            high: 0.8,
            n: 9,
        };
        assert_eq!(interval(Some(e), 2), "0.70 [0.60, 0.80]");
        assert_eq!(percent(Some(e)), "70 % [60, 80]");
    }
}
