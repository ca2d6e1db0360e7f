//! The records of `bench vm-fork`: what tells them apart, and how they are found again.

use serde_json::{Value, json};

use super::EXPERIMENT;
use super::code::Spread;
use crate::subjects::vm_host::{Claimed, Forked, MemoryPages};
use flashfork_measure::BenchError;
use flashfork_measure::experiment::Results;
use flashfork_measure::record::{Document, Record};
use flashfork_measure::sampling::{Ended, Series};
use flashfork_measure::stats::{Ratio, ratio_of_medians};

/// As records name what forks took, and claims.
const FORK: &str = "live-fork";
const CLAIM: &str = "claim";
const PRIMED: &str = "primed-claim";

/// How many forks lie between a template and the one that booted.
pub(super) const DEPTHS: [u32; 5] = [0, 1, 2, 4, 8];

/// Which guests are forked: both ends of what a guest can be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Guest {
    /// On 4 KB pages, of which each is looked at in the pause, and it writes all over them.
    Wide,
    /// On the 2 MB pages that the monitor makes where it can, and what it writes lies together, so most stay.
    Together,
}

impl Guest {
    pub(super) const ALL: [Self; 2] = [Self::Wide, Self::Together];

    /// As records name it.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Wide => "4k, writes all over",
            Self::Together => "thp, writes together",
        }
    }

    /// What its template's memory is made of.
    pub(super) fn pages(self) -> MemoryPages {
        match self {
            Self::Wide => MemoryPages::Small,
            Self::Together => MemoryPages::Thp,
        }
    }

    /// Where it writes.
    pub(super) fn spread(self) -> Spread {
        match self {
            Self::Wide => Spread::Wide,
            Self::Together => Spread::Together,
        }
    }
}

/// What is found of a fork.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Part {
    /// For how long the guest stood still.
    Pause,
    /// Of it: until it did.
    Stop,
    /// Of it: what was left was copied.
    Copy,
    /// Of it: the machine's state was saved.
    Save,
    /// Before it: from the request until nearly all was copied.
    Before,
    /// Pages that were copied in the pause.
    Left,
    /// Pages that the guest wrote since it could be forked, or was forked last.
    Written,
}

impl Part {
    pub(super) const ALL: [Self; 7] =
        [Self::Pause, Self::Stop, Self::Copy, Self::Save, Self::Before, Self::Left, Self::Written];

    /// As records name it.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Pause => "pause",
            Self::Stop => "stop",
            Self::Copy => "copy",
            Self::Save => "save",
            Self::Before => "copied before",
            Self::Left => "pages left",
            Self::Written => "pages written",
        }
    }

    /// What it was of one fork, in its unit. `written`: pages.
    pub(super) fn of(self, fork: &Forked, written: u32) -> f64 {
        let us = |nanoseconds: u64| nanoseconds as f64 / 1e3;
        match self {
            Self::Pause => us(fork.pause.total()),
            Self::Stop => us(fork.pause.stop),
            Self::Copy => us(fork.pause.copy),
            Self::Save => us(fork.pause.save),
            Self::Before => fork.copying.as_secs_f64() * 1e6,
            Self::Left => fork.pause.pages as f64,
            Self::Written => f64::from(written),
        }
    }

    fn unit(self) -> &'static str {
        match self {
            Self::Left | Self::Written => "count",
            _ => "us",
        }
    }
}

/// Forks of guests of one kind and size.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Forks {
    pub guest: Guest,
    /// Bytes of a guest's memory.
    pub size: u64,
    /// What it writes of it in a second.
    pub percent: f64,
}

impl Forks {
    /// Keeps the samples of one part. `tracked`: whether anything was copied while the guests ran.
    pub(super) fn keep(
        self,
        tracked: bool,
        series: &Series<Part>,
        ended: Ended,
        results: &mut Results,
    ) -> Result<(), BenchError> {
        let part = series.measure;
        let chosen = [
            ("measure", json!(part.name())),
            ("guest", json!(self.guest.name())),
            ("size", json!(self.size)),
            ("written_percent", json!(self.percent)),
        ];
        results.keep(FORK, chosen, [("tracked", json!(tracked))], part.unit(), series, ended)
    }
}

/// What is timed of a claim.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Step {
    /// From the request until the client knows of the first exit.
    FirstExit,
    /// Of it: what the shell took.
    Shell,
    /// Of it: memory was mapped.
    Map,
}

impl Step {
    pub(super) const ALL: [Self; 3] = [Self::FirstExit, Self::Shell, Self::Map];

    /// As records name it.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::FirstExit => "first exit",
            Self::Shell => "in the shell",
            Self::Map => "map",
        }
    }

    /// Microseconds of it.
    pub(super) fn of(self, claimed: &Claimed) -> f64 {
        match self {
            Self::FirstExit => claimed.total.as_secs_f64() * 1e6,
            Self::Shell => claimed.times.total() as f64 / 1e3,
            Self::Map => claimed.times.map as f64 / 1e3,
        }
    }
}

