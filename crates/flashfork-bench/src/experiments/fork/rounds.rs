//! One clone at a time: the methods of a size side by side, the parent in one state after another.

use super::{
	AtSize,
	found::{Group, row},
	probe::{Batch, Measure, Probe, Samples},
	subject::{Ask, ForkSubject, Ready, Reply},
	touch::ParentState,
};
use crate::{
	prelude::*,
	subjects::{engine::Sealed, parent::Spec},
};
use flashfork_measure::{run::NO_TIME, worker::unexpected};

/// A batch ends after so many samples ...
const BATCH: usize = 20;
/// ... or after so long (microseconds), whichever comes first: long enough to be warm, short enough to interleave.
const BUDGET: u64 = 20_000;

/// Bytes that a clone may copy which writes to 25 pages, huge ones as they may be.
const TOUCHED: u64 = 64 << 20;

/// A worker and what is known of its parent process.
pub struct Member {
	pub spec: Spec,
	pub worker: Worker<ForkSubject>,
	pub facts: Facts,
	pub sealed: Option<Sealed>,
	pub written_pages: usize,
}

impl Member {
	/// Starts the worker and waits until its memory is filled, and sealed where the method says so.
	pub fn start(method: Method, size: u64, cpu: usize) -> Result<Self> {
		let spec = Spec { method, size, cpu };
		let worker = spec.start::<ForkSubject>()?;
		let Ready { facts, sealed } = *worker.ready();
		Ok(Self { spec, worker, facts, sealed, written_pages: 0 })
	}

	/// Why it must be left out, if so.
	pub fn flaw(&self) -> Option<String> {
		self.spec.flaw(&self.facts)
	}

	/// The next answer, which must be samples.
	pub fn samples(&mut self) -> Result<Samples> {
		match self.worker.receive()? {
			Reply::Batch(samples) => Ok(samples),
			other => Err(unexpected(&other)),
		}
	}

	fn become_state(&mut self, state: ParentState) -> Result {
		match self.worker.ask(&Ask::Become(state))? {
			Reply::Become { facts, written_pages } => {
				(self.facts, self.written_pages) = (facts, written_pages);
				Ok(())
			}
			other => Err(unexpected(&other)),
		}
	}

	/// Checks that clones left the parent's memory alone; must be the last request, because it reads everything.
	pub fn verify(&mut self) -> Result {
		match self.worker.ask(&Ask::Verify)? {
			Reply::Verified => Ok(()),
			other => Err(unexpected(&other)),
		}
	}
}

pub fn measure(at: &mut AtSize) -> Result {
	let methods = at.methods(1)?;
	let groups = at.plan.groups(&methods, at.size, 1)?;
	if groups.len() > 1 {
		let note = format!(
			"{}: the methods don't fit into memory together; measured one group after the other, each beside an empty process",
			Size(at.size)
		);
		at.run.progress.note(&note);
	}
	let number = groups.len();
	for (index, methods) in groups.into_iter().enumerate() {
		let deadline = at.deadline.part(1.0 / (number - index) as f64);
		at.group(methods, deadline)?;
	}
	Ok(())
}

impl AtSize<'_, '_> {
	/// The methods that this size can be held in now, `copies` times at once.
	pub fn methods(&mut self, copies: usize) -> Result<Vec<Method>> {
		let mut methods = self.plan.methods.clone();
		if methods.contains(&Method::Hugetlb) && self.size > 0 {
			let times = copies as u64;
			let all = Spec { method: Method::Hugetlb, size: self.size * times, cpu: self.plan.cpu };
			if let Some(why) = all.shortage(self.size.min(TOUCHED) * times)? {
				methods.retain(|&method| method != Method::Hugetlb);
				self.run.leave_out(Spec { size: self.size, ..all }.name(), why);
			}
		}
		Ok(methods)
	}

	fn group(&mut self, methods: Vec<Method>, deadline: Deadline) -> Result {
		let (plan, size) = (self.plan, self.size);
		self.run.begin(&format!("{}: filling memory", Size(size)), methods.len() as u64);
		let mut members = Vec::new();
		for &method in &methods {
			if self.run.interrupted() {
				break;
			}
			let member = Member::start(method, size, plan.cpu)?;
			match member.flaw() {
				None => members.push(member),
				Some(flaw) => self.run.leave_out(member.spec.name(), flaw),
			}
			self.run.step();
		}
		if size > 0 {
			members.push(Member::start(Method::Fork4k, 0, plan.cpu)?);
		}
		let group = Group { size, methods, copies: 1, affinity: format!("all on cpu {}", plan.cpu) };
		// Without memory there are no states to tell apart.
		let states = if size > 0 { plan.states } else { &plan.states[..1] };
		for (index, &state) in states.iter().enumerate() {
			if self.run.interrupted() {
				break;
			}
			if deadline.passed() && index > 0 {
				self.run.leave_out(format!("{}, parent {state}", Size(size)), NO_TIME);
				continue;
			}
			let effort = Effort::rounds(plan.rounds).until(deadline.part(1.0 / (states.len() - index) as f64));
			self.state(&group, &mut members, state, effort)?;
		}
		members.iter_mut().try_for_each(Member::verify)
	}

	fn state(&mut self, group: &Group, members: &mut [Member], state: ParentState, effort: Effort) -> Result {
		members.iter_mut().try_for_each(|member| member.become_state(state))?;
		// An empty parent has nothing for its clones to touch. Of others what that costs is asked in one state only.
		let touched = |member: &Member| member.spec.size > 0 && state == ParentState::Idle;
		let probes = |member: &Member| if touched(member) { Probe::VARIANTS } else { &Probe::VARIANTS[..1] };
		let cells: Vec<(usize, Probe)> = members
			.iter()
			.enumerate()
			.flat_map(|(index, member)| probes(member).iter().map(move |&probe| (index, probe)))
			.collect();
		let seed = group.size ^ u64::from(state.millionths());
		let stage = format!("{}, parent {state}", Size(group.size));
		let taken = self.run.sample(&stage, effort, cells.len(), seed, |cell, round| {
			let (index, probe) = cells[cell];
			// The same pages for every method.
			let seed = seed.wrapping_add((round * Probe::VARIANTS.len()) as u64 + probe as u64);
			let batch = Batch { probe, samples: BATCH, budget: BUDGET, start: None, seed };
			members[index].worker.send(&Ask::Batch(batch))?;
			Ok(by_measure(probe, &[members[index].samples()?]))
		});
		taken.keep(self.run, |cell, measure| row(group, &members[cells[cell].0], state, measure))
	}
}

/// What clones of one kind, made by one worker or several at once, were made for.
pub fn by_measure(probe: Probe, samples: &[Samples]) -> Visit<Measure> {
	let of = |measure| samples.iter().flat_map(|samples| samples.of(measure)).copied().collect();
	probe.measures().iter().map(|&measure| (measure, of(measure))).collect()
}
