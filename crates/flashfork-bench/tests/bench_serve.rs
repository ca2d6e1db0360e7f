//! `bench serve` in small: that every way answers, and what is told of it. No times are judged.

mod here;

use std::process::ExitCode;

use flashfork_measure::{Progress, Silent};
use here::{has, made, run_words};
use libtest_mimic::Failed;

/// Ctrl-C after the round that warms up and two more.
struct Rounds {
	of_calls: bool,
	left: u32,
}

impl Progress for Rounds {
	fn begin(&mut self, what: &str, _: u64) {
		self.of_calls = ["calls of functions", "jobs"].contains(&what);
	}
	fn step(&mut self) {
		self.left = self.left.saturating_sub(u32::from(self.of_calls));
	}
	fn interrupted(&self) -> bool {
		self.left == 0
	}
}

/// An answer that is another call's is an error of the run.
fn clones_processes_and_a_worker_answer_in_turn() -> Result<(), Failed> {
	let python = made("python-libraries", &["lambda"]);
	let mut progress = Rounds { of_calls: false, left: 3 };
	let words = ["serve", "--python", &python, "--functions", "small", "--clients", "3", "--quick"];
	let outcome = run_words(words, &mut progress)?;
	let find = |way: &str, clients: u32, measure: &str| {
		let wanted = serde_json::json!({ "function": "small", "clients": clients, "measure": measure });
		outcome.document.find("serve", way, wanted)
	};
	// Of as many calls as two rounds have.
	for (way, clients, calls) in
		[("clone", 1, 100), ("process", 1, 2), ("worker", 1, 100), ("clone", 3, 400), ("process", 3, 32)]
	{
		let [whole, begin, end] = ["whole", "begin", "return"].map(|measure| find(way, clients, measure));
		let parts = [whole, begin, end].map(|record| record.expect(way));
		assert!(parts.iter().all(|record| record.n == calls), "{way} {clients}: {parts:?}");
		let whole = |i: usize| parts[0].samples[i] * 1.01 >= parts[1].samples[i] + parts[2].samples[i];
		assert!((0..calls).all(whole), "{way} {clients}: {parts:?}");
		assert_eq!(find(way, clients, "rate").is_some(), clients > 1, "{way}");
	}
	assert!(find("describe", 1, "whole").is_some() && find("describe", 1, "begin").is_none());
	has(&outcome.table, &["small, many clients: calls a second", "fresh clone", "GetFunction", "3 clients at a time"]);
	Ok(())
}

/// The same of the jobs: each is done in both ways, by a compiler, Java and Python.
fn jobs_of_three_kinds_are_done_in_turn() -> Result<(), Failed> {
	let (python, jars) = (made("python-libraries", &["lambda"]), made("java-libraries", &[]));
	let mut progress = Rounds { of_calls: false, left: 2 };
	let words = ["serve-jobs", "--python", &python, "--java-jars", &jars, "--clients", "3", "--quick"];
	let outcome = run_words(words, &mut progress)?;
	for way in ["clone", "process"] {
		for (job, samples) in [("gcc", 6), ("java", 6), ("python", 6), ("all", 1)] {
			let record = outcome.document.find("serve-jobs", way, serde_json::json!({ "job": job, "clients": 3 }));
			assert_eq!(record.map(|record| record.n), Some(samples), "{way} {job}");
		}
	}
	has(&outcome.table, &["numpy adds numbers up", "a Java program with a heavy start", "jobs/s"]);
	Ok(())
}

fn a_python_without_the_runtime_client_is_told_with_the_cure() -> Result<(), Failed> {
	let error = run_words(["serve", "--python", "/bin/false"], &mut Silent).unwrap_err().to_string();
	assert!(error.starts_with("/bin/false lacks") && error.contains("scripts/python-libraries lambda"), "{error}");
	Ok(())
}

fn main() -> ExitCode {
	here::main(|| {
		here::trials![
			clones_processes_and_a_worker_answer_in_turn,
			jobs_of_three_kinds_are_done_in_turn,
			a_python_without_the_runtime_client_is_told_with_the_cure,
		]
	})
}
