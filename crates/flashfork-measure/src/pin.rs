//! Keep a process on one CPU: an unpinned fork is bimodal, because the child may wake another, sleeping CPU.

use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

use crate::{Result, error::OrCant};

/// The CPUs this thread may run on, ascending. `sched_getaffinity(2)`.
pub fn allowed_cpus() -> Result<Vec<usize>> {
	let set = sched_getaffinity(None).or_cant("read the allowed CPUs")?;
	Ok((0..CpuSet::MAX_CPU).filter(|&cpu| set.is_set(cpu)).collect())
}

/// The CPU experiments use: the last allowed one, because interrupts and housekeeping tend to sit on the first.
pub fn chosen_cpu() -> Result<usize> {
	allowed_cpus()?.pop().ok_or_else(|| crate::unable!("this process is allowed on no CPU"))
}

/// Keeps the calling thread, and what it forks or starts from now on, on `cpu`. `sched_setaffinity(2)`.
pub fn pin(cpu: usize) -> Result {
	if cpu >= CpuSet::MAX_CPU {
		return Err(crate::unable!("CPU {cpu} is beyond the {} this program can name", CpuSet::MAX_CPU));
	}
	let mut set = CpuSet::new();
	set.set(cpu);
	sched_setaffinity(None, &set).or_cant(format_args!("pin to CPU {cpu}"))
}

#[cfg(test)]
mod tests {
	use super::*;

	#[test]
	fn a_pinned_thread_is_allowed_on_that_cpu_alone() {
		// On its own thread: the pin must not outlive the test.
		std::thread::spawn(|| {
			let cpu = chosen_cpu().unwrap();
			assert_eq!(allowed_cpus().unwrap().last(), Some(&cpu));
			pin(cpu).unwrap();
			assert_eq!(allowed_cpus().unwrap(), [cpu]);
		})
		.join()
		.unwrap();
	}

	#[test]
	fn a_cpu_that_cannot_exist_is_an_error() {
		assert!(pin(CpuSet::MAX_CPU).is_err());
		assert!(pin(CpuSet::MAX_CPU - 1).is_err());
	}
}
