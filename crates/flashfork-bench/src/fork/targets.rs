//! The project's promises about forking, checked against what was measured: shown, never asserted.

use super::Method;
use super::measured::{Cell, Results};
use super::probe::Measure;
use super::touch::ParentState;
use crate::engine::Pages;
use crate::size::Size;
use crate::stats::{Ratio, Rounds, median, median_interval, ratio_of_medians};
use crate::target::{Bound, Target, Unit};

const GB: u64 = 1 << 30;
/// The share of pages in the promise about parents that write: 0.01 %.
const FEW: ParentState = ParentState::Wrote(100);

/// Every promise, with what `results` say about it.
pub(super) fn check(results: &Results) -> Vec<Target> {
    let to_empty = |what: String, size, state, times| Target {
        what,
        bound: Bound::AtMost(times),
        unit: Unit::Times,
        measured: sealed_to_empty(results, size, state),
    };
    let times_faster = |what: &str, measure, plain, times| Target {
        what: format!("1G, {what}: {plain} ÷ seal"),
        bound: Bound::AtLeast(times),
        unit: Unit::Times,
        measured: faster(results, plain, Method::Seal, GB, measure),
    };
    let idle = |size| {
        to_empty(format!("fork call, sealed {}, idle ÷ empty process", Size(size)), size, ParentState::Idle, 1.3)
    };
    let mixed = "cycle with 25 reads, 25 writes";
    let small = results.seals.iter().find(|sealing| sealing.size == GB && sealing.pages == Pages::Small);
    vec![
        idle(GB),
        idle(4 * GB),
        idle(8 * GB),
        times_faster("fork call", Measure::Call, Method::Fork4k, 100.0),
        times_faster("fork call", Measure::Call, Method::ForkThp, 5.0),
        to_empty("fork call, sealed 1G, read all, wrote 0.01 % ÷ empty process".to_owned(), GB, FEW, 5.0),
        times_faster(mixed, Measure::MixedCycle, Method::Fork4k, 40.0),
        times_faster(mixed, Measure::MixedCycle, Method::ForkThp, 3.0),
        Target {
            what: "sealing 1G on 4 KB pages".to_owned(),
            bound: Bound::AtMost(0.4),
            unit: Unit::SecondsPerGb,
            measured: small.and_then(|sealing| of_samples(sealing.seconds_per_gb())),
        },
        Target {
            what: "sealing 1G on 4 KB pages, extra memory at the peak".to_owned(),
            bound: Bound::AtMost(f64::from(128 << 20)),
            unit: Unit::Bytes,
            measured: small.and_then(|sealing| of_samples(sealing.peak_extra())),
        },
    ]
}

/// How many times longer than in the empty process beside it the fork call of a sealed parent took.
fn sealed_to_empty(results: &Results, size: u64, state: ParentState) -> Option<Ratio> {
    let sealed = results.cell(Method::Seal, size, state, Measure::Call)?;
    to_empty(results, sealed)
}

/// A cell's median divided by that of the empty process measured beside it.
pub(super) fn to_empty(results: &Results, cell: &Cell) -> Option<Ratio> {
    ratio_of_medians(&cell.rounds, &results.empty_beside(cell)?.rounds)
}

/// How many times faster than `plain` an idle parent of the same size with `engine` was.
pub(super) fn faster(results: &Results, plain: Method, engine: Method, size: u64, measure: Measure) -> Option<Ratio> {
    let cell = |method| results.cell(method, size, ParentState::Idle, measure);
    ratio_of_medians(&cell(plain)?.rounds, &cell(engine)?.rounds)
}

fn of_samples(mut samples: Vec<f64>) -> Option<Ratio> {
    let interval = median_interval(&Rounds::independent(&samples))?;
    Some(Ratio { value: median(&mut samples), interval })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_not_measured_is_said_to_be_so() {
        let targets = check(&Results::default());
        assert_eq!(targets.len(), 10);
        assert!(targets.iter().all(|target| target.row()[2] == "not measured" && target.row()[3].is_empty()));
    }
}
