//! What was measured, cell by cell, on its way to records and tables.

use serde_json::json;

use super::facts::Facts;
use super::probe::Measure;
use super::sealing::Sealing;
use super::touch::ParentState;
use super::{EXPERIMENT, Method};
use crate::engine::Sealed;
use crate::record::Record;
use crate::sampling::Ended;
use crate::stats::Rounds;
use crate::{BenchError, experiment};

/// What is measured together: its workers are asked in turn, so its cells may be compared.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Group {
    /// The size the group was made for; the empty process beside it has size 0.
    pub size: u64,
    /// The methods in it.
    pub methods: Vec<Method>,
    /// How many workers of each clone at the same time.
    pub copies: usize,
    /// Which CPUs the workers are pinned to.
    pub affinity: String,
}

/// The samples of one method, size, parent state and measure within a group.
#[derive(Debug, Clone)]
pub(super) struct Cell {
    /// The group.
    pub group: Group,
    /// The method.
    pub method: Method,
    /// Bytes of memory: the group's size, or 0 for the empty process beside it.
    pub size: u64,
    /// The parent's state.
    pub state: ParentState,
    /// How many of the parent's pages were written in that state.
    pub written_pages: usize,
    /// The parent.
    pub facts: Facts,
    /// What was sealed, for the method that seals.
    pub sealed: Option<Sealed>,
    /// What was measured.
    pub measure: Measure,
    /// The samples, in microseconds.
    pub rounds: Rounds,
    /// Why there are no more of them.
    pub ended: Ended,
}

/// Everything a run measured.
#[derive(Debug)]
pub(super) struct Results {
    /// Clones.
    pub cells: Vec<Cell>,
    /// Sealing itself.
    pub seals: Vec<Sealing>,
    /// What to know when comparing.
    pub notes: Vec<String>,
    /// What was left out, and in the end the records.
    pub found: experiment::Results,
}

impl Default for Results {
    fn default() -> Self {
        let found = experiment::Results::new(EXPERIMENT);
        Self { cells: Vec::new(), seals: Vec::new(), notes: Vec::new(), found }
    }
}

impl Results {
    /// The cell of `method` with `size` bytes among workers that clone one at a time.
    pub(super) fn cell(&self, method: Method, size: u64, state: ParentState, measure: Measure) -> Option<&Cell> {
        self.cells.iter().find(|cell| {
            (cell.method, cell.size, cell.group.size, cell.state, cell.measure) == (method, size, size, state, measure)
                && cell.group.copies == 1
        })
    }

    /// The empty process that was measured beside `cell`, in the same state of its neighbours.
    pub(super) fn empty_beside(&self, cell: &Cell) -> Option<&Cell> {
        self.cells.iter().find(|other| {
            (other.method, other.size) == (Method::Fork4k, 0)
                && (&other.group, other.state, other.measure) == (&cell.group, cell.state, cell.measure)
        })
    }

    /// What was left out, and one record per cell and per figure of sealing.
    pub(super) fn take_found(&mut self) -> Result<experiment::Results, BenchError> {
        let mut found = std::mem::replace(&mut self.found, experiment::Results::new(EXPERIMENT));
        found.records = self.cells.iter().map(Cell::record).collect::<Result<_, _>>()?;
        for sealing in self.seals.iter().filter(|sealing| !sealing.samples.is_empty()) {
            found.records.extend(sealing.records()?);
        }
        Ok(found)
    }
}

impl Cell {
    fn record(&self) -> Result<Record, BenchError> {
        let group: Vec<&str> = self.group.methods.iter().map(|method| method.name()).collect();
        let chosen = [
            ("measure", json!(self.measure.name())),
            ("size", json!(self.size)),
            ("parent", json!(if self.state == ParentState::Idle { "idle" } else { "read all, wrote some" })),
            ("written_percent", json!(self.state.percent())),
            ("read_again", json!(matches!(self.state, ParentState::WroteAndRead(_)))),
            ("concurrent", json!(self.group.copies)),
        ];
        let observed = [
            ("written_pages", json!(self.written_pages)),
            ("affinity", json!(self.group.affinity)),
            ("uncounted_clones_per_round", json!(1)),
            ("ended", json!(self.ended.name())),
            ("vmas", json!(self.facts.vmas)),
            ("page_table_bytes", json!(self.facts.page_table_bytes)),
            ("resident_bytes", json!(self.facts.resident_bytes)),
            ("mapped_huge_fraction", json!(self.facts.huge_fraction)),
        ];
        let sealed = self.sealed.map(|sealed| {
            [
                ("sealed_bytes", json!(sealed.bytes)),
                ("sealed_huge_fraction", json!(sealed.huge_fraction())),
                ("seal_seconds", json!(sealed.seconds)),
            ]
        });
        let beside = [("beside_size", json!(self.group.size)), ("beside_methods", json!(group))];
        // Nothing else tells an empty process beside one group from that beside another. For the others, how many methods fit
        // into memory beside them is the host's doing.
        let (tells, tells_nothing) =
            if self.size == self.group.size { (None, Some(beside)) } else { (Some(beside), None) };
        let chosen = chosen.into_iter().chain(tells.into_iter().flatten());
        let observed =
            observed.into_iter().chain(sealed.into_iter().flatten()).chain(tells_nothing.into_iter().flatten());
        let record = Record::of_rounds(EXPERIMENT, self.method.name(), chosen, "us", &self.rounds)?;
        Ok(record.beside(observed))
    }
}
