//! What is known of an application, what the next switch would fetch and why: of an application of the service's, and of a
//! profile in a store that no service has open.

use crate::api::{
    ExplainReply, ExplainedClass, ExplainedLaunch, ExplainedTable, SequenceFilePages,
};
use prepage_core::anon::Table;
use prepage_core::app::{AppModel, Profile};
use prepage_core::extent::ExtentSet;
use prepage_core::file::Standing;
use prepage_core::history::{Calibration, History};
use prepage_core::identity::AppId;
use prepage_core::launch::manager::{LaunchState, Phase};
use prepage_core::launch::sequence::SequenceFile;
use prepage_core::params::{BudgetParams, Mode, Params};
use prepage_core::plan::Plan;
use prepage_core::run_map::{RunMap, Value};
use std::collections::BTreeMap;

/// Most files listed.
const FILES_MAX: usize = 40;

/// Explains what was learned of an application's switches and launches. What only the service knows is left empty: whether it
/// is tracked or left alone, its last switches and launches.
pub fn explain(
    app: &AppId,
    model: &AppModel,
    launch: &LaunchState,
    params: &Params,
    mode: Mode,
    is_under_pressure: bool,
) -> ExplainReply {
    let (profile, plan) = (model.profile(), model.plan());
    let mut files = file_tables(profile, plan);
    let left_out = files.split_off(files.len().min(FILES_MAX));
    let pages_left_out = left_out.iter().fold((0, 0), |(known, planned), file| {
        (known + file.known_pages, planned + file.planned_pages)
    });
    ExplainReply {
        app: app.to_string(),
        tracked: false,
        mode,
        switches: profile.switches,
        profiled: (profile.files.profiled(), params.file.profile_switches),
        confidence: plan.confidence,
        file_confidence: plan.file_confidence,
        confidence_reason: confidence_reason(plan, &params.budget, is_under_pressure),
        left_alone: 0,
        missing: 0,
        processes: process_tables(model, plan),
        files,
        files_left_out: left_out.len() as u64,
        pages_left_out,
        last: Vec::new(),
        launch: explain_launch(launch, params),
    }
}

fn explain_launch(state: &LaunchState, params: &Params) -> ExplainedLaunch {
    let sequence = &state.sequence;
    let mut pages = vec![0; sequence.files.len()];
    for read in &sequence.reads {
        if let Some(pages) = pages.get_mut(read.file as usize) {
            *pages += read.extent.len;
        }
    }
    let file = |(file, pages): (&SequenceFile, u64)| SequenceFilePages {
        path: file.file.path.to_string(),
        pages,
        recordings: file.recordings,
    };
    let mut files: Vec<_> = sequence.files.iter().zip(pages).map(file).collect();
    files.sort_by_key(|file| std::cmp::Reverse(file.pages));
    files.truncate(FILES_MAX);
    ExplainedLaunch {
        launches: state.launches,
        phase: state.phase,
        recordings: (state.n_init, params.launch.n_rawseq),
        left_alone: match state.phase {
            Phase::Off(_) => state.retry_left,
            _ => 0,
        },
        sequence_pages: sequence.pages(),
        sequence_paths: sequence.paths.len() as u64,
        metadata_pages: sequence.metadata.iter().map(|m| m.extent.len).sum(),
        sequence_files: sequence.files.len() as u64,
        files,
        files_left_out: state.files_left_out,
        misses: state.misses,
        helped_us: (state.helped.median_us(), state.helped.len() as u64),
        held_out_us: (state.held_out.median_us(), state.held_out.len() as u64),
        last: Vec::new(),
    }
}

fn confidence_reason(plan: &Plan, budget: &BudgetParams, is_under_pressure: bool) -> String {
    let (named, wanted) = match is_under_pressure {
        true => (
            "budget.confidence_pressure, since tasks wait for memory",
            budget.confidence_pressure,
        ),
        false => (
            "budget.confidence and budget.file_confidence",
            budget.confidence,
        ),
    };
    match plan.confidence > wanted {
        true => format!(
            "raised by {:.2} ({named}) to keep the expected waste within {} pages \
             (budget.waste_pages_max)",
            plan.confidence - wanted,
            budget.waste_pages_max
        ),
        false => named.to_owned(),
    }
}

