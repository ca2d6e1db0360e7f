//! The table of `bench vm-tree`.

use super::found::{BOOTS, MAPPED, NODES, OWN, SHARED, START, WAYS, find};
use crate::prelude::*;

const TITLE: &str =
	"Three applications over a database over a kernel (HyperFork, 5.2). From the request until a template could be cloned,
or an application had its answer from the database; and memory, with kernel's and KVM's share, when all are alive:
a node's own, and what it shares with those above it. \"all\": everything, from the first request on.";

pub fn render_all(document: &Document) -> String {
	let row = |way, node| {
		let start = find(document, way, (node, START))?;
		let ratio = ratio_of(Some(start), find(document, BOOTS, (node, START)));
		let names = [way, node].map(str::to_owned);
		let times = [time(start.p50), time_range(start.min, start.max), shown(ratio)];
		let bytes = [OWN, SHARED, MAPPED]
			.map(|what| shown(find(document, way, (node, what)).map(|record| show(record.p50.max(0.0) as u64))));
		Some(names.into_iter().chain(times).chain(bytes).chain([start.n.to_string()]).collect())
	};
	let rows = WAYS.iter().flat_map(|way| NODES.map(|node| row(way, node))).flatten();
	page(
		document,
		[titled(TITLE, "way | node || start | least–most | ÷ boots | own | shared | mapped (PSS) | n", rows)],
	)
}
