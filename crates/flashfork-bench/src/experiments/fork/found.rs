//! The records of `bench fork`: what tells them apart, and how they are found again.

use serde_json::{Value, json};

use super::EXPERIMENT;
use super::probe::Measure;
use super::rounds::Member;
use super::touch::ParentState;
use crate::subjects::Method;
use flashfork_measure::BenchError;
use flashfork_measure::experiment::Results;
use flashfork_measure::record::{Document, Record};
use flashfork_measure::sampling::{Ended, Series};

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

/// Keeps the samples of one measure of one `member` of `group`.
pub(super) fn keep(
    results: &mut Results,
    group: &Group,
    member: &Member,
    state: ParentState,
    series: &Series<Measure>,
    ended: Ended,
) -> Result<(), BenchError> {
    let methods: Vec<&str> = group.methods.iter().map(|method| method.name()).collect();
    let size = member.spec.size;
    let chosen = cell(size, state, series.measure).into_iter().chain([("concurrent", json!(group.copies))]);
    let observed = [
        ("written_pages", json!(member.written_pages)),
        ("affinity", json!(group.affinity)),
        ("uncounted_clones_per_round", json!(1)),
        ("vmas", json!(member.facts.vmas)),
        ("page_table_bytes", json!(member.facts.page_table_bytes)),
        ("resident_bytes", json!(member.facts.resident_bytes)),
        ("mapped_huge_fraction", json!(member.facts.huge_fraction)),
    ];
    let sealed = member.sealed.map(|sealed| {
        [
            ("sealed_bytes", json!(sealed.bytes)),
            ("sealed_huge_fraction", json!(sealed.huge_fraction())),
            ("seal_seconds", json!(sealed.seconds)),
        ]
    });
    let beside = [("beside_size", json!(group.size)), ("beside_methods", json!(methods))];
    // Nothing else tells an empty process beside one group from that beside another. For the others, how many methods
    // fit into memory beside them is the host's doing.
    let (tells, tells_nothing) = if size == group.size { (None, Some(beside)) } else { (Some(beside), None) };
    let chosen = chosen.chain(tells.into_iter().flatten());
    let observed = observed.into_iter().chain(sealed.into_iter().flatten()).chain(tells_nothing.into_iter().flatten());
    results.keep(member.spec.method.name(), chosen, observed, "us", series, ended)
}

/// What tells a cell among workers that clone one at a time.
fn cell(size: u64, state: ParentState, measure: Measure) -> [(&'static str, Value); 5] {
    let (parent, read_again) = match state {
        ParentState::Idle => ("idle", false),
        ParentState::Wrote(_) => ("read all, wrote some", false),
        ParentState::WroteAndRead(_) => ("read all, wrote some", true),
        ParentState::WroteReadAndDropped(_) => ("read all, wrote some, dropped what it read", true),
    };
    [
        ("measure", json!(measure.name())),
        ("size", json!(size)),
        ("parent", json!(parent)),
        ("written_percent", json!(state.percent())),
        ("read_again", json!(read_again)),
    ]
}

/// The record of `method` with `size` bytes, among workers that clone one at a time.
pub(super) fn find(
    document: &Document,
    method: Method,
    size: u64,
    state: ParentState,
    measure: Measure,
) -> Option<&Record> {
    let wanted = cell(size, state, measure);
    all(document, method).find(|record| {
        !is_concurrent(record)
            && !record.chosen.contains_key("beside_size")
            && wanted.iter().all(|(name, value)| record.chosen.get(*name) == Some(value))
    })
}

/// The empty process that was measured beside `record`, in the same state of its neighbours.
pub(super) fn empty_beside<'a>(document: &'a Document, record: &Record) -> Option<&'a Record> {
    let same = ["measure", "parent", "written_percent", "read_again", "concurrent"];
    all(document, Method::Fork4k).find(|other| {
        number(other, "size") == Some(0)
            && same.iter().all(|name| other.chosen.get(*name) == record.chosen.get(*name))
            && ["beside_size", "beside_methods"].iter().all(|name| group(other, name) == group(record, name))
    })
}

/// Those of several workers that clone at once, of one measure, empty processes beside them left out.
pub(super) fn concurrent(document: &Document, measure: Measure) -> impl Iterator<Item = &Record> {
    document.records.iter().filter(move |record| {
        record.experiment == EXPERIMENT
            && is_concurrent(record)
            && !record.chosen.contains_key("beside_size")
            && record.chosen.get("measure").and_then(Value::as_str) == Some(measure.name())
    })
}

/// The states that parents were measured in, in their order.
pub(super) fn states(document: &Document) -> Vec<ParentState> {
    let has = |state: &ParentState| {
        let [_, _, parent, written, read] = cell(0, *state, Measure::Call);
        let is = |record: &Record| {
            [&parent, &written, &read].iter().all(|(name, value)| record.chosen.get(*name) == Some(value))
        };
        document.records.iter().any(|record| record.experiment == EXPERIMENT && is(record))
    };
    ParentState::ALL.into_iter().filter(has).collect()
}

/// The sizes of parents, ascending.
pub(super) fn sizes(document: &Document) -> Vec<u64> {
    let own = document.records.iter().filter(|record| record.experiment == EXPERIMENT);
    let mut sizes: Vec<u64> = own
        .filter(|record| !record.chosen.contains_key("beside_size"))
        .filter_map(|record| number(record, "size"))
        .collect();
    sizes.sort_unstable();
    sizes.dedup();
    sizes
}

/// How many groups the methods of `size` were measured in.
pub(super) fn groups(document: &Document, size: u64) -> usize {
    let own = document.records.iter().filter(|record| {
        record.experiment == EXPERIMENT && !is_concurrent(record) && number(record, "size") == Some(size)
    });
    let mut groups: Vec<&Value> = own.filter_map(|record| record.observed.get("beside_methods")).collect();
    groups.dedup();
    groups.len()
}

/// A whole number that was chosen.
pub(super) fn number(record: &Record, name: &str) -> Option<u64> {
    record.chosen.get(name).and_then(Value::as_u64)
}

fn all(document: &Document, method: Method) -> impl Iterator<Item = &Record> {
    document.records.iter().filter(move |record| record.experiment == EXPERIMENT && record.method == method.name())
}

fn is_concurrent(record: &Record) -> bool {
    number(record, "concurrent").is_some_and(|copies| copies > 1)
}

fn group<'a>(record: &'a Record, name: &str) -> Option<&'a Value> {
    record.chosen.get(name).or_else(|| record.observed.get(name))
}
