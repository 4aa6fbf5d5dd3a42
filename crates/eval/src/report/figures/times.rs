//! How long switches take, and how good the estimators are.

use crate::record::Mode;
use crate::report::html::{escape, figure};
use crate::report::plot::{Interval, Mark, colour, intervals};
use crate::statistics::Estimate;
use crate::study::text::counts;
use crate::study::{Studies, Study};

/// Figure 1: by what was in memory; nothing where no mode has only a part of it there.
pub fn from_memory(studies: &Studies) -> String {
    const MODES: [Mode; 3] = [Mode::Resident, Mode::FilesDropped, Mode::Off];
    let row = |study: &Study| {
        let mut marks = Vec::new();
        for mode in MODES {
            let row = study.modes.iter().find(|row| row.mode == mode);
            marks.extend(row.and_then(|row| row.settled_ms).map(|estimate| Interval {
                word: mode.word(),
                colour: colour(mode),
                estimate,
            }));
        }
        marks.extend(study.launch_ms.map(|estimate| Interval {
            word: Mode::Launch.word(),
            colour: colour(Mode::Launch),
            estimate,
        }));
        (escape(&study.app), marks)
    };
    let rows: Vec<(String, Vec<Interval>)> = studies.apps.iter().map(row).collect();
    let has = |word| {
        rows.iter()
            .flat_map(|(_, marks)| marks)
            .any(|m| m.word == word)
    };
    let is_partial = has(Mode::FilesDropped.word()) || has(Mode::Launch.word());
    if !is_partial || !has(Mode::Resident.word()) {
        return String::new();
    }
    let launches = counts(
        studies
            .apps
            .iter()
            .filter_map(|study| Some(study.launch_ms?.n)),
    );
    figure(
        "Figure 1. By what is in memory before",
        &format!(
            "Time to the settled picture: all resident; file pages dropped; everything out; and launched, with nothing cached: from \
             its exec to the first picture that stays, without a key to answer (launches of each application: {launches}). In the \
             paper a launch takes longer than a switch, of every application."
        ),
        &intervals(&rows, "ms", None),
    )
}

/// Figure 11: every mode over off, by application and in the mean.
pub fn by_mode(studies: &Studies) -> String {
    over_off(
        studies,
        "Figure 11. Time to the settled picture over that without prepage",
        |mode| mode.core_policy().is_none(),
    )
}

/// Figure 15: every core policy over off.
pub fn by_policy(studies: &Studies) -> String {
    over_off(
        studies,
        "Figure 15. Core policies: time to the settled picture over that without prepage",
        |mode| mode.core_policy().is_some(),
    )
}

fn over_off(studies: &Studies, title: &str, is_shown: fn(Mode) -> bool) -> String {
    let interval = |mode: Mode, estimate: Option<Estimate>| {
        let shown = estimate.filter(|_| mode.is_taken_out() && is_shown(mode));
        shown.map(|estimate| Interval {
            word: mode.word(),
            colour: colour(mode),
            estimate,
        })
    };
    let row = |study: &Study| {
        let all = study.comparisons.iter();
        let marks = all.filter_map(|c| interval(c.mode, c.ratio_to_off));
        (escape(&study.app), marks.collect())
    };
    let mut rows: Vec<(String, Vec<Interval>)> = studies.apps.iter().map(row).collect();
    let means = studies.overall.iter();
    let means = means.filter_map(|o| interval(o.mode, o.ratio_to_off));
    rows.push(("mean".into(), means.collect()));
    if rows.iter().all(|(_, marks)| marks.is_empty()) {
        return String::new();
    }
    let off = Mark {
        value: 1.0,
        name: "off".into(),
    };
    figure(
        title,
        "The median of the pairs with its interval. Left of the line is faster.",
        &intervals(&rows, "time over off", Some(&off)),
    )
}

/// Figure 12: precision and recall, by application.
pub fn estimators(studies: &Studies) -> String {
    let row = |study: &Study| {
        let marks = study.shares.iter().map(|share| {
            let (word, mode) = words(share.of, share.share);
            Interval {
                word,
                colour: colour(mode),
                estimate: share.percent,
            }
        });
        (escape(&study.app), marks.collect())
    };
    let rows: Vec<(String, Vec<Interval>)> = studies.apps.iter().map(row).collect();
    if rows.iter().all(|(_, marks)| marks.is_empty()) {
        return String::new();
    }
    let full = Mark {
        value: 100.0,
        name: "all".into(),
    };
    figure(
        "Figure 12. Precision and recall of the estimators",
        "Pages of all switches together. Precision counts the fetched pages of which prepage saw whether they were used; what is \
         held out is measured in switches in which nothing was fetched.",
        &intervals(&rows, "%", Some(&full)),
    )
}

/// What a share is called, and the mode whose colour it has.
fn words(of: &str, share: &str) -> (&'static str, Mode) {
    match (of, share) {
        ("anon", "precision") => ("anon precision", Mode::Anon),
        ("anon", "holdout_precision") => ("anon precision, held out", Mode::Anon),
        ("anon", _) => ("anon recall, held out", Mode::Anon),
        (_, "precision") => ("file precision", Mode::File),
        (_, "precision_with_gaps") => ("file precision, gaps counted", Mode::File),
        (_, "holdout_precision") => ("file precision, held out", Mode::File),
        _ => ("file recall, held out", Mode::File),
    }
}
