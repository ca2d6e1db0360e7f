//! `bench serve-jobs`: jobs of three kinds in turn, in fresh clones of functions, and in processes that are started for
//! them.
//!
//! A C program is compiled and run, which is a compiler started by a function in Python; a Java program with a heavy
//! start estimates π, as in `bench vm-jobs`; a Python program adds numbers up by numpy. Some clients ask
//! `flashfork serve` for one after the other, or start a process for each: the compiler, Java, Python. Each answer must
//! be that to its own job, and a clone's must be its first.
//!
//! Reference: HyperFork (2020), section 4.3, whose dispatcher gives such jobs to virtual machines.

mod job;
mod report;

use std::{cell::Cell as Counter, rc::Rc};

use super::serve::{Client, Server, Way, lambda_python};
use crate::{prelude::*, subjects::clients::share_out};
use job::Job;
use tokio::task::LocalSet;

pub const EXPERIMENT: &str = "serve-jobs";

#[derive(Clone, clap::Args)]
#[command(after_help = "Example: flashfork bench serve-jobs --python venv/bin/python --java-jars jars --quick\n\
	                    scripts/python-libraries lambda and scripts/java-libraries, in the source, make these.")]
pub struct ServeJobsOptions {
	/// Python that functions run in: it has awslambdaric, and numpy
	#[arg(long, value_name = "PYTHON", default_value = "python3")]
	pub python: PathBuf,

	/// Directory with the jars of AWS's runtime client for Java
	#[arg(long, value_name = "DIR", default_value = "jars")]
	pub java_jars: PathBuf,

	/// Clients at a time [default: one for each CPU]
	#[arg(long, value_name = "N", value_parser = count(1..=256))]
	pub clients: Option<u32>,

	/// Fewer jobs
	#[arg(long)]
	pub quick: bool,
}

/// How jobs are done. All of them in turn, and how many a second; or one kind's times.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Measure {
	/// From asking until the answer is there, in microseconds.
	Job(Job),
	/// Jobs a second.
	Rate,
}

impl Experiment for ServeJobsOptions {
	const NAME: &'static str = EXPERIMENT;
	const ABOUT: &'static str =
		"Functions as a service: jobs of gcc, Java and Python in turn, in fresh clones and in new processes";
	const PAGE: fn(&Document) -> String = report::render_all;

	fn measure(&self, run: &mut Run) -> Result {
		run.begin("functions", Job::all().count() as u64);
		let python = lambda_python(&self.python)?;
		let jars = std::path::absolute(&self.java_jars).or_cant("find the jars")?;
		let options = ["--java-jars".as_ref(), jars.as_os_str()];
		let server = Server::start(run.here.command()?, &python, &options)?;
		for job in Job::all() {
			let dir = job.write(server.work.path(), &jars)?;
			server.deploy(&dir, job.handler())?;
			run.step();
		}
		let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().or_cant("start clients")?;
		let clients = self.clients.map_or_else(cpus, u64::from);
		let effort = if self.quick { Effort::precise(0.1, 2..=3, 60) } else { Effort::precise(0.03, 8..=20, 420) };
		let (next, ways) = (Rc::new(Counter::new(0)), [Way::Clone, Way::Process]);
		let taken = run.sample("jobs", effort, ways.len(), 17, |index, _| {
			let jobs = if self.quick { 2 } else { 6 } * clients * Job::all().count() as u64;
			LocalSet::new().block_on(&runtime, visit(ways[index], clients, jobs, &python, &server, &next))
		});
		taken.keep(run, |index, measure| {
			let (unit, job) = match measure {
				Measure::Rate => ("1/s", "all"),
				Measure::Job(ref job) => ("us", job.as_ref()),
			};
			Row::of(ways[index].as_ref(), unit, json!({ "job": job, "clients": clients }))
		})
	}
}

fn cpus() -> u64 {
	std::thread::available_parallelism().map_or(1, |count| count.get() as u64)
}

/// So many jobs, each another one, of each kind in turn, shared out among clients as they ask.
async fn visit(
	way: Way,
	clients: u64,
	jobs: u64,
	python: &Path,
	server: &Server,
	next: &Rc<Counter<u64>>,
) -> Result<Visit<Measure>> {
	let mut ready = Vec::new();
	for _ in 0..clients {
		let mut kinds = Vec::new();
		for job in Job::all() {
			kinds.push((job, Client::new(way, server, &job.called(python, server.work.path())).await?));
		}
		ready.push(kinds);
	}
	let begin = Instant::now();
	let ask = async |kinds: &mut Vec<(Job, Client)>, number: u64| {
		let count = kinds.len();
		let (job, client) = &mut kinds[number as usize % count];
		let call = client.call(number).await?;
		Ok((*job, call.answered.saturating_sub(call.asked) as f64 / 1e3))
	};
	let taken = share_out(ready, jobs, next, ask).await?;
	let rate = taken.len() as f64 / begin.elapsed().as_secs_f64();
	let of = |job| taken.iter().filter(move |(kind, _)| *kind == job).map(|(_, us)| *us).collect();
	Ok(Job::all().map(|job| (Measure::Job(job), of(job))).chain([(Measure::Rate, vec![rate])]).collect())
}
