//! `bench seal-threads`: how long threads stand still while their process is sealed.
//!
//! A thread reads the clock without a break and keeps each gap; the others write a page each millisecond. Beside that
//! the same thread's gaps while somebody stops and continues the process with SIGSTOP and SIGCONT. Each seal is made in
//! a fresh process.

mod subject;

pub use subject::SealThreadsSubject;

use rustix::process::{Pid, Signal, WaitOptions, kill_process, waitpid};

use crate::{
	prelude::*,
	subjects::{engine::Pages, parent::RESERVE},
};
use flashfork_measure::order::shuffled_rounds;
use subject::{Ask, Reply, Spec};

pub const EXPERIMENT: &str = "seal-threads";

/// SIGSTOP and SIGCONT in records.
const BASELINE: &str = "sigstop";
const STOPS: u32 = 100;

#[derive(Clone, clap::Args)]
#[command(after_help = "Example: flashfork bench seal-threads --sizes 256M --threads 1,4")]
pub struct SealThreadsOptions {
	/// Sizes of the process's memory
	#[arg(long, value_name = "SIZES", value_delimiter = ',', default_value = "256M,1G,4G")]
	pub sizes: Vec<Size>,

	/// Numbers of threads beside the one that seals
	#[arg(long, value_name = "NUMBERS", value_delimiter = ',', default_value = "1,4,16",
		  value_parser = count(1..=1000))]
	pub threads: Vec<u32>,

	/// How often each is sealed
	#[arg(long, value_name = "N", default_value_t = 1, value_parser = count(1..=1000))]
	pub rounds: u32,
}

impl Experiment for SealThreadsOptions {
	const NAME: &'static str = EXPERIMENT;
	const ABOUT: &'static str = "How long threads stand still while their process is sealed";
	const WORKERS: &'static [Registered] = &[Registered::of::<SealThreadsSubject>()];
	const PAGE: fn(&Document) -> String = report;

	fn measure(&self, run: &mut Run) -> Result {
		let cpu = pin::chosen_cpu()?;
		let Some(other_cpu) = pin::allowed_cpus()?.into_iter().find(|other| *other != cpu) else {
			return Err(unable!("with one CPU every thread waits for the others: two are needed"));
		};
		for Size(size) in each_once(self.sizes.iter().copied()) {
			memory::require(&memory::headroom()?, format!("a process of {}", show(size)), size + RESERVE)?;
			let mut cells = Vec::new();
			for threads in each_once(self.threads.iter().copied()) {
				for pages in [Pages::Small, Pages::Auto] {
					let spec = Spec { size, threads, cpu, other_cpu };
					let (pauses, stops, seconds, counts, means, longest) = Default::default();
					cells.push(Cell { spec, pages, pauses, stops, seconds, counts, means, longest });
				}
			}
			run.begin(&format!("{}: sealing", show(size)), u64::from(self.rounds) * cells.len() as u64);
			let mut done = Ok(());
			'rounds: for (made, order) in
				shuffled_rounds(self.rounds as usize, cells.len(), size).into_iter().enumerate()
			{
				for index in order {
					if run.over(made) {
						break 'rounds;
					}
					done = cells[index].visit();
					if done.is_err() {
						break 'rounds;
					}
					run.step();
				}
			}
			for cell in cells {
				cell.keep(run)?;
			}
			done?;
		}
		Ok(())
	}
}

struct Cell {
	spec: Spec,
	pages: Pages,
	/// Microseconds, as a thread saw them.
	pauses: Vec<f64>,
	stops: Vec<f64>,
	seconds: Vec<f64>,
	/// By the engine's account: how many, microseconds of one, and of the longest.
	counts: Vec<f64>,
	means: Vec<f64>,
	longest: Vec<f64>,
}

