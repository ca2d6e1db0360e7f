//! What was measured, on its way to records and tables.

use serde_json::json;

use super::EXPERIMENT;
use super::code::{Access, FIRST, PAGE};
use crate::BenchError;
use crate::record::Record;
use crate::stats::{Ratio, Rounds, ratio_of_medians};
use crate::vm_host::MemoryPages;

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

/// The samples of one kind of guest: nanoseconds of the passes, round by round. Where the monitor's guests can't be booted on
/// such pages the first two are missing.
#[derive(Debug, Clone)]
pub(super) struct Cell {
    pub access: Access,
    pub pages: MemoryPages,
    pub huge_fraction: f64,
    pub booted: Vec<[u64; 2]>,
    pub clone: Vec<[u64; 2]>,
}

/// Everything a run measured.
#[derive(Debug, Default)]
pub(super) struct Results {
    /// Of the guests' memory, in bytes.
    pub size: u64,
    pub cells: Vec<Cell>,
    /// What was left out and why.
    pub notes: Vec<String>,
}

impl Results {
    /// Pages of 4 KB that a pass touches.
    pub(super) fn touched(&self) -> u64 {
        (self.size - u64::from(FIRST)) / u64::from(PAGE)
    }

    /// Microseconds a page, one sample a round.
    pub(super) fn per_page(&self, cell: &Cell, pass: Pass) -> Rounds {
        let (passes, index) = match pass {
            Pass::Unbacked => (&cell.booted, 0),
            Pass::Backed => (&cell.booted, 1),
            Pass::Shared => (&cell.clone, 0),
            Pass::BackedClone => (&cell.clone, 1),
        };
        let pages = self.touched() as f64;
        let samples: Vec<f64> = passes.iter().map(|ns| ns[index] as f64 / 1e3 / pages).collect();
        Rounds::independent(&samples)
    }

    /// How many times as long one pass took as another.
    pub(super) fn ratio(&self, cell: &Cell, pass: Pass, other: Pass) -> Option<Ratio> {
        ratio_of_medians(&self.per_page(cell, pass), &self.per_page(cell, other))
    }

    pub(super) fn records(&self) -> Result<Vec<Record>, BenchError> {
        let mut records = Vec::new();
        for cell in &self.cells {
            for pass in Pass::ALL {
                let samples = self.per_page(cell, pass).flat();
                if samples.is_empty() {
                    continue;
                }
                let chosen = [
                    ("pass", json!(pass.name())),
                    ("access", json!(cell.access.name())),
                    ("size", json!(self.size)),
                    ("pages_touched", json!(self.touched())),
                ];
                let record = Record::new(EXPERIMENT, cell.pages.name(), chosen, "us/page", samples)?;
                records.push(record.beside([("template_huge_fraction", json!(cell.huge_fraction))]));
            }
        }
        Ok(records)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_told_by_the_page() {
        let cell = Cell {
            access: Access::Write,
            pages: MemoryPages::Thp,
            huge_fraction: 1.0,
            booted: Vec::new(),
            clone: vec![[1_024_000, 512_000]; 2],
        };
        let results = Results { size: 4 << 20, cells: vec![cell.clone()], notes: Vec::new() };
        assert_eq!(results.touched(), 512);
        assert_eq!(results.per_page(&cell, Pass::Shared).flat(), [2.0, 2.0]);
        assert_eq!(results.ratio(&cell, Pass::Shared, Pass::BackedClone).unwrap().value, 2.0);
        assert!(results.ratio(&cell, Pass::Shared, Pass::Unbacked).is_none());
        assert_eq!(results.records().unwrap().len(), 2);
    }
}
