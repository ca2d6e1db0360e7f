//! `bench redis`: what clients of a Redis see while it takes snapshots, and how long its forks take.
//!
//! Tables 4 and 5 of on-demand-fork (EuroSys 2021): a Redis with 1 GB of data answers three connections, each with
//! 2,000 requests under way (one in eleven writes, as memtier_benchmark has it), and saves its data to disk again and
//! again. Latency is from sending a request until its answer is read; the time of a fork is what Redis says
//! (`latest_fork_usec`), which with a seal includes sealing anew what was written. Each round starts each server anew,
//! in a random order, and its first snapshot, which may seal everything, is not counted.

mod client;
mod load;
mod server;

use crate::{
	prelude::*,
	subjects::parent::{self, RESERVE},
};
use flashfork_measure::order::shuffled_round;
use load::Load;
use server::Server;

pub const EXPERIMENT: &str = "redis";

/// Percentiles of the paper's table 4, with its latencies in milliseconds: fork and on-demand fork.
const PAPER: [(f64, f64, f64); 6] = [
	(50.0, 4.319, 3.871),
	(90.0, 5.247, 4.159),
	(95.0, 5.343, 4.255),
	(99.0, 5.695, 4.575),
	(99.9, 6.335, 4.799),
	(99.99, 16.255, 5.535),
];

#[derive(Clone, clap::Args)]
#[command(after_help = "Example: flashfork bench redis --size 256M --rounds 2")]
pub struct RedisOptions {
	/// Size of the data
	#[arg(long, value_name = "SIZE", default_value = "1G")]
	pub size: Size,

	/// How often each method is measured
	#[arg(long, value_name = "N", default_value_t = 5, value_parser = count(1..=100))]
	pub rounds: u32,

	/// Snapshots counted in each round
	#[arg(long, value_name = "N", default_value_t = 3, value_parser = count(1..=100))]
	pub snapshots: u32,

	/// Connections
	#[arg(long, value_name = "N", default_value_t = 3, value_parser = count(1..=64))]
	pub connections: u32,

	/// Requests under way on each connection
	#[arg(long, value_name = "N", default_value_t = 2000, value_parser = count(1..=100_000))]
	pub depth: u32,

	/// The shim [default: the installed one]
	#[arg(long, value_name = "FILE")]
	pub preload: Option<PathBuf>,
}

#[derive(Default)]
struct Samples {
	/// Microseconds, one vector for each percentile of the table.
	latencies: [Vec<f64>; PAPER.len()],
	rates: Vec<f64>,
	forks: Vec<f64>,
}

impl Experiment for RedisOptions {
	const NAME: &'static str = EXPERIMENT;
	const ABOUT: &'static str =
		"Real Redis: what its clients see while it takes snapshots, and how long its forks take";
	const PAGE: fn(&Document) -> String = report;

	fn measure(&self, run: &mut Run) -> Result {
		let shim = &self.preload.clone().map_or_else(|| run.here.shim(), Ok)?;
		let size = self.size.0;
		// The data, the allocator's share, what a snapshot's clone makes copy, and the dump on a file system that may
		// be memory.
		memory::require(&memory::headroom()?, format!("a Redis with {}", show(size)), 3 * size + RESERVE)?;
		let methods = parent::of_any_size(run);
		let mut samples: Vec<Samples> = methods.iter().map(|_| Samples::default()).collect();
		let mut left_out = vec![None; methods.len()];
		let mut random = fastrand::Rng::with_seed(size);
		run.begin("servers", u64::from(self.rounds) * methods.len() as u64);
		let mut done = Ok(());
		'rounds: for round in 0..self.rounds {
			for index in shuffled_round(methods.len(), &mut random) {
				if run.over(round as usize) {
					break 'rounds;
				}
				if left_out[index].is_none() {
					match visit(self, methods[index], shim, &mut samples[index], random.u64(..)) {
						Ok(why) => left_out[index] = why,
						Err(error) => {
							done = Err(error);
							break 'rounds;
						}
					}
				}
				run.step();
			}
		}
		for ((method, samples), why) in methods.into_iter().zip(samples).zip(left_out) {
			match why {
				Some(why) => run.leave_out(method.as_ref(), why),
				None => keep(run, method, self, samples)?,
			}
		}
		done
	}
}

