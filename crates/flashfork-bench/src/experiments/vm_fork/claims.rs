//! How long claims take of clones of clones.

use flashfork_proto::{
	shell::{Ended, FromShell},
	signal::Done,
};

use super::{
	VmForkOptions,
	code::{levels, sum, written},
	found::{Claims, DEPTHS, Step},
};
use crate::{
	prelude::*,
	subjects::vm_host::{Forked, Host, MemoryPages, Template, ended, shape, until, vm},
};

/// Claims of a cell in a round.
const BATCH: usize = 5;
/// Until what the last clone left behind has settled.
const SETTLE: Duration = Duration::from_millis(5);

/// Claims of templates at each depth, in turn.
pub fn measure(host: &Host, size: u64, options: &VmForkOptions, run: &mut Run) -> Result {
	let pages = options.pages;
	let templates = templates(host, size, pages, run)?;
	let claims = |(depth, template)| [false, true].map(|primed| (Claims { depth, primed, pages, size }, template));
	let cells: Vec<_> = DEPTHS.into_iter().zip(&templates).flat_map(claims).collect();
	let effort = Effort::rounds(options.rounds());
	let taken = run.sample("interleaved rounds of claims", effort, cells.len(), 2, |cell, _| visit(host, cells[cell]));
	taken.keep(run, |cell, step| cells[cell].0.row(cells[cell].1.layers(), step))
}

/// One for each of [`DEPTHS`]: the one that booted, and what becomes of it by forks of its clones' clones.
fn templates(host: &Host, size: u64, pages: u32, run: &mut Run) -> Result<Vec<Template>> {
	let deepest = DEPTHS[DEPTHS.len() - 1];
	run.begin("clones of clones", u64::from(deepest) + 1);
	let shape = shape(size, MemoryPages::Small.of_shape());
	let end = u32::try_from(size).map_err(|_| vm("a guest of 32 bits has no such memory"))?;
	let mut template = Template::freeze(&host.boot(shape, &levels(end, pages))?, shape, MemoryPages::Small, true)?;
	let mut kept = Vec::new();
	for depth in 0..=deepest {
		run.step();
		let next = if depth < deepest { Some(fork(host, &template)?) } else { None };
		if DEPTHS.contains(&depth) {
			kept.push(template);
		}
		match next {
			Some(next) => template = next,
			None => break,
		}
	}
	Ok(kept)
}

/// What a clone is that has written its level.
fn fork(host: &Host, template: &Template) -> Result<Template> {
	let shell = host.shell(template.shape)?;
	template.claim(&shell, 0)?;
	until(&shell, |message| matches!(message, FromShell::Forked), "write its level")?;
	template.forked(Forked::of(&shell, template.shape)?)
}

fn visit(host: &Host, (of, template): (Claims, &Template)) -> Result<Visit<Step>> {
	let Claims { depth, primed, pages, .. } = of;
	let mut claims = Vec::new();
	for _ in 0..BATCH {
		let mut shell = host.shell(template.shape)?;
		if primed {
			template.prime(&mut shell)?;
		}
		std::thread::sleep(SETTLE);
		claims.push(template.claim(&shell, written(depth, pages).into())?);
		check(&ended(&shell)?, sum(depth, pages))?;
	}
	Ok(Step::all().map(|step| (step, claims.iter().map(|claimed| step.of(claimed)).collect())).collect())
}

/// A clone has what every level has written.
fn check(ended: &Ended, sum: u32) -> Result {
	match ended {
		Ended::Done(Done { status: 0, result }) if *result == sum.to_le_bytes() => Ok(()),
		other => Err(BenchError::Clone {
			what: "adding up what its levels have written".into(),
			status: format!("{other:?} instead of {sum}"),
		}),
	}
}

#[cfg(test)]
mod tests {
	use super::*;

	#[test]
	fn a_clone_that_lacks_a_level_is_an_error() {
		let done = |sum: u32| Ended::Done(Done { status: 0, result: sum.to_le_bytes().to_vec() });
		check(&done(7), 7).unwrap();
		check(&done(6), 7).unwrap_err();
		check(&Ended::Reset, 7).unwrap_err();
	}
}
