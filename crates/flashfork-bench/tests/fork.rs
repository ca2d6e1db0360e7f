//! `bench fork` at tiny sizes: what it records is complete and adds up. No times are judged.

mod here;

use std::{collections::BTreeSet, process::ExitCode};

use flashfork_bench::experiments;
use flashfork_measure::{BenchError, Document, Outcome, Progress, Record, Result};
use here::{has, run};
use libtest_mimic::Failed;
use serde_json::Value;

const SIZE: u64 = 8 << 20;
const ROUNDS: usize = 2;
const HUGETLB: &str = "fork-hugetlb";

#[derive(Default)]
struct Steps {
	announced: u64,
	made: u64,
	notes: Vec<String>,
}

impl Progress for Steps {
	fn begin(&mut self, what: &str, steps: u64) {
		assert!(!what.is_empty());
		self.announced += steps;
	}

	fn step(&mut self) {
		self.made += 1;
	}

	fn note(&mut self, line: &str) {
		self.notes.push(line.to_owned());
	}
}

fn value<'a>(record: &'a Record, name: &str) -> &'a Value {
	record.chosen.get(name).or(record.observed.get(name)).unwrap()
}

fn text<'a>(record: &'a Record, name: &str) -> &'a str {
	value(record, name).as_str().unwrap()
}

fn number(record: &Record, name: &str) -> f64 {
	value(record, name).as_f64().unwrap()
}

/// Every record of clones made one at a time that satisfies `wanted`.
fn single<'a>(outcome: &'a Outcome, wanted: impl Fn(&Record) -> bool + 'a) -> impl Iterator<Item = &'a Record> {
	outcome
		.document
		.records
		.iter()
		.filter(move |record| record.chosen.get("concurrent").and_then(|n| n.as_u64()) == Some(1) && wanted(record))
}

fn records_are_complete_and_add_up() -> Result<(), Failed> {
	let mut steps = Steps::default();
	let outcome = run(&format!("fork --sizes 0,8M --concurrent 2 --rounds {ROUNDS}"), &mut steps)?;
	assert_eq!(steps.announced, steps.made);
	assert!(outcome.document.records.iter().all(|record| record.experiment == "fork"));

	// Huge pages may be unavailable; then the method is left out with a note.
	let mut methods = vec!["fork-4k", "seal"];
	match steps.notes.iter().any(|note| note.contains("fork-thp")) {
		true => assert!(outcome.table.contains("left out")),
		false => methods.push("fork-thp"),
	}
	// Where the host has a pool of them.
	methods.extend(outcome.document.records.iter().any(|record| record.method == HUGETLB).then_some(HUGETLB));
	for method in &methods {
		for measure in ["call", "cycle", "first_write", "reads_100", "cycle_25r25w"] {
			let found = single(&outcome, |record| {
				record.method == *method && text(record, "measure") == measure && number(record, "size") == SIZE as f64
			});
			let states: Vec<(f64, bool)> =
				found.map(|record| (number(record, "written_percent"), record.chosen["read_again"] == true)).collect();
			let mut expected = vec![(0.0, false)];
			// What clones touch is asked of idle parents only.
			if ["call", "cycle"].contains(&measure) {
				// Written, read again, and dropped.
				let again = [1.0, 10.0].into_iter().flat_map(|percent| [false, true, true].map(|read| (percent, read)));
				expected.extend([(0.01, false), (0.1, false)].into_iter().chain(again));
			}
			assert_eq!(states, expected, "{method} {measure}");
		}
	}
	// The empty process: by itself with both methods, and beside the others in every state.
	let empty = |beside: f64| {
		single(&outcome, move |record| number(record, "size") == 0.0 && number(record, "beside_size") == beside).count()
	};
	assert_eq!((empty(0.0), empty(SIZE as f64)), (2 * 2, 9 * 2));
	check_arithmetic(&outcome);
	check_parents(&outcome);
	check_concurrent(&outcome, methods.len());
	check_sealing(&outcome);
	check_file(&outcome)?;
	let figure = experiments::figure(&outcome.document)?;
	for part in methods.iter().copied().chain(["empty process", "8 MB"]) {
		assert!(figure.contains(part), "'{part}' is missing in the figure");
	}
	has(
		&outcome.table,
		&["Idle parent", "Several processes at once", "Sealing", "Promises", "fork-4k", "8M", "not measured"],
	);
	Ok(())
}

