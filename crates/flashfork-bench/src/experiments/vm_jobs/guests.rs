//! The guests: what they do before a job and for one, and their templates.

use std::fs::File;

use flashfork_image::guest::Guest;
use flashfork_proto::{agent::Request, shape::Shape};
use flashfork_vmm::pool::Shell;

use super::found::{Cell, Method};
use crate::{
	prelude::*,
	subjects::vm_host::{
		Host, MemoryPages, PATIENCE, Template,
		linux::{self, Agent, exec, run},
		roll_back, shape, vm,
	},
};

const AGENT: &str = "/run/flashfork/agent";

const COMPILE: &str = "gcc -O2 -o /tmp/primes /opt/jobs/primes.c && /tmp/primes";
/// Ends when the program waits for jobs, or when it has ended.
const SERVE: &str = "set -e; cd /run; mkfifo jobs results ready; \
	{ java -cp /opt/jobs Pi jobs results ready </dev/null >java.log 2>&1 || cat java.log >ready; } & cat /run/ready";

/// What a machine can do.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, strum::AsRefStr)]
#[strum(serialize_all = "lowercase")]
pub enum Kind {
	/// Compile a small C program, and run it.
	Gcc,
	/// Estimate π in a Java program that is there already.
	Java,
}

impl Kind {
	/// Bytes of its guest's memory.
	pub fn memory(self) -> u64 {
		match self {
			Self::Gcc => 256 << 20,
			Self::Java => 512 << 20,
		}
	}

	fn shape(self) -> Shape {
		Shape { disk: true, ..shape(self.memory(), MemoryPages::Small.of_shape()) }
	}

	/// Makes a guest that has booted ready for jobs.
	fn initialise(self, agent: &mut Agent) -> Result {
		match self {
			Self::Gcc => Ok(()),
			Self::Java => run(agent, SERVE, |said| said.ends_with(" classes\n")),
		}
	}

	/// Does job number `number`, and looks at its result.
	pub fn work(self, agent: &mut Agent, number: u64) -> Result {
		match self {
			Self::Gcc => run(agent, COMPILE, |said| said == "25 primes up to 100\n"),
			Self::Java => {
				run(agent, &format!("cd /run && echo {number} >jobs && cat results"), |said| is_pi(said, number))
			}
		}
	}
}

/// Whether this is the result of that job and of no other.
fn is_pi(said: &str, number: u64) -> bool {
	let words: Vec<&str> = said.split_whitespace().collect();
	let near = |word: &str| word.parse::<f64>().is_ok_and(|pi| (pi - std::f64::consts::PI).abs() < 0.05);
	matches!(words[..], [seed, pi] if seed == number.to_string() && near(pi))
}

/// What all machines are made of.
pub struct Guests<'a> {
	host: &'a Host,
	guest: Guest,
	disk: File,
	templates: Vec<(Kind, Template)>,
}

/// A machine that waits for a job.
pub struct Ready {
	pub shell: Shell,
	pub agent: Agent,
	/// From its request until it did.
	pub took: Duration,
}

impl<'a> Guests<'a> {
	pub fn new(host: &'a Host, guest: Guest, disk: File) -> Self {
		Self { host, guest, disk, templates: Vec::new() }
	}

	/// Makes templates of a kind, on 4 KB pages and on 2 MB pages if more than half of its memory gets them: that share
	/// is given.
	pub fn add(&mut self, kind: Kind) -> Result<f64> {
		let Ready { shell, mut agent, .. } = self.boot(kind)?;
		if kind == Kind::Gcc {
			kind.work(&mut agent, 0)?;
		}
		// Nothing is heard of who gives the signal.
		let (mut requests, _replies) = agent.split();
		requests.send(&Request::Exec(exec(&[AGENT, "signal", "fork"]))).map_err(vm)?;
		let made = Template::freeze_as_it_is(&shell, kind.shape(), MemoryPages::Thp, Some(&self.disk))?;
		let share = made.huge_fraction;
		self.templates.push((kind, made.on(MemoryPages::Small)?));
		self.templates.extend(made.is_huge().then_some((kind, made)));
		Ok(share)
	}

	pub fn template(&self, kind: Kind, pages: MemoryPages) -> Option<&Template> {
		self.templates
			.iter()
			.find(|(of, template)| *of == kind && template.pages == pages)
			.map(|(_, template)| template)
	}

	pub fn can(&self, cell: Cell) -> bool {
		let there = |pages| cell.work.kinds().iter().all(|kind| self.template(*kind, pages).is_some());
		cell.method.template().is_none_or(there)
	}

	/// A machine that has begun from nothing.
	pub fn boot(&self, kind: Kind) -> Result<Ready> {
		let start = Instant::now();
		let shell = self.host.shell(kind.shape())?;
		linux::boot(&shell, kind.shape(), &self.guest, " flashfork.root=/dev/vda", Some(&self.disk))?;
		let mut agent = linux::until_answers(&shell)?;
		kind.initialise(&mut agent)?;
		Ok(Ready { shell, agent, took: start.elapsed() })
	}

	/// A clone, by a shell made before its request.
	pub fn clone(&self, kind: Kind, pages: MemoryPages, number: u64) -> Result<Ready> {
		let template = self.template(kind, pages).ok_or_else(|| vm("no template"))?;
		let shell = self.host.shell(kind.shape())?;
		let start = Instant::now();
		template.claim(&shell, number)?;
		ready(shell, start)
	}

	/// The clone in `shell` once more.
	pub fn roll_back(shell: Shell, number: u64) -> Result<Ready> {
		let start = Instant::now();
		roll_back(&shell, number)?;
		ready(shell, start)
	}
}

fn ready(shell: Shell, start: Instant) -> Result<Ready> {
	linux::until_alive(&shell)?;
	let agent = linux::connect(&shell, PATIENCE)?;
	Ok(Ready { shell, agent, took: start.elapsed() })
}

impl Method {
	/// The pages of the template that it needs.
	pub fn template(self) -> Option<MemoryPages> {
		match self {
			Self::Boot => None,
			Self::Clone(pages) | Self::Rollback(pages) => Some(pages),
		}
	}
}

#[cfg(test)]
mod tests {
	use super::*;

	#[test]
	fn a_result_is_believed_that_is_near_pi_and_of_its_job() {
		assert!(is_pi("7 3.14164\n", 7));
		for (said, number) in [("7 3.14164", 8), ("7 3.3", 7), ("7", 7), ("", 7), ("7 3.14 x", 7)] {
			assert!(!is_pi(said, number), "{said}");
		}
	}
}
