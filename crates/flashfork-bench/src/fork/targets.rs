//! The project's promises about forking, checked against what was measured: shown, never asserted.

use super::Method;
use super::measured::{Cell, Results};
use super::probe::Measure;
use super::touch::ParentState;
use crate::engine::Pages;
use crate::size::{Size, show};
use crate::stats::{Interval, Ratio, Rounds, median, median_interval, ratio_of_medians};
use crate::table;

const GB: u64 = 1 << 30;
/// The share of pages in the promise about parents that write: 0.01 %.
const FEW: ParentState = ParentState::Wrote(100);

/// A bound promised in the specification.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Bound {
    AtMost(f64),
    AtLeast(f64),
}

/// What the figures are figures of.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Unit {
    Times,
    SecondsPerGb,
    Bytes,
}

/// One promise and how it fared.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Target {
    what: String,
    bound: Bound,
    unit: Unit,
    /// The figure and its 95 % interval; `None` when this run didn't measure it.
    measured: Option<Ratio>,
}

impl Target {
    /// The cells of its table row: what, target, measured, met?
    pub(super) fn row(&self) -> Vec<String> {
        let bound = match self.bound {
            Bound::AtMost(limit) => format!("≤ {}", self.unit.show(limit)),
            Bound::AtLeast(limit) => format!("≥ {}", self.unit.show(limit)),
        };
        let measured = self.measured.as_ref().map_or("not measured".to_owned(), |found| {
            let Interval { low, high } = found.interval;
            let ends = |value| self.unit.show(value).trim_end_matches(" ×").to_owned();
            format!("{} ({}–{})", self.unit.show(found.value), ends(low), ends(high))
        });
        vec![self.what.clone(), bound, measured, self.verdict().to_owned()]
    }

    /// Whether the promise was kept; "too close" when the interval holds both answers.
    fn verdict(&self) -> &'static str {
        let Some(found) = self.measured else { return "" };
        let holds = |value: f64| match self.bound {
            Bound::AtMost(limit) => value <= limit,
            Bound::AtLeast(limit) => value >= limit,
        };
        match (holds(found.interval.low), holds(found.interval.high)) {
            (true, true) => "yes",
            (false, false) => "no",
            _ => "too close",
        }
    }
}

impl Unit {
    fn show(self, value: f64) -> String {
        match self {
            Self::Times => format!("{} ×", table::three_figures(value)),
            Self::SecondsPerGb => format!("{} s/GB", table::three_figures(value)),
            Self::Bytes => show(value.max(0.0) as u64),
        }
    }
}

/// Every promise, with what `results` say about it.
pub(super) fn check(results: &Results) -> Vec<Target> {
    let to_empty = |what: String, size, state, times| Target {
        what,
        bound: Bound::AtMost(times),
        unit: Unit::Times,
        measured: sealed_to_empty(results, size, state),
    };
    let faster = |what: &str, measure, plain, times| Target {
        what: format!("1G, {what}: {plain} ÷ seal"),
        bound: Bound::AtLeast(times),
        unit: Unit::Times,
        measured: plain_to_sealed(results, plain, GB, measure),
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
        faster("fork call", Measure::Call, Method::Fork4k, 100.0),
        faster("fork call", Measure::Call, Method::ForkThp, 5.0),
        to_empty("fork call, sealed 1G, read all, wrote 0.01 % ÷ empty process".to_owned(), GB, FEW, 5.0),
        faster(mixed, Measure::MixedCycle, Method::Fork4k, 40.0),
        faster(mixed, Measure::MixedCycle, Method::ForkThp, 3.0),
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

/// How many times faster than `plain` a sealed, idle parent of the same size was.
pub(super) fn plain_to_sealed(results: &Results, plain: Method, size: u64, measure: Measure) -> Option<Ratio> {
    let cell = |method| results.cell(method, size, ParentState::Idle, measure);
    ratio_of_medians(&cell(plain)?.rounds, &cell(Method::Seal)?.rounds)
}

fn of_samples(mut samples: Vec<f64>) -> Option<Ratio> {
    let interval = median_interval(&Rounds::independent(&samples))?;
    Some(Ratio { value: median(&mut samples), interval })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn target(bound: Bound, low: f64, high: f64) -> Target {
        let measured = Some(Ratio { value: (low + high) / 2.0, interval: Interval { low, high } });
        Target { what: "x".into(), bound, unit: Unit::Times, measured }
    }

    #[test]
    fn a_verdict_needs_the_whole_interval() {
        assert_eq!(target(Bound::AtMost(1.3), 1.0, 1.2).verdict(), "yes");
        assert_eq!(target(Bound::AtMost(1.3), 1.2, 1.4).verdict(), "too close");
        assert_eq!(target(Bound::AtMost(1.3), 1.4, 1.5).verdict(), "no");
        assert_eq!(target(Bound::AtLeast(100.0), 200.0, 300.0).verdict(), "yes");
        assert_eq!(target(Bound::AtLeast(100.0), 20.0, 30.0).verdict(), "no");
    }

    #[test]
    fn a_row_names_target_and_figure() {
        let row = target(Bound::AtLeast(100.0), 200.0, 300.0).row();
        assert_eq!(row, ["x", "≥ 100 ×", "250 × (200–300)", "yes"]);
    }

    #[test]
    fn what_was_not_measured_is_said_to_be_so() {
        let targets = check(&Results::default());
        assert_eq!(targets.len(), 10);
        assert!(targets.iter().all(|target| target.row()[2] == "not measured" && target.row()[3].is_empty()));
    }
}
