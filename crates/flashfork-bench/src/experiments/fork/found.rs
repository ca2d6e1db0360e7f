//! The records of `bench fork`: what tells them apart, and how they are found again.

use super::{EXPERIMENT, probe::Measure, rounds::Member, touch::ParentState};
use crate::prelude::*;

/// What is measured together: its workers are asked in turn, so its cells may be compared.
#[derive(Clone, PartialEq)]
pub struct Group {
	/// The size the group was made for; the empty process beside it has size 0.
	pub size: u64,
	pub methods: Vec<Method>,
	/// How many workers of each clone at the same time.
	pub copies: usize,
	/// Which CPUs the workers are pinned to.
	pub affinity: String,
}

/// One measure of one `member` of `group`.
pub fn row(group: &Group, member: &Member, state: ParentState, measure: Measure) -> Row {
	let methods: Vec<&str> = group.methods.iter().map(|method| method.as_ref()).collect();
	let (size, facts) = (member.spec.size, &member.facts);
	let row = Row::of(member.spec.method.as_ref(), "us", cell(size, state, measure));
	let row = row.chosen("concurrent", group.copies).beside(json!({
		"written_pages": member.written_pages,
		"affinity": group.affinity,
		"uncounted_clones_per_round": 1,
		"vmas": facts.vmas,
		"page_table_bytes": facts.page_table_bytes,
		"resident_bytes": facts.resident_bytes,
		"mapped_huge_fraction": facts.huge_fraction,
	}));
	let row = match &member.sealed {
		None => row,
		Some(sealed) => row.beside(json!({
			"sealed_bytes": sealed.bytes,
			"sealed_huge_fraction": sealed.huge_fraction(),
			"seal_seconds": sealed.seconds,
		})),
	};
	// Nothing else tells an empty process beside one group from that beside another. For the others, how many methods
	// fit into memory beside them is the host's doing.
	if size == group.size {
		row.beside(json!({ "beside_size": group.size, "beside_methods": methods }))
	} else {
		row.chosen("beside_size", group.size).chosen("beside_methods", methods)
	}
}

/// What tells a cell among workers that clone one at a time.
fn cell(size: u64, state: ParentState, measure: Measure) -> Value {
	let (parent, read_again) = match state {
		ParentState::Idle => ("idle", false),
		ParentState::Wrote(_) => ("read all, wrote some", false),
		ParentState::WroteAndRead(_) => ("read all, wrote some", true),
		ParentState::WroteReadAndDropped(_) => ("read all, wrote some, dropped what it read", true),
	};
	json!({
		"measure": measure.as_ref(),
		"size": size,
		"parent": parent,
		"written_percent": state.percent(),
		"read_again": read_again,
	})
}

/// The record of `method` with `size` bytes, among workers that clone one at a time.
pub fn find(document: &Document, method: Method, size: u64, state: ParentState, measure: Measure) -> Option<&Record> {
	let wanted = cell(size, state, measure);
	let mut own = of(document, method).filter(|record| !is_concurrent(record) && !is_beside(record));
	own.find(|record| is_as(record, &wanted, &["measure", "size", "parent", "written_percent", "read_again"]))
}

/// Whether the same was chosen for a record under these names.
fn is_as(record: &Record, wanted: &Value, names: &[&str]) -> bool {
	names.iter().all(|name| record.chosen.get(*name) == wanted.get(name))
}

/// The empty process measured beside `record`, in the same state of its neighbours.
pub fn empty_beside<'a>(document: &'a Document, record: &Record) -> Option<&'a Record> {
	let same = ["measure", "parent", "written_percent", "read_again", "concurrent"];
	of(document, Method::Fork4k).find(|other| {
		other.number("size") == Some(0)
			&& same.iter().all(|name| other.chosen.get(*name) == record.chosen.get(*name))
			&& ["beside_size", "beside_methods"].iter().all(|name| group(other, name) == group(record, name))
	})
}

/// Those of several workers that clone at once, of one measure, empty processes beside them left out.
pub fn concurrent(document: &Document, measure: Measure) -> impl Iterator<Item = &Record> {
	document.of(EXPERIMENT).filter(move |record| {
		is_concurrent(record) && !is_beside(record) && record.text("measure") == Some(measure.as_ref())
	})
}

/// The states that parents were measured in, in their order.
pub fn states(document: &Document) -> Vec<ParentState> {
	let has = |state: &ParentState| {
		let wanted = cell(0, *state, Measure::Call);
		document.of(EXPERIMENT).any(|record| is_as(record, &wanted, &["parent", "written_percent", "read_again"]))
	};
	ParentState::ALL.into_iter().filter(has).collect()
}

/// The sizes of parents, ascending.
pub fn sizes(document: &Document) -> Vec<u64> {
	numbers(document.of(EXPERIMENT).filter(|record| !is_beside(record)), "size")
}

/// How many groups the methods of `size` were measured in.
pub fn groups(document: &Document, size: u64) -> usize {
	let own = document.of(EXPERIMENT).filter(|record| !is_concurrent(record) && record.number("size") == Some(size));
	let mut groups: Vec<&Value> = own.filter_map(|record| record.observed.get("beside_methods")).collect();
	groups.dedup();
	groups.len()
}

fn of(document: &Document, method: Method) -> impl Iterator<Item = &Record> {
	document.of(EXPERIMENT).filter(move |record| record.method == method.as_ref())
}

/// Whether it is an empty process beside others.
fn is_beside(record: &Record) -> bool {
	record.chosen.contains_key("beside_size")
}

fn is_concurrent(record: &Record) -> bool {
	record.number("concurrent").is_some_and(|copies| copies > 1)
}

fn group<'a>(record: &'a Record, name: &str) -> Option<&'a Value> {
	record.chosen.get(name).or_else(|| record.observed.get(name))
}
