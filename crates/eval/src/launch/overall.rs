//! The programs of a record taken together. Pure.

use super::measures::{self, Block, beside_bound, blocks, gap_of, gap_share, over_bound};
use super::record::Launch;
use super::scenario::Scenario;
use super::study::{ProgramRow, ScenarioRow};
use crate::statistics::{Estimate, bootstrap_mean, median_of};
use serde::Serialize;

/// Which programs a mean is over.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Group {
    /// Those that were launched in every scenario that is compared: over these alone scenarios can be held against each
    /// other.
    Complete,
    /// The others: of a program that prepage leaves alone, some scenarios are not measured.
    Others,
    /// All.
    All,
}

/// Some programs together.
#[derive(Clone, Debug, Serialize)]
pub struct GroupRow {
    /// Which.
    pub group: Group,
    /// Their names.
    pub programs: Vec<String>,
    /// A row for each scenario that all of them have.
    pub scenarios: Vec<OverallRow>,
}

/// One scenario over the programs of a group.
#[derive(Clone, Debug, Serialize)]
pub struct OverallRow {
    /// The scenario.
    pub scenario: Scenario,
    /// Arithmetic mean over the programs of their ratio to cold, as the paper's average; its interval, as of all means here, is
    /// by drawing blocks within each program: it is of these programs, and says nothing of others.
    pub ratio_to_cold: Estimate,
    /// The mean of the gap closed, without [`without_gap`].
    pub gap_closed: Option<Estimate>,
    /// The mean of the time over the bound, of what a user gets, over the programs that have a bound.
    pub ratio_to_bound: Option<Estimate>,
}

/// A program with its launches.
#[derive(Clone, Copy)]
struct Member<'a> {
    row: &'a ProgramRow,
    launches: &'a [Launch],
}

/// A row for each group that has a mean: the complete programs, and where there are others these and all. `launches` are
/// those of each program.
pub fn overall(programs: &[ProgramRow], launches: &[Vec<Launch>]) -> Vec<GroupRow> {
    let compared = compared(programs);
    let members = programs.iter().zip(launches);
    let known: Vec<Member<'_>> = members
        .map(|(row, launches)| Member { row, launches })
        .filter(|member| compared.iter().any(|&s| member.has_ratio(s)))
        .collect();
    let is_complete = |member: &Member<'_>| compared.iter().all(|&s| member.has_ratio(s));
    let (complete, others): (Vec<_>, Vec<_>) = known.iter().copied().partition(is_complete);
    let groups = [
        (Group::Complete, complete),
        (Group::Others, others.clone()),
        (Group::All, known),
    ];
    groups
        .into_iter()
        .filter(|(group, _)| *group == Group::Complete || !others.is_empty())
        .map(|(group, of)| GroupRow {
            group,
            programs: of.iter().map(|m| m.row.program.clone()).collect(),
            scenarios: compared.iter().filter_map(|&s| row(&of, s)).collect(),
        })
        .filter(|group| !group.scenarios.is_empty())
        .collect()
}

/// The programs that are not clearly faster warm than cold: what of such a gap is closed is a matter of chance, and would
/// outweigh all others in a mean.
pub fn without_gap(programs: &[ProgramRow]) -> Vec<String> {
    let lacking = programs.iter().filter(|p| p.has_gap == Some(false));
    lacking.map(|program| program.program.clone()).collect()
}

/// The scenarios of a launch that are held against cold, in order.
fn compared(programs: &[ProgramRow]) -> Vec<Scenario> {
    let rows = programs.iter().flat_map(|program| &program.scenarios);
    let with_ratio = rows.filter(|row| row.ratio_to_cold.is_some());
    let mut scenarios: Vec<Scenario> = with_ratio.map(|row| row.scenario).collect();
    scenarios.sort_unstable();
    scenarios.dedup();
    scenarios.retain(|scenario| scenario.runs_program());
    scenarios
}

impl Member<'_> {
    fn scenario(&self, scenario: Scenario) -> Option<&ScenarioRow> {
        self.row.scenarios.iter().find(|s| s.scenario == scenario)
    }

    fn has_ratio(&self, scenario: Scenario) -> bool {
        let row = self.scenario(scenario);
        row.is_some_and(|row| row.ratio_to_cold.is_some())
    }
}

/// A statistic of drawn blocks.
type OfBlocks = fn(&[Block], &[usize], Scenario) -> Option<f64>;

