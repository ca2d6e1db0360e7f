//! The records of `bench vm-tree`: what tells them apart, and how they are found again.

use super::EXPERIMENT;
use crate::prelude::*;

/// How the machines of applications come about, as records name it: clones of one template with kernel and database, of
/// a template for each, from nothing.
pub const WAYS: [&str; 3] = ["tree", "separate templates", BOOTS];
pub const BOOTS: &str = "separate boots";

/// What a node of the tree is. The last is all of a way.
pub const NODES: [&str; 4] = [KERNEL, DATABASE, APPLICATION, ALL];
pub const KERNEL: &str = "kernel";
pub const DATABASE: &str = "database";
pub const APPLICATION: &str = "application";
pub const ALL: &str = "all";

/// From the request until a node was ready: to be cloned, or its application had its answer.
pub const START: &str = "start";
/// Bytes that it has for itself.
pub const OWN: &str = "own memory";
/// Bytes that it shares with its ancestors.
pub const SHARED: &str = "shared memory";
/// Bytes that its process maps, shared ones in proportion (PSS).
pub const MAPPED: &str = "mapped memory";

/// A node, and what is found of it.
pub type Measure = (&'static str, &'static str);

#[derive(Default)]
pub struct Found(pub Vec<(Measure, f64)>);

impl Found {
	pub fn add(&mut self, node: &'static str, what: &'static str, sample: f64) {
		self.0.push(((node, what), sample));
	}
}

/// `counted`: how the memory of [`ALL`] was.
pub fn row(way: &str, (node, what): Measure, counted: &str) -> Row {
	let unit = if what == START { "us" } else { "bytes" };
	Row::of(way, unit, json!({ "node": node, "measure": what })).beside(json!({ "counted": counted }))
}

pub fn find<'a>(document: &'a Document, way: &str, (node, what): Measure) -> Option<&'a Record> {
	document.find(EXPERIMENT, way, json!({ "node": node, "measure": what }))
}
