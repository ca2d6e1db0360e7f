//! What tells records apart, in an order and in words.

use std::collections::HashSet;

use serde_json::Value;

use super::{Record, Values};
use flashfork_terminal::size::Size;

/// Sorts the names of chosen values: what was measured, how large, then the others.
pub fn sort_names(names: &mut [&str]) {
	names.sort_unstable_by_key(|name| (*name != "measure", *name != "size", *name));
}

/// Chosen values in words: "measure call, size 1G, parent idle". Different values make different words.
pub fn words(chosen: &Values) -> String {
	let mut names: Vec<&str> = chosen.keys().map(String::as_str).collect();
	sort_names(&mut names);
	let word = |name: &&str| format!("{} {}", name.replace('_', " "), shown(name, &chosen[*name]));
	names.iter().map(word).collect::<Vec<_>>().join(", ")
}

fn shown(name: &str, value: &Value) -> String {
	match value {
		Value::String(text) => text.clone(),
		// Not rounded, for two sizes could look alike.
		Value::Number(bytes) if name.ends_with("size") || name == "granule" => {
			bytes.as_u64().map_or_else(|| bytes.to_string(), |bytes| Size(bytes).to_string())
		}
		other => other.to_string(),
	}
}

/// The name that two of `records` have, if any.
pub(super) fn shared_name(records: &[Record]) -> Option<String> {
	let mut seen = HashSet::new();
	records.iter().map(Record::name).find(|name| !seen.insert(name.clone()))
}

#[cfg(test)]
mod tests {
	use super::*;
	use serde_json::json;

	#[test]
	fn a_cell_is_told_in_words_what_was_measured_first() {
		let chosen = [
			("parent", json!("idle")),
			("read_again", json!(true)),
			("size", json!(1 << 30)),
			("measure", json!("call")),
		];
		let record = Record::new("fork", "seal", chosen, "us", vec![1.0]).unwrap();
		assert_eq!(record.cell(), "measure call, size 1G, parent idle, read again true");
	}

	#[test]
	fn records_share_a_name_when_all_that_was_chosen_is_the_same() {
		let of = |method: &str, size: u64, found: u64| {
			let record = Record::new("fork", method, [("size", json!(size))], "us", vec![1.0]).unwrap();
			record.beside([("vmas", json!(found))])
		};
		// In rounded figures the two large ones would be alike.
		let apart = [of("seal", 1 << 30, 1), of("fork-4k", 1 << 30, 1), of("seal", (1 << 30) + 4096, 1)];
		assert_eq!(shared_name(&apart), None);
		let alike = [of("seal", 1, 1), of("seal", 2, 1), of("seal", 1, 2)];
		assert_eq!(shared_name(&alike).as_deref(), Some("fork seal: size 1"), "what was observed tells nothing apart");
	}
}
