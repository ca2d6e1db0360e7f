//! All cells of the grid in random order, then the copy rate, then real against system time.

use super::{
	CowModelOptions,
	grid::{COPIES, FORKS, FORKS_HEAP, QUICK_SHARES, SHARES, pages, written},
	subject::{Ask, CowSubject},
};
use crate::{
	prelude::*,
	subjects::{
		hugetlb::Pool,
		parent::{self, RESERVE, Spec},
	},
};

/// A batch of one cell ends after so many samples or microseconds.
const BATCH: usize = 10;
const BUDGET: u64 = 20_000;
/// The share of the time that the grid and the copies may take, where time is short.
const OF_GRID: f64 = 0.7;
const OF_COPIES: f64 = 0.5;

pub fn measure(options: &CowModelOptions, run: &mut Run) -> Result {
	let sizes = options.grid.sizes(options.quick);
	// All parents live at the same time, each with a child that writes everything.
	let needed: u64 = sizes.iter().map(|&size| 3 * Method::ForkThp.memory_needed(size)).sum();
	memory::require(&memory::headroom()?, format!("the {} grid", options.grid.as_ref()), needed + RESERVE)?;
	grid(options, run)?;
	run.go_on()?;
	copies(options.side_effort().until(run.deadline().part(OF_COPIES)), run)?;
	run.go_on()?;
	forks(options, run)
}

fn parents(options: &CowModelOptions, run: &mut Run) -> Result<Vec<(Spec, Worker<CowSubject>)>> {
	let sizes = options.grid.sizes(options.quick);
	let mut methods = options.grid.methods().to_vec();
	if methods.contains(&Method::Hugetlb)
		&& let Some(why) = Pool::read()?.unusable()
	{
		run.leave_out(Method::Hugetlb.as_ref(), why);
		methods.retain(|&method| method != Method::Hugetlb);
	}
	let specs = methods.iter().flat_map(|&method| sizes.iter().map(move |&size| Spec::here(method, size)));
	parent::start(specs.collect::<Result<_>>()?, |size| size, Spec::name, run)
}

fn grid(options: &CowModelOptions, run: &mut Run) -> Result {
	let mut parents = parents(options, run)?;
	let shares = if options.quick { &QUICK_SHARES[..] } else { &SHARES };
	let cells: Vec<(usize, f64)> =
		(0..parents.len()).flat_map(|parent| shares.iter().map(move |&share| (parent, share))).collect();
	let effort = options.effort().until(run.deadline().part(OF_GRID));
	let taken = run.sample("all sizes and shares in turn", effort, cells.len(), 1988, |cell, _| {
		let (parent, share) = cells[cell];
		let (spec, worker) = &mut parents[parent];
		worker.ask(&Ask::Each { written: written(spec.size, share), samples: BATCH, budget: BUDGET })
	});
	taken.keep(run, |cell, measure| {
		let (parent, share) = cells[cell];
		let (Spec { method, size, .. }, worker) = &parents[parent];
		let chosen = json!({
			"measure": measure.as_ref(),
			"grid": options.grid.as_ref(),
			"size": size,
			"pages": pages(*size),
			"share": share,
			"pages_written": written(*size, share),
		});
		Row::of(method.as_ref(), measure.unit(), chosen).beside(json!({ "facts": worker.ready() }))
	})?;
	parents.iter_mut().try_for_each(|(_, worker)| worker.ask(&Ask::Verify).map(drop))
}

fn copies(effort: Effort, run: &mut Run) -> Result {
	let mut parent = Spec::here(Method::Fork4k, 0)?.start::<CowSubject>()?;
	let taken = run.sample("copying memory", effort, COPIES.len(), 2, |cell, _| {
		parent.ask(&Ask::Copy { bytes: COPIES[cell], samples: 2 })
	});
	taken.keep(run, |cell, measure| {
		Row::of("memcpy", measure.unit(), json!({ "measure": measure.as_ref(), "size": COPIES[cell] }))
	})
}

fn forks(options: &CowModelOptions, run: &mut Run) -> Result {
	let (size, share) = FORKS_HEAP;
	let numbers = if options.quick { &FORKS[..5] } else { &FORKS };
	let mut parent = Spec::here(Method::Fork4k, size)?.start::<CowSubject>()?;
	let written = written(size, share);
	let taken = run.sample("real against system time", options.side_effort(), numbers.len(), 4, |cell, _| {
		parent.ask(&Ask::Together { written, forks: numbers[cell] })
	});
	taken.keep(run, |cell, measure| {
		let chosen = json!({ "measure": measure.as_ref(), "size": size, "share": share, "forks": numbers[cell] });
		Row::of(Method::Fork4k.as_ref(), measure.unit(), chosen)
	})
}