fn check_arithmetic(outcome: &Outcome) {
	for record in &outcome.document.records {
		assert_eq!(record.n, record.samples.len());
		assert!(record.min <= record.p50 && record.p50 <= record.p90 && record.p90 <= record.p99);
		assert!(
			record.p99 <= record.max && record.samples.contains(&record.min) && record.samples.contains(&record.max)
		);
		if record.unit == "us" {
			assert!(record.min > 0.0, "{record:?}");
			let per_round: Vec<u64> =
				record.observed["samples_per_round"].as_array().unwrap().iter().map(|n| n.as_u64().unwrap()).collect();
			assert_eq!((per_round.len(), per_round.iter().sum::<u64>()), (ROUNDS, record.n as u64));
			assert!(per_round.iter().all(|&n| n >= 1));
		}
	}
	// A cycle holds its call: sample by sample, because both come from the same clone. Records keep three digits or so,
	// which are the same if the call took nearly all of it.
	let of = |measure| single(outcome, move |record| text(record, "measure") == measure);
	for (call, cycle) in of("call").zip(of("cycle")) {
		assert_eq!((&call.method, &call.chosen["size"]), (&cycle.method, &cycle.chosen["size"]));
		assert!(call.samples.iter().zip(&cycle.samples).all(|(call, cycle)| call <= cycle));
	}
}

fn check_parents(outcome: &Outcome) {
	for record in single(outcome, |record| number(record, "size") > 0.0) {
		let huge = number(record, "mapped_huge_fraction");
		match record.method.as_str() {
			"fork-4k" => {
				assert_eq!(huge, 0.0);
				// 2048 entries need four page tables; the program has some of its own.
				assert!(number(record, "page_table_bytes") >= 4.0 * 4096.0);
				assert!(number(record, "resident_bytes") >= SIZE as f64);
			}
			"fork-thp" => assert!(huge > 0.0),
			HUGETLB => {}
			_ => assert!(number(record, "sealed_bytes") >= SIZE as f64 && number(record, "seal_seconds") > 0.0),
		}
		let pages = (SIZE / 4096) as f64;
		assert_eq!(number(record, "written_pages"), (pages * number(record, "written_percent") / 100.0).ceil());
	}
}

fn check_concurrent(outcome: &Outcome, methods: usize) {
	let found: Vec<&Record> = outcome
		.document
		.records
		.iter()
		.filter(|record| record.chosen.get("concurrent").is_some_and(|n| n == 2))
		.collect();
	// Call and cycle for every method and the empty process beside it; without memory for two methods.
	assert_eq!(found.len(), 2 * (methods + 1) + 2 * 2);
	assert!(found.iter().all(|record| text(record, "affinity").starts_with("round robin") && record.n >= 2 * ROUNDS));
}

fn check_sealing(outcome: &Outcome) {
	let sealing: Vec<&Record> =
		outcome.document.records.iter().filter(|record| text(record, "measure").starts_with("seal_")).collect();
	let of = |method: &str| sealing.iter().filter(|record| record.method == method).count();
	assert_eq!((of("seal"), of("seal-from-thp")), (2 * 5, 5));
	let left_out = outcome.document.missing.iter().any(|missing| missing.cell.contains("tmpfs"));
	assert_eq!((of("tmpfs"), of("tmpfs-from-thp")), if left_out { (0, 0) } else { (2, 2) });
	for record in sealing {
		assert_eq!((record.n, number(record, "size")), (ROUNDS, SIZE as f64));
		match (text(record, "measure"), text(record, "pages")) {
			("seal_time" | "seal_cpu", _) => assert!(record.min > 0.0),
			("seal_huge_fraction", "small") => assert_eq!(record.max, 0.0),
			("seal_huge_fraction", _) => assert!(record.max <= 1.0),
			_ => assert!(record.min >= 0.0),
		}
	}
}

fn check_file(outcome: &Outcome) -> Result<(), Failed> {
	let path = tempfile::NamedTempFile::new()?.into_temp_path();
	outcome.document.write(&path)?;
	assert_eq!(Document::read(&path)?, outcome.document);
	Ok(())
}

fn an_empty_process_alone_can_be_measured() -> Result<(), Failed> {
	let outcome = run("fork --sizes 0 --rounds 2", &mut flashfork_measure::Silent)?;
	let found: BTreeSet<(&str, &str)> =
		single(&outcome, |_| true).map(|record| (record.method.as_str(), text(record, "measure"))).collect();
	assert_eq!(found, BTreeSet::from([("fork-4k", "call"), ("fork-4k", "cycle"), ("seal", "call"), ("seal", "cycle")]));
	Ok(())
}

fn a_size_that_does_not_fit_is_refused_before_allocation() -> Result<(), Failed> {
	let mut steps = Steps::default();
	let error = run("fork --sizes 0,1024T", &mut steps).unwrap_err();
	assert!(matches!(error, BenchError::DoesNotFit { .. }), "{error:?}");
	assert!(error.to_string().starts_with("1024T, method"), "{error}");
	assert_eq!(steps.announced, 0);
	Ok(())
}

fn main() -> ExitCode {
	here::main(|| {
		here::trials![
			records_are_complete_and_add_up,
			an_empty_process_alone_can_be_measured,
			a_size_that_does_not_fit_is_refused_before_allocation,
		]
	})
}