/// One server's round; or why there can be none.
fn visit(
	options: &RedisOptions,
	method: Method,
	shim: &std::path::Path,
	samples: &mut Samples,
	seed: u64,
) -> Result<Option<String>> {
	let mut server = Server::start(method, shim)?;
	let keys = server.fill(options.size.0)?;
	server.snapshot()?;
	if method == Method::Seal && !server.is_sealed()? {
		return Ok(Some("Redis was not sealed: it has threads, and this version doesn't stop them".into()));
	}
	let load = Load::start(server.socket(), options.connections, options.depth, keys, seed)?;
	// The connections' buffers fill, and the server's caches.
	std::thread::sleep(Duration::from_millis(500));
	load.begin();
	for _ in 0..options.snapshots {
		samples.forks.push(server.snapshot()?);
		std::thread::sleep(Duration::from_millis(500));
	}
	let (mut latencies, seconds) = load.end()?;
	server.stop()?;
	latencies.sort_unstable();
	if latencies.is_empty() {
		return Err(unable!("Redis answered nothing"));
	}
	samples.rates.push(latencies.len() as f64 / seconds);
	for (kept, (percentile, ..)) in samples.latencies.iter_mut().zip(PAPER) {
		let rank = (percentile / 100.0 * (latencies.len() - 1) as f64).round() as usize;
		kept.push(f64::from(latencies[rank]));
	}
	Ok(None)
}

fn keep(run: &mut Run, method: Method, options: &RedisOptions, samples: Samples) -> Result {
	let row = |measure: &str, unit| {
		let RedisOptions { size, connections, depth, .. } = options;
		let chosen = json!({ "measure": measure, "size": size.0, "connections": connections, "depth": depth });
		Row::of(method.as_ref(), unit, chosen)
	};
	for (latencies, (percentile, ..)) in samples.latencies.into_iter().zip(PAPER) {
		run.keep(row("latency", "us").chosen("percentile", percentile), latencies)?;
	}
	run.keep(row("rate", "1/s"), samples.rates)?;
	run.keep(row("fork", "us"), samples.forks)
}

fn report(document: &Document) -> String {
	let methods = || Method::all();
	let of = |method: &Method, wanted: Value| document.find(EXPERIMENT, method, wanted);
	let of_forks = |method: &Method| of(method, json!({ "measure": "fork" }));
	let here: Vec<Method> = methods().filter(|method| of_forks(method).is_some()).collect();
	let mut latency = Vec::new();
	for (percentile, fork, on_demand) in PAPER {
		let wanted = json!({ "measure": "latency", "percentile": percentile });
		let cell = |method: &Method| median_time(of(method, wanted.clone()));
		let paper = [time(fork * 1e3), time(on_demand * 1e3)];
		latency.push([format!("{percentile} %")].into_iter().chain(here.iter().map(cell)).chain(paper).collect());
	}
	let rate =
		|method: &Method| shown(of(method, json!({ "measure": "rate" })).map(|found| format!("{:.0}/s", found.p50)));
	latency.push(["answers".to_owned()].into_iter().chain(here.iter().map(rate)).collect());
	let names: Vec<&str> =
		here.iter().map(|method| method.as_ref()).chain(["paper: fork", "paper: on demand"]).collect();
	let headers = format!("latency || {}", names.join(" | "));
	let forks = here.iter().filter_map(|method| {
		let found = of_forks(method)?;
		let [median, least, most] = [found.p50, found.min, found.max].map(time);
		Some(vec![method.as_ref().to_owned(), median, least, most, found.n.to_string()])
	});
	let paper = [("paper: fork (mean)", 7400.0), ("paper: on demand (mean)", 120.0)]
		.map(|(who, mean)| vec![who.to_owned(), time(mean), String::new(), String::new(), "5".to_owned()]);
	let size = document.records.iter().find_map(|record| record.number("size")).unwrap_or(0);
	let title =
		format!("Redis with {}: latency of requests while it takes snapshots (median of the rounds)", show(size));
	let title_of_forks = "Its forks, as Redis tells; with a seal, sealing anew what was written is part of them";
	let parts = [
		titled(&title, &headers, latency),
		titled(title_of_forks, "method || median | least | most | forks", forks.chain(paper)),
	];
	page(document, parts)
}
