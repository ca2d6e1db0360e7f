//! One run: a fresh parent that writes and forks.

use flashfork_core::fork::{Engine, configure};
use procfs::{Current, Meminfo};

use crate::{prelude::*, subjects::parent};

const WORDS: usize = 512;

/// Who decides.
#[derive(Clone, Copy, PartialEq, Eq, Serialize, Deserialize, strum::AsRefStr, strum::VariantArray)]
#[strum(serialize_all = "lowercase")]
pub enum Who {
	/// Nobody: plain forks.
	Fork,
	/// Sealed before the first fork, and anew as the engine `seal` does.
	Seal,
	/// The policy.
	Auto,
}

#[derive(Clone, Copy, Serialize, Deserialize)]
pub struct Spec {
	pub who: Who,
	pub thp: bool,
	pub size: u64,
	pub cpu: usize,
}

impl Spec {
	/// The memory it begins with.
	pub fn parent(&self) -> parent::Spec {
		let method = if self.thp { Method::ForkThp } else { Method::Fork4k };
		parent::Spec { method, size: self.size, cpu: self.cpu }
	}
}

/// A request: cycles that write so many pages each, anywhere or in a row from the beginning on, with the time taken at
/// each of `marks`, ascending.
#[derive(Clone, Serialize, Deserialize)]
pub struct Ask {
	pub pages: usize,
	pub in_a_row: bool,
	pub marks: Vec<usize>,
	/// A mark that would come later than so many milliseconds is not waited for.
	pub budget: u64,
}

/// What a run took.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Reply {
	/// Microseconds from the first cycle to each mark that was reached.
	pub taken: Vec<f64>,
	/// Most bytes of memory used after a fork, beyond those at the beginning.
	pub extra: u64,
	/// Microseconds that a fork waited at most for what the engine did before it.
	pub longest_wait: f64,
}

pub struct PolicySubject {
	region: Region,
	who: Who,
}

impl Subject for PolicySubject {
	const NAME: &'static str = "policy";
	type Spec = Spec;
	type Ready = Facts;
	type Ask = Ask;
	type Reply = Reply;

	fn prepare(spec: Spec) -> Result<(Self, Facts)> {
		let region = spec.parent().fill()?;
		let facts = Facts::read(&region)?;
		Ok((Self { region, who: spec.who }, facts))
	}

	fn answer(&mut self, ask: Ask) -> Result<Reply> {
		let engine = match self.who {
			Who::Fork => Engine::Fork,
			Who::Seal => Engine::Seal,
			Who::Auto => Engine::Auto,
		};
		configure(engine, false).map_err(|e| unable!("engine {engine:?}: {e:?}"))?;
		let mut random = fastrand::Rng::with_seed(1);
		let (mut taken, mut spent, mut cycle) = (Vec::new(), Duration::ZERO, 0);
		let (begin, mut extra, mut longest_wait) = (memory_used()?, 0, Duration::ZERO);
		for &mark in &ask.marks {
			if spent * mark as u32 / cycle.max(1) as u32 > Duration::from_millis(ask.budget) {
				break;
			}
			while cycle < mark {
				let start = Instant::now();
				for turn in 0..ask.pages {
					let page = if ask.in_a_row { turn } else { random.usize(..self.region.pages()) };
					let at = page * WORDS;
					// What is there already: the check at the end stays simple, and a write is a write.
					self.region.write(at, self.region.read(at));
				}
				longest_wait = longest_wait.max(clone_that_ends()?);
				spent += start.elapsed();
				cycle += 1;
				extra = extra.max(memory_used()?.saturating_sub(begin));
			}
			taken.push(spent.as_secs_f64() * 1e6);
		}
		self.region.verify()?;
		Ok(Reply { taken, extra, longest_wait: longest_wait.as_secs_f64() * 1e6 })
	}
}

/// Bytes of the machine's memory that hold no file: no process is charged with a sealed page that nobody has mapped.
fn memory_used() -> Result<u64> {
	let memory = Meminfo::current().or_cant("read /proc/meminfo")?;
	Ok(memory.anon_pages.unwrap_or(0) + memory.shmem.unwrap_or(0))
}

/// A fork whose child ends at once; gives how long it waited before libc's own fork began.
fn clone_that_ends() -> Result<Duration> {
	let failed = |what: &str| unable!("{what}: {}", std::io::Error::last_os_error());
	let (asked, mut waited) = (Instant::now(), Duration::ZERO);
	let real = || {
		waited = asked.elapsed();
		// SAFETY: the child ends at once, by a call that is async-signal-safe.
		unsafe { libc::fork() }
	};
	let pid = flashfork_core::fork::fork(real, monotonic);
	match pid {
		// SAFETY: ends the child without the parent's exit handlers.
		0 => unsafe { libc::_exit(0) },
		pid if pid < 0 => Err(failed("fork")),
		pid => {
			let mut status = 0;
			// SAFETY: waits for our own child.
			match unsafe { libc::waitpid(pid, &raw mut status, 0) } {
				ended if ended == pid && status == 0 => Ok(waited),
				_ => Err(failed(&format!("a clone ended with status {status:#x}"))),
			}
		}
	}
}

#[cfg(test)]
mod tests {
	use super::*;

	#[test]
	fn a_run_reaches_its_marks_unless_they_take_too_long() {
		// Pinned, and with its own engine, in a child: neither must outlive the test. SAFETY: glibc keeps its allocator
		// usable across fork; the child ends without the harness's exit handlers.
		let pid = unsafe { libc::fork() };
		assert!(pid >= 0);
		if pid == 0 {
			let right = std::panic::catch_unwind(|| {
				let cpu = flashfork_measure::pin::chosen_cpu().unwrap();
				for who in Who::all() {
					let spec = Spec { who, thp: false, size: 16 << 20, cpu };
					let (mut subject, facts) = PolicySubject::prepare(spec).unwrap();
					assert_eq!(spec.parent().flaw(&facts), None);
					let mut ask = Ask { pages: 10, in_a_row: false, marks: vec![2, 5], budget: 600_000 };
					for in_a_row in [false, true] {
						let reply = subject.answer(Ask { in_a_row, ..ask.clone() }).unwrap();
						assert!(reply.taken.len() == 2 && reply.taken[0] < reply.taken[1], "{reply:?}");
					}
					ask.budget = 0;
					assert_eq!(subject.answer(ask).unwrap().taken.len(), 1, "the first mark is always waited for");
				}
			});
			// SAFETY: as above.
			unsafe { libc::_exit(i32::from(right.is_err())) };
		}
		let mut status = 0;
		// SAFETY: waits for the child just made.
		assert_eq!(unsafe { libc::waitpid(pid, &raw mut status, 0) }, pid);
		assert_eq!(status, 0);
	}
}
