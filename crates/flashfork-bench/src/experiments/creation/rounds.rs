//! All ways of a size side by side, size by size.

use super::{
	CreationOptions, Touch,
	subject::{Ask, CreationSubject, Ready, Spec},
	way::{PROGRAM, Then, Way},
};
use crate::{
	prelude::*,
	subjects::parent::{self, RESERVE},
};

/// A batch ends after so many samples ...
const BATCH: usize = 12;
/// ... or after so long (microseconds), whichever comes first.
const BUDGET: u64 = 12_000;

pub fn measure(options: &CreationOptions, run: &mut Run) -> Result {
	let sizes = options.bytes();
	let methods = parent::methods(run)?;
	// Refused before anything is allocated: all parents of a size live at the same time.
	let headroom = memory::headroom()?;
	for &size in &sizes {
		let needed: u64 = parents(&methods).map(|(method, _)| method.memory_needed(size)).sum();
		memory::require(&headroom, format!("{}, one parent of each kind,", show(size)), needed + RESERVE)?;
	}
	for (index, &size) in sizes.iter().enumerate() {
		run.go_on()?;
		if run.no_time_for(show(size)) {
			continue;
		}
		measure_size(options, &methods, size, 1.0 / (sizes.len() - index) as f64, run)?;
	}
	Ok(())
}

/// The parents of a size: how each holds its memory, and the ways it is asked for. A process that once had a thread
/// forks more slowly ever after (the C library then takes its locks), so threads have their own parent.
fn parents(methods: &[Method]) -> impl Iterator<Item = (Method, Vec<Way>)> {
	let of = |method: Method| {
		let ways = Way::all().filter(move |way| way.method() == method && *way != Way::Pthread);
		(method, ways.collect())
	};
	methods.iter().map(move |&method| of(method)).chain([(Method::Fork4k, vec![Way::Pthread])])
}

/// `share`: how much of what time is left the size may take.
fn measure_size(options: &CreationOptions, methods: &[Method], size: u64, share: f64, run: &mut Run) -> Result {
	let deadline = run.deadline().part(share);
	run.begin(&format!("{}: preparing parents", show(size)), parents(methods).count() as u64);
	let (mut workers, mut cells) = (Vec::new(), Vec::new());
	for (method, ways) in parents(methods) {
		run.go_on()?;
		let parent = parent::Spec::here(method, size)?;
		if let Some(why) = parent.shortage(0)? {
			run.leave_out(parent.name(), why);
			continue;
		}
		let touch = options.touch == Touch::All;
		let spec = Spec { parent, touch, fds: options.fds, vmas: options.vmas };
		let worker = Worker::<CreationSubject>::start(parent.name(), &spec)?;
		run.step();
		match flaw(&spec, worker.ready()) {
			Some(why) => run.leave_out(parent.name(), why),
			None => {
				let index = workers.len();
				cells.extend(ways.iter().flat_map(|&way| way.then().iter().map(move |&then| (index, way, then))));
				workers.push(worker);
			}
		}
	}
	let effort = options.effort().until(deadline);
	let taken = run.sample(&format!("{}: all ways in turn", show(size)), effort, cells.len(), size, |cell, _| {
		let (worker, way, then) = cells[cell];
		workers[worker].ask(&Ask::Batch { way, then, samples: BATCH, budget: BUDGET })
	});
	taken.keep(run, |cell, phase| {
		let (worker, way, then) = cells[cell];
		let Ready { sealed, facts, .. } = workers[worker].ready();
		let chosen = json!({
			"measure": phase.as_ref(),
			"size": size,
			"then": then,
			"touch": if options.touch == Touch::All { "all" } else { "none" },
			"extra_fds": options.fds,
			"extra_vmas": options.vmas,
		});
		let row = Row::of(way.as_ref(), "us", chosen).beside(json!({ "sealed_bytes": sealed, "facts": facts }));
		if then == Then::Exec { row.chosen("program", PROGRAM.to_string_lossy()) } else { row }
	})?;
	workers.iter_mut().try_for_each(|worker| worker.ask(&Ask::Verify).map(drop))
}

/// Why a parent is not what its ways need, if so.
fn flaw(spec: &Spec, ready: &Ready) -> Option<String> {
	let parent::Spec { method, size, .. } = spec.parent;
	match method {
		_ if !spec.touch => None,
		Method::Seal if ready.sealed < size / 2 => Some(format!("only {} could be sealed", show(ready.sealed))),
		_ => spec.parent.flaw(&ready.facts),
	}
}
