//! The least time of a launch whose pages come in while it runs, from the order in which it needs them. Pure.

use super::measures::{blocks, median_of};
use super::record::{Demand, FirstAccesses, Launch};
use super::scenario::Scenario;
use crate::statistics::{Estimate, bootstrap, median, share_of_gap};
use serde::Serialize;

/// t_bound takes the overlap of device and processor for perfect. But a launch waits for each page when it needs it, and
/// goes on from there: where it needs most of its pages at once, device and processor take turns. So no launch ends before
/// `t_ssd * b_i + t_warm * (1 - a_i)`, for any page i: b_i is the share of the pages that are needed until then, and a_i the
/// share of the warm launch that is over then. This is the largest of these and t_bound. Pages are counted in the order of
/// their need, which no other beats (earliest deadline first).
///
/// Two things are assumed: the device delivers all pages alike fast, and the rest of the launch waits for page i. A program
/// with several threads that do not wait for each other may be faster.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct OrderBound {
    /// Of pages that are certainly needed.
    pub certain: Bound,
    /// Of all, as if those that a fault maps along were needed then. They are needed then or later: too high by that.
    pub mapped: Bound,
}

/// A least time, and what it leaves to gain.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Bound {
    /// The time.
    pub time_ms: Estimate,
    /// (cold - bound) / (cold - warm): the share of the gap that can be closed, where it is clear.
    pub closable: Option<Estimate>,
}

/// The bound of one program, from its launches and its recorded warm ones.
pub fn order_bound(
    launches: &[Launch],
    recorded: &[&FirstAccesses],
    is_clear: bool,
) -> Option<OrderBound> {
    Some(OrderBound {
        certain: bound(launches, recorded, is_clear, |one| &one.certain)?,
        mapped: bound(launches, recorded, is_clear, |one| &one.mapped)?,
    })
}

fn bound(
    launches: &[Launch],
    recorded: &[&FirstAccesses],
    is_clear: bool,
    demands: impl Fn(&FirstAccesses) -> &[Demand],
) -> Option<Bound> {
    // The median over the recorded launches.
    let least_ms = |ssd_ms: f64, warm_ms: f64| {
        let of_each = recorded.iter();
        let of_each = of_each.map(|one| least_ms(ssd_ms, warm_ms, one, demands(one)));
        median(&of_each.collect::<Vec<f64>>())
    };
    let alone = blocks(launches, &[Scenario::Warm, Scenario::PrefetchOnly]);
    let time_ms = bootstrap(alone.len(), |drawn| {
        let of = |scenario| median_of(&alone, drawn, scenario);
        least_ms(of(Scenario::PrefetchOnly)?, of(Scenario::Warm)?)
    })?;
    let scenarios = [Scenario::Cold, Scenario::Warm, Scenario::PrefetchOnly];
    let compared = blocks(launches, &scenarios);
    let closable = bootstrap(compared.len(), |drawn| {
        let of = |scenario| median_of(&compared, drawn, scenario);
        let (cold, warm) = (of(Scenario::Cold)?, of(Scenario::Warm)?);
        let least = least_ms(of(Scenario::PrefetchOnly)?, warm)?;
        share_of_gap(cold, least, warm)
    });
    Some(Bound {
        time_ms,
        closable: closable.filter(|_| is_clear),
    })
}

/// The least time that these demands allow, where all pages take `ssd_ms` of the device, and the launch `warm_ms` once they
/// are there.
fn least_ms(ssd_ms: f64, warm_ms: f64, recorded: &FirstAccesses, demands: &[Demand]) -> f64 {
    let of = |&(pages, at_us): &Demand| {
        let device = pages as f64 / recorded.sequence_pages.max(1) as f64;
        let rest = 1.0 - at_us as f64 / recorded.t_end_us.max(1) as f64;
        ssd_ms * device + warm_ms * rest.max(0.0)
    };
    demands.iter().map(of).fold(ssd_ms.max(warm_ms), f64::max)
}

#[cfg(test)]
mod tests {
    use super::super::record::tests::launch;
    use super::*;

    fn recorded(certain: &[Demand], mapped: &[Demand]) -> FirstAccesses {
        FirstAccesses {
            program: "node".into(),
            t_end_us: 20_000,
            sequence_pages: 100,
            events_lost: 0,
            certain: certain.to_vec(),
            mapped: mapped.to_vec(),
        }
    }

    #[test]
    fn what_is_needed_at_once_makes_the_bound_the_sum() {
        // Everything before the first instruction.
        let one = recorded(&[(100, 0)], &[]);
        assert_eq!(least_ms(16.0, 20.0, &one, &one.certain), 36.0);
        // Half of it there, the rest at the end.
        let one = recorded(&[(50, 0), (100, 20_000)], &[]);
        assert_eq!(least_ms(16.0, 20.0, &one, &one.certain), 28.0);
        // As fast as it is needed: the larger of both.
        let one = recorded(&[(1, 200), (50, 10_000), (100, 20_000)], &[]);
        assert_eq!(least_ms(16.0, 20.0, &one, &one.certain), 20.0);
        assert_eq!(least_ms(50.0, 20.0, &one, &one.certain), 50.0);
        assert_eq!(least_ms(16.0, 20.0, &one, &one.mapped), 20.0);
    }

    #[test]
    fn the_share_of_the_gap_that_it_leaves_is_of_the_same_blocks() {
        let times = [
            (Scenario::Cold, 60.0),
            (Scenario::Warm, 20.0),
            (Scenario::PrefetchOnly, 16.0),
        ];
        let block = |block| times.map(|(scenario, ms)| launch("node", block, scenario, ms));
        let launches: Vec<Launch> = (0..8).flat_map(block).collect();
        let one = recorded(&[(25, 0)], &[(100, 0)]);
        let found = order_bound(&launches, &[&one], true).unwrap();
        assert_eq!(found.certain.time_ms.value, 24.0);
        assert_eq!(found.certain.closable.unwrap().value, 0.9);
        assert_eq!(found.mapped.time_ms.value, 36.0);
        assert_eq!(found.mapped.closable.unwrap().value, 0.6);
        assert!(order_bound(&launches, &[], true).is_none());
    }
}