impl Cell {
	/// A process is made, stopped and continued, sealed, and looked at.
	fn visit(&mut self) -> Result {
		let name = format!("seal-threads {}, {} threads", show(self.spec.size), self.spec.threads);
		let mut worker = Worker::<SealThreadsSubject>::start(name, &self.spec)?;
		worker.ask(&Ask::Watch)?;
		for _ in 0..STOPS {
			stop_and_continue(worker.pid())?;
			std::thread::sleep(Duration::from_millis(2));
		}
		self.stops.extend(worker.ask(&Ask::Gaps)?.gaps);
		let Reply { gaps, seconds, pauses, total, longest } = worker.ask(&Ask::Seal(self.pages))?;
		self.pauses.extend(gaps);
		self.seconds.push(seconds);
		self.counts.push(f64::from(pauses));
		self.means.push(total / f64::from(pauses.max(1)));
		self.longest.push(longest);
		worker.ask(&Ask::Verify)?;
		Ok(())
	}

	fn keep(self, run: &mut Run) -> Result {
		let method = Method::Seal.as_ref();
		for (method, measure, unit, samples) in [
			(method, "gap", "us", self.pauses),
			(method, "seal_time", "s", self.seconds),
			(method, "pauses", "count", self.counts),
			(method, "pause_mean", "us", self.means),
			(method, "pause_longest", "us", self.longest),
			(BASELINE, "gap", "us", self.stops),
		] {
			let Spec { size, threads, .. } = self.spec;
			let chosen = json!({ "measure": measure, "size": size, "threads": threads, "pages": self.pages });
			run.keep(Row::of(method, unit, chosen), samples)?;
		}
		Ok(())
	}
}

/// What a shell's `kill -STOP` and `kill -CONT` do, one right after the other has taken hold.
fn stop_and_continue(pid: u32) -> Result {
	let pid = i32::try_from(pid).ok().and_then(Pid::from_raw).ok_or(unable!("a worker has no id"))?;
	let send = |signal| kill_process(pid, signal).or_cant("stop or continue a worker");
	send(Signal::STOP)?;
	match waitpid(Some(pid), WaitOptions::UNTRACED) {
		Ok(Some((_, status))) if status.stopped() => {}
		Ok(_) => return Err(unable!("a worker ended when it should have stopped")),
		Err(errno) => return Err(BenchError::system("wait for a worker to stop", errno)),
	}
	send(Signal::CONT)
}

fn report(document: &Document) -> String {
	let mut rows = Vec::new();
	let is_gap = |record: &&Record| record.method == Method::Seal.as_ref() && record.text("measure") == Some("gap");
	for gaps in document.records.iter().filter(is_gap) {
		let same = |method: &str, measure: &str| {
			let mut wanted = json!(gaps.chosen);
			wanted["measure"] = measure.into();
			document.find(EXPERIMENT, method, wanted)
		};
		let of = |measure: &str, figure: fn(&Record) -> f64| same(Method::Seal.as_ref(), measure).map_or(0.0, figure);
		let number = |name: &str| gaps.number(name).unwrap_or(0);
		let mut row = vec![
			show(number("size")),
			if gaps.chosen.get("pages") == Some(&json!(Pages::Small)) { "4 KB".into() } else { "2 MB".into() },
			number("threads").to_string(),
			format!("{:.2} s", of("seal_time", |record| record.p50)),
			of("pauses", |record| record.samples.iter().sum()).to_string(),
			time(of("pause_mean", |record| record.p50)),
			time(of("pause_longest", |record| record.max)),
		];
		row.extend(spread(&gaps.samples));
		row.extend(spread(&same(BASELINE, "gap").map_or(Vec::new(), |r| r.samples.clone())));
		rows.push(row);
	}
	let head = format!(
		"How often and how long threads were stopped by the engine's account; gaps of {} µs or more that a thread which never rests saw \
		 during the seal, and at SIGSTOP and SIGCONT",
		subject::LEAST_US
	);
	let headers = "size || pages | threads | seal | pauses | mean | longest | seen | p99 | longest | SIGSTOP | p99 | \
				   longest";
	page(document, [titled(&head, headers, rows)])
}

fn spread(samples: &[f64]) -> [String; 3] {
	match Summary::of(samples) {
		Some(summary) => [summary.p50, summary.p99, summary.max].map(time),
		None => Default::default(),
	}
}
