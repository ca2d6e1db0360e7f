//! The records of `bench vm-tree`: what tells them apart, and how they are found again.

use std::time::Duration;

use serde_json::json;

use super::EXPERIMENT;
use flashfork_measure::BenchError;
use flashfork_measure::experiment::Results;
use flashfork_measure::record::{Document, Record};
use flashfork_measure::sampling::{Ended, Series};

/// How the machines of applications come about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Way {
    /// Clones of one template, with kernel and database.
    Tree,
    /// Clones of a template for each.
    Templates,
    /// From nothing.
    Boots,
}

impl Way {
    pub(super) const ALL: [Self; 3] = [Self::Tree, Self::Templates, Self::Boots];

    /// As records name it.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Tree => "tree",
            Self::Templates => "separate templates",
            Self::Boots => "separate boots",
        }
    }
}

/// What a node of the tree is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Node {
    Kernel,
    Database,
    Application,
    /// All of a way.
    All,
}

impl Node {
    pub(super) const ALL: [Self; 4] = [Self::Kernel, Self::Database, Self::Application, Self::All];

    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Kernel => "kernel",
            Self::Database => "database",
            Self::Application => "application",
            Self::All => "all",
        }
    }
}

/// What is found of a node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum What {
    /// From the request until it was ready: to be cloned, or its application had its answer.
    Start,
    /// Bytes that it has for itself.
    Own,
    /// Bytes that it shares with its ancestors.
    Shared,
    /// Bytes that its process maps, shared ones in proportion (PSS).
    Mapped,
}

impl What {
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Start => "start",
            Self::Own => "own memory",
            Self::Shared => "shared memory",
            Self::Mapped => "mapped memory",
        }
    }
}

pub(super) type Measure = (Node, What);

/// What a visit has found.
#[derive(Default)]
pub(super) struct Found(pub Vec<(Measure, Vec<f64>)>);

impl Found {
    /// One sample more.
    pub(super) fn add(&mut self, node: Node, what: What, sample: f64) {
        match self.0.iter_mut().find(|(measure, _)| *measure == (node, what)) {
            Some((_, samples)) => samples.push(sample),
            None => self.0.push(((node, what), vec![sample])),
        }
    }

    pub(super) fn took(&mut self, node: Node, time: Duration) {
        self.add(node, What::Start, time.as_secs_f64() * 1e6);
    }
}

/// Keeps the samples of one measure; `counted`: how the memory of [`Node::All`] was.
pub(super) fn keep(
    way: Way,
    counted: &str,
    series: &Series<Measure>,
    ended: Ended,
    results: &mut Results,
) -> Result<(), BenchError> {
    let (node, what) = series.measure;
    let chosen = [("node", json!(node.name())), ("measure", json!(what.name()))];
    let unit = if what == What::Start { "us" } else { "bytes" };
    results.keep(way.name(), chosen, [("counted", json!(counted))], unit, series, ended)
}

/// The record of one measure.
pub(super) fn find(document: &Document, way: Way, node: Node, what: What) -> Option<&Record> {
    let wanted = [("node", json!(node.name())), ("measure", json!(what.name()))];
    document.find(EXPERIMENT, way.name(), &wanted)
}
