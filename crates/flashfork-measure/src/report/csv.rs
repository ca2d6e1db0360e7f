//! `data.csv`: one row a cell (RFC 4180), what was chosen for it in columns of their own.

use std::collections::BTreeSet;

use serde_json::Value;

use crate::record::{Document, Record, sort_names};

/// All cells.
pub(super) fn text(document: &Document) -> String {
	let names: BTreeSet<&str> =
		document.records.iter().flat_map(|record| record.chosen.keys()).map(String::as_str).collect();
	let mut names: Vec<&str> = names.into_iter().collect();
	sort_names(&mut names);
	let head = ["experiment", "method"].iter().chain(&names).chain(&["unit", "n", "min", "p50", "p90", "p99", "max"]);
	let head = head.map(|name| quoted((*name).to_owned())).collect::<Vec<_>>().join(",");
	let rows = document.records.iter().map(|record| row(record, &names));
	[head].into_iter().chain(rows).map(|line| line + "\r\n").collect()
}

fn row(record: &Record, names: &[&str]) -> String {
	let chosen = names.iter().map(|name| match record.chosen.get(*name) {
		Some(Value::String(text)) => text.clone(),
		None => String::new(),
		Some(other) => other.to_string(),
	});
	let cell = [record.experiment.clone(), record.method.clone()];
	let figures = [record.min, record.p50, record.p90, record.p99, record.max].map(|figure| figure.to_string());
	let fields = cell.into_iter().chain(chosen).chain([record.unit.clone(), record.n.to_string()]).chain(figures);
	fields.map(quoted).collect::<Vec<_>>().join(",")
}

fn quoted(field: String) -> String {
	if field.contains([',', '"', '\n', '\r']) { format!("\"{}\"", field.replace('"', "\"\"")) } else { field }
}

#[cfg(test)]
mod tests {
	use super::*;
	use serde_json::json;

	#[test]
	fn each_cell_is_a_row_of_equal_length() {
		let chosen =
			[("parent", json!("read all, wrote \"some\"")), ("measure", json!("call")), ("size", json!(1 << 20))];
		let records = vec![
			Record::new("fork", "seal", chosen, "us", vec![1.0, 2.5]).unwrap(),
			Record::new("redis", "odf", [("depth", json!(2000))], "1/s", vec![8.0]).unwrap(),
		];
		let text = text(&Document::here(records).unwrap());
		let lines: Vec<&str> = text.split("\r\n").collect();
		let expected = [
			"experiment,method,measure,size,depth,parent,unit,n,min,p50,p90,p99,max",
			"fork,seal,call,1048576,,\"read all, wrote \"\"some\"\"\",us,2,1,1.752,2.352,2.484,2.5",
			"redis,odf,,,2000,,1/s,1,8,8,8,8,8",
			"",
		];
		assert_eq!(lines, expected);
	}
}
