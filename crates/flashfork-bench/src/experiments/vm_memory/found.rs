//! The records of `bench vm-memory`: what tells them apart, and how they are found again.

use serde_json::json;

use super::EXPERIMENT;
use super::code::{Access, FIRST, PAGE};
use crate::subjects::vm_host::MemoryPages;
use flashfork_measure::BenchError;
use flashfork_measure::experiment::Results;
use flashfork_measure::record::{Document, Record};
use flashfork_measure::sampling::{Ended, Series};
use flashfork_measure::stats::{Ratio, ratio_of_medians};

/// One way over all memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Pass {
    Unbacked,
    Backed,
    Shared,
    BackedClone,
}

impl Pass {
    pub(super) const ALL: [Self; 4] = [Self::Unbacked, Self::Backed, Self::Shared, Self::BackedClone];

    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Unbacked => "booted, first",
            Self::Backed => "booted, second",
            Self::Shared => "clone, first",
            Self::BackedClone => "clone, second",
        }
    }
}

/// One kind of guest.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Cell {
    /// What it does to its memory.
    pub access: Access,
    /// What its memory is made of.
    pub pages: MemoryPages,
}

impl Cell {
    /// Keeps the samples of one pass: microseconds a page. `size`: bytes of the guest's memory.
    pub(super) fn keep(
        self,
        size: u64,
        huge_fraction: f64,
        series: &Series<Pass>,
        ended: Ended,
        results: &mut Results,
    ) -> Result<(), BenchError> {
        let chosen = [
            ("pass", json!(series.measure.name())),
            ("access", json!(self.access.name())),
            ("size", json!(size)),
            ("pages_touched", json!(touched(size))),
        ];
        let observed = [("template_huge_fraction", json!(huge_fraction))];
        results.keep(self.pages.name(), chosen, observed, "us/page", series, ended)
    }

    /// The record of a pass.
    pub(super) fn find(self, document: &Document, pass: Pass) -> Option<&Record> {
        let wanted = [("pass", json!(pass.name())), ("access", json!(self.access.name()))];
        document.find(EXPERIMENT, self.pages.name(), &wanted)
    }

    /// How many times as long one pass took as another.
    pub(super) fn ratio(self, document: &Document, pass: Pass, other: Pass) -> Option<Ratio> {
        ratio_of_medians(&self.find(document, pass)?.rounds(), &self.find(document, other)?.rounds())
    }
}

/// Pages of 4 KB that a pass over a guest of `size` bytes touches.
pub(super) fn touched(size: u64) -> u64 {
    (size - u64::from(FIRST)) / u64::from(PAGE)
}

#[cfg(test)]
mod tests {
    use super::*;
    use flashfork_measure::host::HostCard;

    #[test]
    fn passes_of_the_same_guests_are_compared() {
        assert_eq!(touched(4 << 20), 512);
        let cell = Cell { access: Access::Write, pages: MemoryPages::Thp };
        let of = |pass: Pass, figure: f64| {
            let chosen = [("pass", json!(pass.name())), ("access", json!(cell.access.name()))];
            Record::new(EXPERIMENT, cell.pages.name(), chosen, "us/page", vec![figure; 2]).unwrap()
        };
        let records = vec![of(Pass::Shared, 2.0), of(Pass::BackedClone, 1.0)];
        let document = Document::new(HostCard::read().unwrap(), records);
        assert_eq!(cell.ratio(&document, Pass::Shared, Pass::BackedClone).unwrap().value, 2.0);
        assert!(cell.ratio(&document, Pass::Shared, Pass::Unbacked).is_none());
    }
}
