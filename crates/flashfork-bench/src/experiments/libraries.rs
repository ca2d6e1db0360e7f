//! `bench libraries`: forks of a program that has loaded large libraries, and hardly any memory besides.
//!
//! Each library is compiled for this, with 32 relocated pages and four of data, which is the mean of twenty of those
//! that are large in a Debian (libcrypto, GTK, ICU, SQLite, Perl …). The same program is forked as it is, sealed with
//! the libraries' data left out, and sealed with it; each in its own process, asked in turn. A clone ends at once, or
//! calls into every library first, which reads its relocated pages and writes to its data.

mod subject;

pub use subject::LibrariesSubject;

use crate::{prelude::*, subjects::command::cc};
use flashfork_measure::cells;
use subject::{Ask, Spec, Task, Way};

pub const EXPERIMENT: &str = "libraries";

/// What SPECIFICATION.md promises of 20 libraries: the fork takes at most this share of one with their data left out.
const PROMISED: (u64, f64) = (20, 0.6);

/// Clones of each kind in a round.
const BATCH: usize = 50;

#[derive(Clone, clap::Args)]
#[command(after_help = "Example: flashfork bench libraries --count 20")]
pub struct LibrariesOptions {
	/// How many libraries the program has loaded
	#[arg(long, value_name = "N", default_value_t = 20, value_parser = count(1..=60))]
	pub count: u32,

	/// Rounds of interleaved batches of clones; more rounds, tighter intervals
	#[arg(long, value_name = "N", default_value_t = 20, value_parser = count(1..=100_000))]
	pub rounds: u32,
}

impl Experiment for LibrariesOptions {
	const NAME: &'static str = EXPERIMENT;
	const ABOUT: &'static str = "Forks of a program with large libraries, whose data is sealed or left out";
	const WORKERS: &'static [Registered] = &[Registered::of::<LibrariesSubject>()];
	const PAGE: fn(&Document) -> String = report;

	fn measure(&self, run: &mut Run) -> Result {
		let work = WorkDir::new(None)?;
		run.begin("compiling libraries", u64::from(self.count));
		let libraries = compile(work.path(), self.count, run)?;
		run.begin("loading them", Way::VARIANTS.len() as u64);
		let cpu = pin::chosen_cpu()?;
		let mut workers = Vec::new();
		for way in Way::all() {
			let spec = Spec { way, libraries: libraries.clone(), cpu };
			let worker =
				Worker::<LibrariesSubject>::start(format!("{} libraries, {}", self.count, way.as_ref()), &spec)?;
			workers.push(worker);
			run.step();
		}
		let cells: Vec<(usize, Task)> =
			Task::all().flat_map(|task| (0..workers.len()).map(move |worker| (worker, task))).collect();
		let effort = Effort::rounds(self.rounds as usize);
		let taken = run.sample("clones", effort, cells.len(), u64::from(self.count), |cell, _| {
			let (worker, task) = cells[cell];
			workers[worker].ask(&Ask { task, count: BATCH })
		});
		taken.keep(run, |cell, measure| {
			let (worker, task) = cells[cell];
			let ready = workers[worker].ready();
			let chosen = json!({ "measure": measure, "libraries": self.count, "task": task.as_ref() });
			let observed = json!({ "sealed_bytes": ready.sealed, "mappings": ready.mappings });
			Row::of(Way::VARIANTS[worker].as_ref(), "us", chosen).beside(observed)
		})
	}
}

/// The source of a library: a table relocated when it is loaded, data, and a function that uses both.
const SOURCE: &str = "
#define ENTRIES (128 * 1024 / sizeof(void *))
extern const void *const table[ENTRIES];
/* As large as real ones, so that no two share a page table. */
__attribute__((used)) static const char room[2 << 20] = {1};
const void *const table[ENTRIES] = {[0 ... ENTRIES - 1] = &table[1]};
static volatile long data[16 * 1024 / sizeof(long)] = {[0 ... 16 * 1024 / sizeof(long) - 1] = 1};
/* The loader writes to none of it. */
__attribute__((constructor)) static void fill(void)
{
    for (unsigned long i = 0; i < sizeof data / sizeof *data; i++)
        data[i] += (long)i;
}
long use_library(long i)
{
    data[0] += i;
    return table[(unsigned long)i % ENTRIES] == &table[1] ? data[0] - i : -1;
}
";

fn compile(place: &Path, count: u32, run: &mut Run) -> Result<Vec<PathBuf>> {
	let source = place.join("library.c");
	std::fs::write(&source, SOURCE).or_cant("write a library's source")?;
	let mut all = Vec::new();
	for i in 0..count {
		let library = place.join(format!("library{i}.so"));
		cc(&["-O1", "-shared", "-fPIC"], &source, &library)?;
		all.push(library);
		run.step();
	}
	Ok(all)
}

fn report(document: &Document) -> String {
	let of = |way: Way, task: Task, measure: &str| {
		document.find(EXPERIMENT, way, json!({ "measure": measure, "task": task.as_ref() }))
	};
	let mut rows = Vec::new();
	for task in Task::all() {
		for way in Way::all() {
			let (Some(fork), Some(cycle)) = (of(way, task, "fork"), of(way, task, "cycle")) else { continue };
			let share = |record: &Record, measure| {
				of(Way::SealedWithout, task, measure)
					.map_or(String::new(), |before| format!("{:.2}", record.p50 / before.p50))
			};
			let mappings = fork.observed.get("mappings").and_then(serde_json::Value::as_u64).unwrap_or(0);
			rows.push(vec![
				task.as_ref().to_owned(),
				way.as_ref().to_owned(),
				mappings.to_string(),
				time(fork.p50),
				share(fork, "fork"),
				time(cycle.p50),
				share(cycle, "cycle"),
			]);
		}
	}
	let count = document.of(EXPERIMENT).find_map(|record| record.number("libraries")).unwrap_or(0);
	let head = format!(
		"A program with {count} large libraries, and hardly any memory besides; medians of interleaved rounds. A share is \
		 that of what is sealed with the libraries' data left out."
	);
	let verdict = of(Way::Sealed, Task::End, "fork").zip(of(Way::SealedWithout, Task::End, "fork"));
	let verdict = verdict.filter(|_| count == PROMISED.0).map(|(after, before)| {
		let met = cells::met(after.p50 / before.p50 <= PROMISED.1);
		format!("A fork with {count} libraries takes ≤ {} × what it took with their data left out: {met}", PROMISED.1)
	});
	page(
		document,
		[titled(&head, "clone | libraries' data || mappings | fork | share | cycle | share", rows)]
			.into_iter()
			.chain(verdict),
	)
}
