//! Workers are processes that answer, fail in words, and never outlive their coordinator.

use std::{
	ffi::OsString,
	process::{Command, ExitCode, Stdio},
	time::{Duration, Instant},
};

use flashfork_measure::{BenchError, Result, Subject, Worker, worker};
use libtest_mimic::{Arguments, Failed, Trial};
use serde::{Deserialize, Serialize};

type Test = fn() -> Result<(), Failed>;

/// Counts up, and misbehaves on request.
#[derive(Debug)]
struct Counter(u64);

#[derive(Serialize, Deserialize)]
enum Ask {
	Add(u64),
	Threads,
	Fail(String),
	Abort,
	Sleep,
}

impl Subject for Counter {
	const NAME: &'static str = "test-counter";
	type Spec = u64;
	type Ready = u32;
	type Ask = Ask;
	type Reply = u64;

	fn prepare(spec: u64) -> Result<(Self, u32)> {
		if spec == u64::MAX {
			return Err(BenchError::Unable("that is too much".into()));
		}
		Ok((Self(spec), std::process::id()))
	}

	fn answer(&mut self, ask: Ask) -> Result<u64> {
		match ask {
			Ask::Add(more) => {
				self.0 += more;
				Ok(self.0)
			}
			Ask::Threads => Ok(std::fs::read_dir("/proc/self/task").unwrap().count() as u64),
			Ask::Fail(text) => Err(BenchError::Unable(text)),
			Ask::Abort => panic!("as asked"),
			Ask::Sleep => loop {
				std::thread::park();
			},
		}
	}
}

fn start(spec: u64) -> Result<Worker<Counter>> {
	Worker::start("counter", &spec)
}

fn is_gone(pid: u32) -> bool {
	let begin = Instant::now();
	while std::path::Path::new(&format!("/proc/{pid}")).exists() {
		if begin.elapsed() > Duration::from_secs(120) {
			return false;
		}
		std::thread::sleep(Duration::from_millis(5));
	}
	true
}

fn answers_and_keeps_its_state() -> Result<(), Failed> {
	let mut worker = start(5)?;
	assert_eq!(*worker.ready(), worker.pid());
	assert_eq!((worker.ask(&Ask::Add(1))?, worker.ask(&Ask::Add(2))?), (6, 8));
	Ok(())
}

fn has_one_thread() -> Result<(), Failed> {
	assert_eq!(start(0)?.ask(&Ask::Threads)?, 1);
	Ok(())
}

fn several_act_at_once() -> Result<(), Failed> {
	let mut workers = [start(1)?, start(10)?, start(100)?];
	for worker in &mut workers {
		worker.send(&Ask::Add(1))?;
	}
	let answers: Result<Vec<u64>> = workers.iter_mut().map(Worker::receive).collect();
	assert_eq!(answers?, [2, 11, 101]);
	Ok(())
}

fn failures_come_as_text() -> Result<(), Failed> {
	let text = start(u64::MAX).unwrap_err().to_string();
	assert_eq!(text, "worker counter: that is too much");
	let mut worker = start(0)?;
	let text = worker.ask(&Ask::Fail("no \"luck\"\ntoday".into())).unwrap_err().to_string();
	assert_eq!(text, "worker counter: no \"luck\"\ntoday");
	Ok(())
}

fn a_crash_is_reported_with_its_last_words() -> Result<(), Failed> {
	let error = start(0)?.ask(&Ask::Abort).unwrap_err();
	assert!(matches!(error, BenchError::WorkerDied { .. }), "{error:?}");
	assert!(error.to_string().contains("as asked"), "{error}");
	Ok(())
}

fn a_dropped_worker_is_reaped() -> Result<(), Failed> {
	let mut worker = start(0)?;
	let pid = worker.pid();
	worker.send(&Ask::Sleep)?;
	assert!(!worker.answered_within(Duration::from_millis(50))?);
	drop(worker);
	// Reaped means gone at once, not a zombie.
	assert!(!std::path::Path::new(&format!("/proc/{pid}")).exists());
	Ok(())
}

fn a_worker_dies_with_its_coordinator() -> Result<(), Failed> {
	// A coordinator of its own that starts a sleeping worker, prints its pid, and is killed.
	let mut coordinator = Command::new("/proc/self/exe").arg("coordinate").stdout(Stdio::piped()).spawn()?;
	let mut line = String::new();
	std::io::BufRead::read_line(&mut std::io::BufReader::new(coordinator.stdout.take().unwrap()), &mut line)?;
	let pid: u32 = line.trim().parse()?;
	coordinator.kill()?;
	coordinator.wait()?;
	assert!(is_gone(pid), "worker {pid} outlived its coordinator");
	Ok(())
}

fn is_not_started_by_hand() -> Result<(), Failed> {
	let output = Command::new("/proc/self/exe").args([worker::ARGUMENT, Counter::NAME, "1"]).output()?;
	assert!(!output.status.success());
	assert!(String::from_utf8(output.stdout)?.contains("not by hand"));
	Ok(())
}

fn coordinate() -> ExitCode {
	let mut worker = start(0).unwrap();
	worker.send(&Ask::Sleep).unwrap();
	println!("{}", worker.pid());
	loop {
		std::thread::park();
	}
}

fn main() -> ExitCode {
	let args: Vec<OsString> = std::env::args_os().skip(1).collect();
	match args.first().and_then(|arg| arg.to_str()) {
		Some(worker::ARGUMENT) => {
			return worker::worker_main([worker::Registered::of::<Counter>()], args.into_iter().skip(1));
		}
		Some("coordinate") => return coordinate(),
		_ => {}
	}
	let tests: [(&str, Test); 8] = [
		("answers_and_keeps_its_state", answers_and_keeps_its_state),
		("has_one_thread", has_one_thread),
		("several_act_at_once", several_act_at_once),
		("failures_come_as_text", failures_come_as_text),
		("a_crash_is_reported_with_its_last_words", a_crash_is_reported_with_its_last_words),
		("a_dropped_worker_is_reaped", a_dropped_worker_is_reaped),
		("a_worker_dies_with_its_coordinator", a_worker_dies_with_its_coordinator),
		("is_not_started_by_hand", is_not_started_by_hand),
	];
	let trials = tests.map(|(name, test)| Trial::test(name, test)).into_iter().collect();
	libtest_mimic::run(&Arguments::from_args(), trials).exit_code()
}
