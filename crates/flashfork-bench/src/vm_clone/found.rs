//! What was measured, cell by cell, on its way to records and tables.

use serde_json::json;

use super::{EXPERIMENT, GuestKind};
use crate::BenchError;
use crate::record::Record;
use crate::stats::Rounds;
use crate::vm_host::MemoryPages;

/// How a running machine comes about.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Method {
    /// By claiming a shell that waits.
    Clone(MemoryPages),
    /// From nothing.
    ColdBoot(MemoryPages),
}

impl Method {
    /// As records name it.
    pub(super) fn name(self) -> String {
        match self {
            Self::Clone(pages) => format!("clone-{}", pages.name()),
            Self::ColdBoot(pages) => format!("cold-boot-{}", pages.name()),
        }
    }
}

/// From the request until the client knows that the guest has left for the first time.
pub(super) const FIRST_EXIT: &str = "first exit";
/// From the request until the clone's process is reaped; its guest ends by itself.
pub(super) const CYCLE: &str = "cycle";
/// Preparing a shell, before anybody asks.
pub(super) const PREPARE: &str = "prepare a shell";
/// From the request until the agent's word that the guest has entropy, clock and hooks.
pub(super) const READY: &str = "ready";
/// From the request until the guest is ready and its agent has answered a call: the hello over its socket.
pub(super) const FIRST_REPLY: &str = "first reply";

/// The steps of a claim as they follow one another. The first is the client's; the last is what nobody measures: both
/// processes' way through the scheduler.
pub(super) const STEPS: [&str; 8] = ["send", "check", "map", "vcpus", "machine", "devices", "run", "wake-ups"];
/// The steps of a cold boot.
pub(super) const BOOT_STEPS: [&str; 3] = ["create", "load", "run"];

/// What one clone or boot took: measures and microseconds.
pub(super) type Sample = Vec<(&'static str, f64)>;

/// The samples of one method at one size.
#[derive(Debug, Clone)]
pub(super) struct Cell {
    pub guest: GuestKind,
    pub method: Method,
    /// Bytes of guest memory.
    pub size: u64,
    /// The share of the template's memory on 2 MB pages.
    pub huge_fraction: f64,
    pub rounds: Vec<Vec<Sample>>,
}

impl Cell {
    /// The samples of one measure, in microseconds, by rounds.
    pub(super) fn rounds(&self, measure: &str) -> Rounds {
        let of = |sample: &Sample| sample.iter().find(|(name, _)| *name == measure).map(|(_, value)| *value);
        Rounds(self.rounds.iter().map(|round| round.iter().filter_map(of).collect()).collect())
    }

    fn measures(&self) -> Vec<&'static str> {
        let first = self.rounds.iter().flatten().next();
        first.map_or(Vec::new(), |sample| sample.iter().map(|(name, _)| *name).collect())
    }

    fn records(&self) -> Result<Vec<Record>, BenchError> {
        let of = |measure: &&'static str| {
            let chosen = [
                ("measure", json!(measure)),
                ("guest", json!(guest(self.guest))),
                ("size", json!(self.size)),
                ("vcpus", json!(1)),
            ];
            let record = Record::of_rounds(EXPERIMENT, &self.method.name(), chosen, "us", &self.rounds(measure))?;
            Ok(record.beside([("template_huge_fraction", json!(self.huge_fraction))]))
        };
        self.measures().iter().map(of).collect()
    }
}

/// Bytes for each of several shells or clones, of one count.
#[derive(Debug, Clone, Copy)]
pub(super) struct Bytes {
    /// All, kernel memory included.
    pub total: f64,
    /// Of it, the processes' own.
    pub user: f64,
}

/// What many shells and clones of one size hold.
#[derive(Debug, Clone)]
pub(super) struct Density {
    pub size: u64,
    /// How many were there at the same time.
    pub count: usize,
    /// How it was counted.
    pub source: &'static str,
    /// One entry a repetition: waiting shells, and clones that live.
    pub waiting: Vec<Bytes>,
    pub alive: Vec<Bytes>,
}

impl Density {
    fn records(&self) -> Result<Vec<Record>, BenchError> {
        let mut records = Vec::new();
        for (what, counts) in [("waiting shell", &self.waiting), ("clone alive", &self.alive)] {
            for (part, of) in [("all", (|b: &Bytes| b.total) as fn(&Bytes) -> f64), ("user", |b| b.user)] {
                let chosen = [
                    ("measure", json!(format!("memory of a {what}"))),
                    ("part", json!(part)),
                    ("source", json!(if part == "user" { "sum of Pss" } else { self.source })),
                    ("guest", json!(guest(GuestKind::Tiny))),
                    ("size", json!(self.size)),
                    ("count", json!(self.count)),
                ];
                let method = Method::Clone(MemoryPages::Small).name();
                let samples = counts.iter().map(of).collect();
                records.push(Record::new(EXPERIMENT, &method, chosen, "bytes", samples)?);
            }
        }
        Ok(records)
    }
}

/// Everything a run measured.
#[derive(Debug, Default)]
pub(super) struct Results {
    pub cells: Vec<Cell>,
    pub density: Vec<Density>,
    /// What was left out and why.
    pub notes: Vec<String>,
}

impl Results {
    pub(super) fn cell(&self, guest: GuestKind, method: Method, size: u64) -> Option<&Cell> {
        self.cells.iter().find(|cell| (cell.guest, cell.method, cell.size) == (guest, method, size))
    }

    /// The samples of one measure.
    pub(super) fn rounds(&self, guest: GuestKind, method: Method, size: u64, measure: &str) -> Option<Rounds> {
        self.cell(guest, method, size).map(|cell| cell.rounds(measure))
    }

    pub(super) fn records(&self) -> Result<Vec<Record>, BenchError> {
        let mut records = Vec::new();
        for cell in &self.cells {
            records.extend(cell.records()?);
        }
        for density in &self.density {
            records.extend(density.records()?);
        }
        Ok(records)
    }
}

pub(super) fn guest(kind: GuestKind) -> &'static str {
    match kind {
        GuestKind::Tiny => "tiny",
        GuestKind::Linux => "linux",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_a_measure() {
        let cell = Cell {
            guest: GuestKind::Tiny,
            method: Method::Clone(MemoryPages::Thp),
            size: 1 << 20,
            huge_fraction: 1.0,
            rounds: vec![vec![vec![(FIRST_EXIT, 2.0), (CYCLE, 5.0)]; 2], vec![vec![(FIRST_EXIT, 4.0), (CYCLE, 9.0)]]],
        };
        assert_eq!(cell.rounds(FIRST_EXIT).0, [vec![2.0, 2.0], vec![4.0]]);
        let results = Results { cells: vec![cell], ..Results::default() };
        let records = results.records().unwrap();
        let found: Vec<_> = records.iter().map(|r| (r.method.as_str(), &r.chosen["measure"], r.p50)).collect();
        assert_eq!(found, [("clone-thp", &json!(FIRST_EXIT), 2.0), ("clone-thp", &json!(CYCLE), 5.0)]);
        assert_eq!(records[0].observed["samples_per_round"], json!([2, 1]));
    }
}