/// Nothing where one of the programs lacks the scenario, nor of one alone.
fn row(members: &[Member<'_>], scenario: Scenario) -> Option<OverallRow> {
    if members.len() < 2 {
        return None;
    }
    let ratios =
        |member: &Member<'_>| measures::compared(member.launches, scenario, |t, cold| t / cold);
    let ratios: Vec<Vec<f64>> = members.iter().map(ratios).collect();
    let sizes: Vec<usize> = ratios.iter().map(Vec::len).collect();
    // Of those of which the statistic is known.
    let mean = |is_known: fn(&ScenarioRow) -> bool, scenarios, statistic: OfBlocks| {
        let known = members
            .iter()
            .filter(|member| member.scenario(scenario).is_some_and(is_known));
        let of_each: Vec<Vec<Block>> = known.map(|m| blocks(m.launches, scenarios)).collect();
        let sizes: Vec<usize> = of_each.iter().map(Vec::len).collect();
        bootstrap_mean(&sizes, |i, drawn| statistic(&of_each[i], drawn, scenario))
    };
    Some(OverallRow {
        scenario,
        ratio_to_cold: bootstrap_mean(&sizes, |i, drawn| median_of(&ratios[i], drawn))?,
        gap_closed: mean(|s| s.gap_closed.is_some(), &gap_of(scenario), gap_share),
        ratio_to_bound: mean(
            |s| s.ratio_to_bound.is_some(),
            &beside_bound(scenario),
            over_bound,
        ),
    })
}

/// The mean over the programs of a group.
pub fn of_group(overall: &[GroupRow], group: Group, scenario: Scenario) -> Option<&OverallRow> {
    let found = overall.iter().find(|row| row.group == group)?;
    let mut rows = found.scenarios.iter();
    rows.find(|row| row.scenario == scenario)
}

#[cfg(test)]
pub(super) mod tests {
    use super::super::record::Line;
    use super::super::study::study_lines;
    use super::super::study::tests::lines;
    use super::*;

    /// Of one of the four programs there are no launches but cold, warm and fast, and these are slower by help.
    pub fn with_one_left_alone() -> Vec<Line> {
        let mut lines = lines();
        lines.retain(|line| !matches!(line, Line::Launch(l) if l.slot.program == "vim" && l.slot.scenario == Scenario::PrefetchOnly));
        for line in &mut lines {
            let Line::Launch(launch) = line else { continue };
            match (launch.slot.program.as_str(), launch.slot.scenario) {
                (_, Scenario::PrefetchOnly) => launch.slot.scenario = Scenario::Sorted,
                ("vim", Scenario::Fast) => {
                    launch.t_end_ns *= 2;
                    (launch.report, launch.left_alone) = (None, true);
                }
                _ => {}
            }
        }
        lines
    }

    #[test]
    fn scenarios_are_held_against_each_other_over_the_same_programs() {
        let study = study_lines(with_one_left_alone());
        let mean = |group, scenario| {
            let row = of_group(&study.overall, group, scenario)?;
            let mean = row.ratio_to_cold;
            Some(((mean.value * 1e3).round() / 1e3, mean.n))
        };
        assert_eq!(mean(Group::Complete, Scenario::Fast), Some((0.6, 3)));
        assert_eq!(mean(Group::Complete, Scenario::Sorted), Some((0.3, 3)));
        // One alone has no mean.
        assert_eq!(mean(Group::Others, Scenario::Fast), None);
        assert_eq!(mean(Group::All, Scenario::Fast), Some((0.75, 4)));
        assert_eq!(mean(Group::All, Scenario::Sorted), None);
        let gap = of_group(&study.overall, Group::Complete, Scenario::Fast)
            .and_then(|row| row.gap_closed);
        let gap = gap.expect("three have a gap");
        assert!((gap.value - 0.8).abs() < 1e-9 && gap.n == 3 && gap.low <= gap.high);
    }

    /// Of vim a warm launch takes as long as a cold one.
    pub fn with_one_without_gap() -> Vec<Line> {
        let mut lines = lines();
        for line in &mut lines {
            if let Line::Launch(launch) = line
                && (launch.slot.program == "vim" && launch.slot.scenario == Scenario::Warm)
            {
                launch.t_end_ns *= 2;
            }
        }
        lines
    }

    #[test]
    fn a_program_without_a_gap_is_left_out_of_the_mean_of_gaps_alone() {
        let study = study_lines(with_one_without_gap());
        assert_eq!(without_gap(&study.programs), ["vim"]);
        let row = of_group(&study.overall, Group::Complete, Scenario::Fast).expect("a mean");
        assert_eq!(row.ratio_to_cold.n, 4);
        assert_eq!(row.gap_closed.map(|gap| gap.n), Some(3));
    }

    #[test]
    fn the_mean_over_the_bound_is_of_all_programs_that_have_one() {
        let study = study_lines(lines());
        let row = of_group(&study.overall, Group::Complete, Scenario::Fast).expect("a mean");
        let over_bound = row.ratio_to_bound.expect("all have a bound");
        assert!((over_bound.value - 1.2).abs() < 1e-9 && over_bound.n == 4);
    }

    #[test]
    fn where_none_is_left_alone_there_is_one_mean() {
        let study = study_lines(lines());
        assert_eq!(study.overall.len(), 1);
        assert_eq!(study.overall[0].programs, ["git", "gcc", "node", "vim"]);
    }
}
