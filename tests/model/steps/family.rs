//! Children and grandchildren: they compare everything, go on for some steps of their own beside their parent, and end.

use crate::{
	journal::{Expect, Journal},
	mode::Mode,
	world::{Child, World, check::Depth},
};
use flashfork_tests::Result;

/// Generations below the first process.
pub(super) const DEPTH: usize = 2;
const CHILDREN: usize = 2;

unsafe extern "C" {
	/// The fork without handlers (glibc 2.34).
	fn _Fork() -> libc::pid_t;
}

impl World {
	pub fn step_fork(&mut self) -> Result {
		if self.depth == DEPTH {
			return Ok(());
		}
		if self.children.len() == CHILDREN {
			self.step_reap()?;
		}
		let seed = self.rng.next();
		let steps = self.rng.between(2, if self.depth == 0 { 40 } else { 12 });
		// Beside threads it would leave the allocator's locks as they are.
		let plainly = self.rng.chance(70) || matches!(self.mode, Mode::Threads | Mode::Heap);
		let name = format!("{}.{}", self.name, self.forks);
		self.forks += 1;
		self.journal.note(&format!("fork {name} for {steps} steps"))?;
		let (table, blocks) = (self.table.for_child(), self.blocks.for_child());
		let looked = Signal::new()?;
		// SAFETY: one thread; the child goes on with a copy of everything.
		let pid = unsafe { if plainly { libc::fork() } else { _Fork() } };
		if pid < 0 {
			return Err(format!("fork: {}", std::io::Error::last_os_error()));
		}
		if pid == 0 {
			let result = Journal::open(self.journal.places(), &name).and_then(|journal| {
				self.become_child(name, seed, table, blocks, journal);
				self.live(steps, looked)
			});
			self.end(result);
		}
		self.children.push(Child { pid, name });
		// Shared memory can be compared only while nobody writes to it.
		looked.wait();
		Ok(())
	}

	fn live(&mut self, steps: usize, looked: Signal) -> Result {
		// Of a grandchild's shared memory the first process may be writing some right now.
		if self.depth == 1 {
			self.check_shared()?;
		}
		looked.give();
		drop(looked);
		self.check_all(Depth::All)?;
		self.walk(steps)
	}

	/// Ends a tested process; what went wrong is told on standard error.
	pub fn end(&self, result: Result) -> ! {
		if let Err(message) = &result {
			eprintln!("model: {:?}, process {}: {message}", self.route, self.name);
		}
		// SAFETY: ends the process without the exit handlers of the one it was forked from.
		unsafe { libc::_exit(i32::from(result.is_err())) }
	}

	pub fn step_reap(&mut self) -> Result {
		if self.children.is_empty() {
			return Ok(());
		}
		let i = self.rng.below(self.children.len());
		let child = self.children.swap_remove(i);
		let mut status = 0;
		self.journal.call(&format!("wait for {}", child.name), Expect::Exactly(Ok(0)), || {
			// SAFETY: waits for our own child.
			unsafe { libc::waitpid(child.pid, &raw mut status, 0) };
			Ok(status as u64)
		})?;
		Ok(())
	}

	pub fn reap_all(&mut self) -> Result {
		while !self.children.is_empty() {
			self.step_reap()?;
		}
		Ok(())
	}
}

/// One byte from one process to another, or the end of the pipe when the giver is gone.
pub(super) struct Signal {
	ends: [i32; 2],
}

impl Signal {
	pub(super) fn new() -> Result<Signal> {
		let mut ends = [0; 2];
		// SAFETY: the kernel writes two descriptors.
		match unsafe { libc::pipe2(ends.as_mut_ptr(), libc::O_CLOEXEC) } {
			0 => Ok(Signal { ends }),
			_ => Err(format!("pipe: {}", std::io::Error::last_os_error())),
		}
	}

	/// The same signal once more, for somebody else to give.
	pub(super) fn again(&self) -> Signal {
		// SAFETY: no memory is passed. A failure leaves -1, which nothing comes from: the waiter is told that the giver
		// is gone.
		Signal { ends: self.ends.map(|end| unsafe { libc::fcntl(end, libc::F_DUPFD_CLOEXEC, 0) }) }
	}

	pub(super) fn give(&self) {
		// SAFETY: one byte of our own; nobody but the other process reads it, and it waits.
		unsafe { libc::write(self.ends[1], [1u8].as_ptr().cast(), 1) };
	}

	/// Waits until it is given; false: the giver is gone.
	pub(super) fn wait(mut self) -> bool {
		// SAFETY: our own end; closed here so that the giver's end is the last.
		unsafe { libc::close(self.ends[1]) };
		self.ends[1] = -1;
		let mut byte = [0u8; 1];
		// SAFETY: one byte into a local. An error or the end means that the giver is gone; whoever waits for a child
		// will be told.
		unsafe { libc::read(self.ends[0], byte.as_mut_ptr().cast(), 1) == 1 }
	}
}

impl Drop for Signal {
	fn drop(&mut self) {
		for end in self.ends {
			if end >= 0 {
				// SAFETY: both ends are ours.
				unsafe { libc::close(end) };
			}
		}
	}
}
