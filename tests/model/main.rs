//! The randomised model checker: processes do random things to their memory, under the engine and without it, and
//! compare every byte with a model and every result with plain memory.
//!
//!     cargo run -p flashfork-tests --bin model -- --steps 5000 --seed 7
//!
//! A run is decided by its seed and its number of steps. First it runs on plain memory, which also checks the model;
//! then with the engine. Journals of both stay when a run fails. Failing seeds are kept in `seeds.txt` and replayed
//! first from then on.

mod content;
mod drive;
mod journal;
mod leaderless;
mod mode;
mod rng;
mod rollback;
mod seeds;
mod steps;
mod template;
mod threads;
mod worker;
mod world;
mod writer;

use clap::{Parser, ValueEnum};
use flashfork_tests::route::Route;
use mode::{Allocator, Mode};
use seeds::Seed;
use std::{path::PathBuf, process::ExitCode};

/// Which engine is tested.
#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Engine {
	/// Plain memory, then the same with seals.
	Seal,
	/// Plain memory, then the same with forks on demand; others act on the memory too.
	Odf,
	/// Plain memory only: checks the model itself.
	Fork,
}

/// Random processes against a model of their memory
#[derive(Parser)]
struct Args {
	/// Steps of the first process; its children take their own
	#[arg(long, default_value_t = 1000)]
	steps: usize,
	/// First seed
	#[arg(long, default_value_t = 1)]
	seed: u64,
	/// How many seeds, counted up from the first
	#[arg(long, default_value_t = 1)]
	runs: u64,
	/// What is tested
	#[arg(long, value_enum, default_value = "seal")]
	engine: Engine,
	/// How the process reaches the engine seal: shim (unmodified) or linked (calls the core)
	#[arg(long, default_value = "shim")]
	route: Route,
	/// What surrounds the steps
	#[arg(long, value_enum, default_value = "alone")]
	mode: Mode,
	/// Whose malloc the process has
	#[arg(long, value_enum, default_value = "glibc")]
	allocator: Allocator,
	/// The shim to load; built when not given
	#[arg(long)]
	shim: Option<PathBuf>,
	/// A disk of 4 MB or more that is overwritten, for direct reads with engine odf; a file when not given
	#[arg(long)]
	disk: Option<PathBuf>,
	/// Leave out the seeds that failed before
	#[arg(long)]
	no_replay: bool,
	/// The tested process itself: where its journal goes
	#[arg(long, hide = true)]
	worker: Option<PathBuf>,
	/// The tested process itself: where the journal of plain memory lies
	#[arg(long, hide = true)]
	plain: Option<PathBuf>,
	/// The tested process itself: others act on its memory, from this disk among other places
	#[arg(long, hide = true)]
	company: Option<PathBuf>,
	/// The tested process itself: where the objects lie that call past the shim
	#[arg(long, hide = true)]
	objects: Option<PathBuf>,
	/// The tested process itself, on plain memory: the one turn that it takes
	#[arg(long, hide = true, default_value_t = 0)]
	turn: u64,
	/// The tested process itself: restores copy back what was written, or drop it
	#[arg(long, hide = true)]
	copies: bool,
}

fn main() -> ExitCode {
	let args = Args::parse();
	if let Some(own) = args.worker {
		let places = journal::Places { own, plain: args.plain };
		let seed =
			Seed { seed: args.seed, steps: args.steps, route: args.route, mode: args.mode, allocator: args.allocator };
		let job =
			worker::Job { seed, company: args.company, objects: args.objects, turn: args.turn, copies: args.copies };
		return worker::run(&job, &places);
	}
	let shim = || args.shim.clone().unwrap_or_else(|| flashfork_tests::shim::path().to_path_buf());
	let route = if args.engine == Engine::Odf { Route::Odf } else { args.route };
	let (mode, allocator) = (args.mode, args.allocator);
	let given =
		(args.seed..).take(args.runs as usize).map(|seed| Seed { seed, steps: args.steps, route, mode, allocator });
	let mut replayed = if args.no_replay { Vec::new() } else { seeds::kept() };
	// Only a kernel of its own replays those of engine odf.
	replayed.retain(|seed| (seed.route == Route::Odf) == (args.engine == Engine::Odf));
	replayed.retain(|seed| (seed.mode, seed.allocator) == (mode, allocator));
	let (mut failed, mut worked) = (false, args.engine == Engine::Fork);
	for seed in replayed.into_iter().chain(given) {
		let engine = (args.engine != Engine::Fork).then_some(seed.route);
		match drive::run(&seed, engine, args.disk.as_deref(), shim) {
			Ok(report) => {
				worked |= report.engine.is_some_and(|(_, counted)| counted > 0);
				println!("seed {} steps {} {:?} {:?}: {report}", seed.seed, seed.steps, seed.route, seed.mode)
			}
			Err(failure) => {
				failed = true;
				eprintln!("{failure}");
				if engine.is_some() {
					seeds::keep(&seed);
				}
			}
		}
	}
	// In a single seed that may be chance: what it has asked for keeps its memory from being sealed.
	if !worked {
		eprintln!("in none of these seeds anything was sealed, nor any page table shared");
	}
	ExitCode::from(u8::from(failed || !worked))
}
