//! All methods side by side.

use super::{
	AccessMixOptions, FaultOptions,
	mix::{BLOCK, MIXES, QUICK_SHARES, SHARES, Walk},
	subject::{AccessSubject, Ask, Measure},
};
use crate::{
	prelude::*,
	subjects::parent::{self, RESERVE, Spec},
};

/// Samples a visit.
const BATCH: usize = 5;

/// Bytes that a child copies which writes to two neighbouring pages, huge ones as they may be.
const FAULTS: u64 = 4 << 20;

type Parents = Vec<(Spec, Worker<AccessSubject>)>;

/// Parents of all methods this host can. `copied`: bytes a single one of them may copy meanwhile.
fn prepare(size: u64, copied: u64, run: &mut Run) -> Result<Parents> {
	let methods = parent::methods(run)?;
	let needed: u64 = methods.iter().map(|method| method.memory_needed(size) + BLOCK as u64).sum();
	let what = format!("{}, one parent for each method,", show(size));
	memory::require(&memory::headroom()?, what, needed + copied + RESERVE)?;
	let specs = methods.into_iter().map(|method| Spec::here(method, size)).collect::<Result<_>>()?;
	parent::start(specs, |_| copied, |spec| spec.method.as_ref().to_owned(), run)
}

/// Measures the first write after a fork.
pub fn fault(options: &FaultOptions, run: &mut Run) -> Result {
	let size = options.size.0;
	let mut parents = prepare(size, FAULTS, run)?;
	let taken = run.sample("first writes", options.effort(), parents.len(), size, |cell, _| {
		parents[cell].1.ask(&Ask::Faults { samples: BATCH })
	});
	taken.keep(run, |cell, measure| {
		let (spec, worker) = &parents[cell];
		let chosen = json!({ "measure": measure, "size": size });
		Row::of(spec.method.as_ref(), "us", chosen).beside(json!({ "facts": worker.ready() }))
	})
}

/// Measures walks through the memory after a fork.
pub fn access_mix(options: &AccessMixOptions, run: &mut Run) -> Result {
	let size = options.size.0;
	let mut parents = prepare(size, size, run)?;
	let shares = if options.quick { &QUICK_SHARES[..] } else { &SHARES };
	let mut cells = Vec::new();
	for parent in 0..parents.len() {
		for &share in shares {
			// Nothing is read or written of nothing: one mix stands for all.
			let mixes = if share == 0 { &MIXES[..1] } else { &MIXES };
			cells.extend(mixes.iter().map(|&read| (parent, Walk { share, read })));
		}
	}
	let taken = run.sample("mixes of reads and writes", options.effort(), cells.len(), size, |cell, _| {
		let (parent, walk) = cells[cell];
		parents[parent].1.ask(&Ask::Walk(walk))
	});
	taken.keep(run, |cell, measure| {
		let (parent, Walk { share, read }) = cells[cell];
		let (spec, worker) = &parents[parent];
		let chosen = json!({ "measure": measure, "size": size, "accessed_percent": share, "read_percent": read });
		let unit = if measure == Measure::Reseal { "us (not part)" } else { "us" };
		Row::of(spec.method.as_ref(), unit, chosen).beside(json!({ "facts": worker.ready() }))
	})
}
