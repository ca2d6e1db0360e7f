//! An experiment of `flashfork bench`: what it records is complete, and nothing of it runs on. No times are judged.

use crate::place::{Place, good, until};
use std::fs;

/// Processes started with this text in their environment.
fn started_with(text: &str) -> usize {
	let all = fs::read_dir("/proc").unwrap().filter_map(|e| fs::read(e.unwrap().path().join("environ")).ok());
	all.filter(|environ| environ.windows(text.len()).any(|part| part == text.as_bytes())).count()
}

/// Runs an experiment that must have measured all of `cells`: program, method and measure.
pub fn all_of(experiment: &[&str], cells: &[(&str, &str, &str)]) -> serde_json::Value {
	let place = Place::new();
	let work = place.at("work");
	fs::create_dir(&work).unwrap();
	let records = place.at("records.json");
	let options = ["--quick", "--json", "--records", records.to_str().unwrap()];
	let mut bench = place.flashfork(&[&["bench"], experiment, &options].concat());
	let output = good(bench.env("TMPDIR", &work).output().unwrap());
	let document: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
	for (program, method, measure) in cells {
		let found = document["records"].as_array().unwrap().iter().any(|record| {
			record["method"] == *method
				&& record["chosen"]["program"] == *program
				&& record["chosen"]["measure"] == *measure
				&& record["p50"].as_f64().unwrap() > 0.0
		});
		assert!(found, "{program} {method} {measure}: {document}");
	}
	let text = work.to_str().unwrap();
	until("all templates have ended", || started_with(&format!("XDG_RUNTIME_DIR={text}")) == 0);
	assert_eq!(fs::read_dir(&work).unwrap().count(), 0);
	document
}