/// Pages by table and history, with the pages of each that are planned.
type Classes = BTreeMap<(&'static str, usize), (History, u64, u64)>;

fn classes<V: Value>(
    map: &RunMap<V>,
    planned: &ExtentSet,
    class_of: impl Fn(V) -> (&'static str, History),
) -> Classes {
    let mut classes = Classes::new();
    let mut by_key: BTreeMap<(&'static str, usize), Vec<_>> = BTreeMap::new();
    for (extent, state) in map.iter() {
        let (table, history) = class_of(state);
        let entry = classes
            .entry((table, history.class()))
            .or_insert((history, 0, 0));
        entry.1 += extent.len;
        by_key
            .entry((table, history.class()))
            .or_default()
            .push(extent);
    }
    for (key, extents) in by_key {
        let pages: ExtentSet = extents.into_iter().collect();
        if let Some(entry) = classes.get_mut(&key) {
            entry.2 = pages.intersection(planned).pages();
        }
    }
    classes
}

fn table(of: String, classes: Classes, calibration: &Calibration) -> ExplainedTable {
    let mut explained: Vec<ExplainedClass> = classes
        .into_iter()
        .map(
            |((table, _), (history, pages, planned_pages))| ExplainedClass {
                table: table.into(),
                history: history_text(history),
                pages,
                probability: calibration.probability(history),
                planned_pages,
            },
        )
        .collect();
    explained.sort_by(|a, b| b.probability.total_cmp(&a.probability));
    ExplainedTable {
        of,
        known_pages: explained.iter().map(|c| c.pages).sum(),
        planned_pages: explained.iter().map(|c| c.planned_pages).sum(),
        classes: explained,
    }
}

fn history_text(history: History) -> String {
    let bits = history.class();
    let newest_last = (0..history.len()).rev();
    newest_last
        .map(|at| if bits >> at & 1 == 1 { '+' } else { '-' })
        .collect()
}

fn process_tables(model: &AppModel, plan: &Plan) -> Vec<ExplainedTable> {
    let calibration = &model.profile().anon_calibration;
    let of_instance = |(instance, known): (&_, &prepage_core::anon::AnonTable)| {
        let targets = plan.anon.iter().find(|(planned, _)| planned == instance);
        let planned = targets.map(|(_, t)| t.all()).unwrap_or_default();
        let classes = classes(known.map(), &planned, |state| {
            let table = match state.table {
                Table::Candidate => "candidate",
                Table::Target => "target",
            };
            (table, state.history)
        });
        let instance: &prepage_core::identity::Instance = instance;
        table(format!("process {}", instance.pid), classes, calibration)
    };
    let tables = model.instances().map(of_instance);
    most_planned_first(tables.filter(|t| t.known_pages > 0).collect())
}

fn file_tables(profile: &Profile, plan: &Plan) -> Vec<ExplainedTable> {
    let nothing = ExtentSet::new();
    let planned: BTreeMap<_, _> = plan.files.iter().map(|t| (&t.file, &t.wanted)).collect();
    let of_file = |(file, known): (&prepage_core::identity::FileId, &RunMap<_>)| {
        let wanted = planned.get(file).copied().unwrap_or(&nothing);
        let classes = classes(known, wanted, |state: prepage_core::file::FileState| {
            let table = match state.standing {
                Standing::Outside => "known",
                Standing::Target => "target",
                Standing::Evicted => "evicted",
            };
            (table, state.history)
        });
        table(file.path.to_string(), classes, &profile.file_calibration)
    };
    most_planned_first(profile.files.iter().map(of_file).collect())
}

fn most_planned_first(mut tables: Vec<ExplainedTable>) -> Vec<ExplainedTable> {
    tables.sort_by_key(|t| std::cmp::Reverse((t.planned_pages, t.known_pages)));
    tables
}
