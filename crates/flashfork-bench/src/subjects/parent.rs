//! The prepared parents of the experiments: what is asked for, and whether what came is that.

use crate::{
	prelude::*,
	subjects::{
		hugetlb::{HUGE, Pool},
		memory::Warm,
	},
};

/// Memory left to the rest of the machine, in bytes.
pub const RESERVE: u64 = 256 << 20;
/// Below this share of huge pages, what is measured would not be huge pages.
const MOSTLY_HUGE: f64 = 0.9;

/// A parent to prepare.
#[derive(Clone, Copy, Serialize, Deserialize)]
pub struct Spec {
	/// How its memory is held.
	pub method: Method,
	/// Bytes of memory.
	pub size: u64,
	/// The CPU to stay on, children included.
	pub cpu: usize,
}

impl Spec {
	/// On the CPU that experiments use.
	pub fn here(method: Method, size: u64) -> Result<Self> {
		Ok(Self { method, size, cpu: pin::chosen_cpu()? })
	}

	/// "fork-thp 1 GB", for messages and for what is left out.
	pub fn name(&self) -> String {
		format!("{} {}", self.method, show(self.size))
	}

	/// Why the host's pool has not enough for it now, if so. `copied`: bytes copied on write meanwhile. To be asked
	/// before each start: what was started before has taken its part.
	pub fn shortage(&self, copied: u64) -> Result<Option<String>> {
		match self.method {
			Method::Hugetlb if self.size > 0 => Ok(Pool::read()?.lacks(self.size, copied)),
			_ => Ok(None),
		}
	}

	/// Starts the worker that prepares it, and waits until it has.
	pub fn start<S: Subject<Spec = Self>>(&self) -> Result<Worker<S>> {
		Worker::start(self.name(), self)
	}

	/// In the worker: stays on the CPU and fills the memory. A seal finds as much again that the machine has: where
	/// 2 MB pages are cold it would end on small ones, and each fork after that would be another one than is measured.
	pub fn fill(&self) -> Result<Region> {
		pin::pin(self.cpu)?;
		let _warm = if self.method == Method::Seal { Some(Warm::hold(self.size)?) } else { None };
		Region::filled(self.method, self.size)
	}

	/// Why the parent is not what its method means, if so.
	pub fn flaw(&self, facts: &Facts) -> Option<String> {
		let (whole, huge) = (self.size / HUGE * HUGE, facts.huge_fraction * self.size as f64);
		match self.method {
			Method::ForkThp if self.size > 0 && whole == 0 => {
				Some("the memory is smaller than one huge page".to_owned())
			}
			Method::ForkThp | Method::Hugetlb if huge < MOSTLY_HUGE * whole as f64 => {
				Some(format!("the kernel gave huge pages for only {:.0} % of the memory", facts.huge_fraction * 100.0))
			}
			_ => None,
		}
	}
}

/// The methods this kernel can for any size; the others are left out.
pub fn of_any_size(run: &mut Run) -> Vec<Method> {
	let (methods, missing) = Method::here();
	missing.into_iter().for_each(|(method, why)| run.leave_out(method.as_ref(), why));
	methods
}

/// The methods this host can at the moment, those of the host's pool of huge pages included; the others are left out.
/// Whether the pool has enough for a parent is [`Spec::shortage`]'s to say.
pub fn methods(run: &mut Run) -> Result<Vec<Method>> {
	let unusable = Pool::read()?.unusable();
	if let Some(why) = &unusable {
		run.leave_out(Method::Hugetlb.as_ref(), why);
	}
	let mut methods = of_any_size(run);
	if unusable.is_none() {
		// Behind the other plain forks.
		methods.insert(2, Method::Hugetlb);
	}
	Ok(methods)
}

/// Starts these parents; those that can't be had, or aren't what they are called, are left out as `name` calls them.
/// `copied`: bytes copied on write of so many.
pub fn start<S: Subject<Spec = Spec, Ready = Facts>>(
	specs: Vec<Spec>,
	copied: impl Fn(u64) -> u64,
	name: impl Fn(&Spec) -> String,
	run: &mut Run,
) -> Result<Vec<(Spec, Worker<S>)>> {
	run.begin("preparing parents", specs.len() as u64);
	let mut parents = Vec::new();
	for spec in specs {
		run.go_on()?;
		if let Some(why) = spec.shortage(copied(spec.size))? {
			run.leave_out(name(&spec), why);
			continue;
		}
		let worker = spec.start::<S>()?;
		run.step();
		match spec.flaw(worker.ready()) {
			Some(flaw) => run.leave_out(name(&spec), flaw),
			None => parents.push((spec, worker)),
		}
	}
	Ok(parents)
}

#[cfg(test)]
mod tests {
	use super::*;

	#[test]
	fn a_parent_without_its_huge_pages_is_not_what_it_is_called() {
		let facts = |huge_fraction| Facts { vmas: 1, page_table_bytes: 0, resident_bytes: 0, huge_fraction };
		let flaw = |method, size, share| Spec { method, size, cpu: 0 }.flaw(&facts(share));
		assert!(flaw(Method::ForkThp, 64 << 20, 0.5).unwrap().contains("only 50 %"));
		assert!(flaw(Method::ForkThp, 1 << 20, 0.0).unwrap().contains("smaller than one huge page"));
		// 1.7 of 2.7 MB lie beside the one huge page there can be.
		assert_eq!(flaw(Method::ForkThp, 2_831_155, 0.74), None);
		assert_eq!(flaw(Method::ForkThp, 64 << 20, 0.95), None);
		assert_eq!(flaw(Method::ForkThp, 0, 0.0), None);
		assert_eq!(flaw(Method::Fork4k, 64 << 20, 0.0), None);
	}
}