/// Claims of one template.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Claims {
    pub depth: u32,
    /// Whether their shells were primed: then their memory was mapped before.
    pub primed: bool,
    /// Pages that each level has written.
    pub pages: u32,
    /// Bytes of a guest's memory.
    pub size: u64,
}

impl Claims {
    /// Keeps the samples of one step. `layers`: files and extents that make up the template's memory.
    pub(super) fn keep(
        self,
        layers: [usize; 2],
        series: &Series<Step>,
        ended: Ended,
        results: &mut Results,
    ) -> Result<(), BenchError> {
        let chosen = [
            ("measure", json!(series.measure.name())),
            ("depth", json!(self.depth)),
            ("pages", json!(self.pages)),
            ("size", json!(self.size)),
        ];
        let [files, extents] = layers;
        results.keep(
            method(self.primed),
            chosen,
            [("files", json!(files)), ("extents", json!(extents))],
            "us",
            series,
            ended,
        )
    }
}

/// As records name claims of shells that are primed or not.
fn method(primed: bool) -> &'static str {
    if primed { PRIMED } else { CLAIM }
}

/// The record of a part of forks of guests of `size`.
pub(super) fn part(document: &Document, guest: Guest, size: u64, part: Part) -> Option<&Record> {
    let wanted = [("measure", json!(part.name())), ("guest", json!(guest.name())), ("size", json!(size))];
    document.find(EXPERIMENT, FORK, &wanted)
}

/// The record of a step of claims at a depth.
pub(super) fn step(document: &Document, primed: bool, depth: u32, step: Step) -> Option<&Record> {
    document.find(EXPERIMENT, method(primed), &[("measure", json!(step.name())), ("depth", json!(depth))])
}

/// How many times as long the guests of one size stood still as those of another.
pub(super) fn pauses(document: &Document, guest: Guest, size: u64, other: u64) -> Option<Ratio> {
    ratio(part(document, guest, size, Part::Pause), part(document, guest, other, Part::Pause))
}

/// How many times as long a step of claims took at one depth as at another.
pub(super) fn claims(document: &Document, primed: bool, depth: u32, other: u32, of: Step) -> Option<Ratio> {
    ratio(step(document, primed, depth, of), step(document, primed, other, of))
}

fn ratio(over: Option<&Record>, under: Option<&Record>) -> Option<Ratio> {
    ratio_of_medians(&over?.rounds(), &under?.rounds())
}

/// The sizes of guests of a kind that were forked, ascending.
pub(super) fn sizes(document: &Document, guest: Guest) -> Vec<u64> {
    let own = document.records.iter().filter(|record| {
        let named = record.chosen.get("guest").and_then(Value::as_str) == Some(guest.name());
        record.experiment == EXPERIMENT && record.method == FORK && named
    });
    let mut sizes: Vec<u64> = own.filter_map(|record| record.chosen.get("size").and_then(Value::as_u64)).collect();
    sizes.sort_unstable();
    sizes.dedup();
    sizes
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use flashfork_measure::host::HostCard;
    use flashfork_measure::stats::Rounds;

    /// Records of guests of 1 and 2 GB that stand still for 1 and 1.1 ms, and claims whose every fork takes 10 of 200
    /// µs, or of 400 if primed.
    pub(in super::super) fn document(tracked: bool) -> Document {
        let mut results = Results::new(EXPERIMENT);
        let rounds = |value: f64| Rounds(vec![vec![value]; 6]);
        for (size, pause) in [(1 << 30, 1000.0), (2 << 30, 1100.0)] {
            for measure in Part::ALL {
                let series = Series { measure, warm_up: Vec::new(), rounds: rounds(pause) };
                Forks { guest: Guest::Wide, size, percent: 1.0 }
                    .keep(tracked, &series, Ended::Rounds, &mut results)
                    .unwrap();
            }
        }
        for (depth, primed) in DEPTHS.into_iter().flat_map(|depth| [(depth, false), (depth, true)]) {
            for measure in Step::ALL {
                let none = if primed { 400.0 } else { 200.0 };
                let series = Series { measure, warm_up: Vec::new(), rounds: rounds(none + 10.0 * f64::from(depth)) };
                let claims = Claims { depth, primed, pages: 64, size: 256 << 20 };
                claims.keep([depth as usize + 1, 1234], &series, Ended::Rounds, &mut results).unwrap();
            }
        }
        Document::new(HostCard::read().unwrap(), results.records)
    }

    #[test]
    fn sizes_are_compared_with_sizes_and_depths_with_depths() {
        let document = document(true);
        assert_eq!(sizes(&document, Guest::Wide), [1 << 30, 2 << 30]);
        assert!(sizes(&document, Guest::Together).is_empty());
        assert_eq!(pauses(&document, Guest::Wide, 2 << 30, 1 << 30).unwrap().value, 1.1);
        assert!(pauses(&document, Guest::Wide, 2 << 30, 256 << 20).is_none());
        assert_eq!(claims(&document, false, 8, 1, Step::FirstExit).unwrap().value, 280.0 / 210.0);
        assert_eq!(claims(&document, true, 8, 1, Step::FirstExit).unwrap().value, 480.0 / 410.0);
    }
}
