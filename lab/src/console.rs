//! Reads the guest's console: keeps its end, and picks out what the kernel complains about.

use std::collections::VecDeque;

use crate::error;

/// Lines kept, of the console's end and of warnings each: a panic and its call trace fit.
const KEPT: usize = 128;
/// Lines shown in an error.
const IN_ERROR: usize = 80;
const BEFORE: usize = 20;
/// A longer line is cut in pieces, so that a guest can't fill the host's memory.
const LONGEST: usize = 1024;

#[derive(Debug, Default)]
pub(crate) struct Console {
	line: Vec<u8>,
	/// The last lines.
	pub tail: VecDeque<String>,
	/// The lines in which the kernel reports a fault of its own.
	pub warnings: Vec<String>,
	/// Processes killed for want of memory so far.
	pub oom_kills: u32,
	/// Whether the kernel panicked.
	pub panicked: bool,
}

impl Console {
	/// Takes in what the guest wrote.
	pub fn feed(&mut self, bytes: &[u8]) {
		for byte in bytes {
			match byte {
				b'\n' => self.end_line(),
				b'\r' => {}
				_ => {
					self.line.push(*byte);
					if self.line.len() == LONGEST {
						self.end_line();
					}
				}
			}
		}
	}

	/// Takes an unfinished last line as a line; for the end of the guest.
	pub fn finish(&mut self) {
		if !self.line.is_empty() {
			self.end_line();
		}
	}

	fn end_line(&mut self) {
		let line = String::from_utf8_lossy(&self.line).into_owned();
		self.line.clear();
		let message = message(&line);
		self.panicked |= is_panic(message);
		if is_oom_kill(message) {
			self.oom_kills += 1;
		}
		if is_warning(message) && self.warnings.len() < KEPT {
			self.warnings.push(line.clone());
		}
		if self.tail.len() == KEPT {
			self.tail.pop_front();
		}
		self.tail.push_back(line);
	}

	/// What an error shows: the first fault of the kernel and what follows, if it is not too long
	/// ago, otherwise the last lines.
	pub fn tail_for_error(&self) -> error::Console {
		let fault = self.tail.iter().position(|line| {
			let message = message(line);
			is_warning(message) || is_panic(message)
		});
		let from = fault.map_or(self.tail.len().saturating_sub(IN_ERROR), |at| at.saturating_sub(BEFORE));
		error::Console(self.tail.iter().skip(from).take(IN_ERROR).cloned().collect())
	}
}

/// The line without its `[    1.234567] ` and the `[ T123]` that some kernels add.
fn message(line: &str) -> &str {
	let mut rest = line;
	while let Some((_, after)) = rest.strip_prefix('[').and_then(|r| r.split_once("] ")) {
		rest = after;
	}
	rest
}

/// What starts a message of `WARN()`, an oops and most checkers: lockdep, RCU, UBSAN, the slab
/// allocator, page poisoning, the object debugger. These count at the start only: boot messages have
/// `WARNING:` inside.
const STARTS: [&str; 7] = ["WARNING:", "UBSAN:", "Oops", "BUG ", "INFO: rcu", "pagealloc:", "ODEBUG:"];

/// Whether the kernel reports a fault of its own. `BUG:` also stands behind other words: KASAN, lockups,
/// `Bad page`, `Bad rss-counter`, `non-zero pgtables_bytes`.
fn is_warning(message: &str) -> bool {
	STARTS.iter().any(|start| message.starts_with(start))
		|| message.contains("BUG:")
		|| message.contains("kernel BUG at")
		|| message.starts_with("INFO: task ") && message.contains("blocked for more than")
		|| message.starts_with("INFO: trying to register non-static key")
}

fn is_panic(message: &str) -> bool {
	message.starts_with("Kernel panic")
}

/// mm/oom_kill.c: `Out of memory: Killed process 1 (x)`, `Memory cgroup out of memory: Killed ...`.
fn is_oom_kill(message: &str) -> bool {
	message.contains("ut of memory: Killed process")
		|| message.contains("ut of memory (oom_kill_allocating_task): Killed process")
}

#[cfg(test)]
mod tests;
