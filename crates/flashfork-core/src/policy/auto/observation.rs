//! What forks and memory have shown, since memory last changed and at the last looks.

use crate::{
	policy::{
		Num, Process, SEALED_FORK_NS,
		forecast::{COPY_NS, FAULT_NS, Memory, THERE_AND_BACK},
	},
	sys::{HUGE, PAGE},
};

/// What 2 MB of memory cost a plain fork at least, in nanoseconds. The rest of a fork, or the sealed fork of slow
/// hosts, is what no seal will take away.
const HUGE_PAGE_NS: u64 = 200;
/// Faults of a cycle that are too few to look how many of them were new pages; but every so many cycles it is looked.
pub const FEW: u64 = 16;
/// See [`FEW`].
pub const LOOK_EVERY: u64 = 16;

/// See the module.
pub struct Observation {
	/// Bytes of memory when it was last looked at without any sealed.
	pub whole: Num,
	/// Bytes in memfds that are mapped no more, and what the program had discarded when that was last asked.
	pub gone: Num,
	discarded: Num,
	/// Bytes in all memfds when they were last looked at, and in those that came since.
	pub held: Num,
	/// Bytes that existed in vain when they were last counted exactly.
	pub vain: Num,
	/// What a cycle took before anything was sealed, what a page costs a fork, and what a fork takes without any.
	pub plain: Num,
	/// See `plain`.
	pub page: Num,
	/// See `plain`.
	pub floor: Num,
	/// What a fork took before anything was sealed.
	pub plain_fork: Num,
	/// Anonymous memory that is no copy of sealed memory, and at the last look.
	pub own: Num,
	anonymous: Num,
	/// Pages written afresh in the cycle that ends with this fork.
	pub fresh: Num,
	/// Since memory last changed: cycles, their time, that of their forks, their faults, and by how much they were
	/// longer than plain ones in all.
	pub cycles: Num,
	/// See `cycles`.
	pub cycles_ns: Num,
	/// See `cycles`.
	pub forks_ns: Num,
	/// See `cycles`.
	pub faults: Num,
	/// See `cycles`.
	pub regret: Num,
	/// The forks of the last four cycles.
	pub last_forks: [Num; 4],
	/// After how many cycles of the first part it was counted what was written, and how many bytes.
	pub counted: Num,
	/// See `counted`.
	pub written: Num,
	/// Pages of all memory that a cycle writes afresh, as the first part shows, and one; 0 until then.
	pub shown: Num,
}

impl Observation {
	pub const fn new() -> Observation {
		Observation {
			whole: Num::new(0),
			gone: Num::new(0),
			discarded: Num::new(0),
			held: Num::new(0),
			vain: Num::new(0),
			plain: Num::new(0),
			page: Num::new(0),
			floor: Num::new(SEALED_FORK_NS),
			plain_fork: Num::new(0),
			own: Num::new(0),
			anonymous: Num::new(0),
			fresh: Num::new(0),
			cycles: Num::new(0),
			cycles_ns: Num::new(0),
			forks_ns: Num::new(0),
			faults: Num::new(0),
			regret: Num::new(0),
			last_forks: [const { Num::new(0) }; 4],
			counted: Num::new(0),
			written: Num::new(0),
			shown: Num::new(0),
		}
	}

	/// Looks at memory of which nothing is sealed; a fork takes `fork`.
	pub fn look_at_plain_memory(&self, process: &impl Process, fork: u64) {
		self.whole.set(process.anonymous());
		self.floor.set(SEALED_FORK_NS.min(fork.saturating_sub(self.whole.get() / HUGE as u64 * HUGE_PAGE_NS)));
	}

	/// All memory, which it takes `price` to seal.
	pub fn memory(&self, price: u64) -> Memory {
		Memory { bytes: self.whole.get(), price, fork_ns: self.floor.get(), page_ns: self.page.get() }
	}

	/// Looks how many of the pages written since the last fork were written for the first time since the seal. Gives
	/// the bytes that exist in vain now, as far as it was worth a look; `is_too_much` says whether so many would be too
	/// many. Generations up to `others` don't count.
	pub fn look(&self, process: &impl Process, faults: u64, others: u64, is_too_much: impl Fn(u64) -> bool) -> u64 {
		let discarded = process.discarded();
		let regularly = self.cycles.get().is_multiple_of(LOOK_EVERY);
		let discards = self.discarded.swap(discarded) != discarded;
		if faults < FEW && !regularly && !discards {
			self.fresh.set(faults);
			return self.gone.get();
		}
		if regularly || discards {
			self.look_at_memfds(process, others);
		}
		let now = process.anonymous();
		let grown = now.saturating_sub(self.anonymous.swap(now)) / PAGE as u64;
		self.fresh.set(grown.min(faults));
		let vain = now.saturating_sub(self.own.get()) + self.gone.get();
		if !is_too_much(vain) {
			return vain;
		}
		// Or the program has taken memory. The exact number takes a while, so it is asked for only here.
		self.weigh(process, others, now)
	}

	/// Asks how much of the memfds is still mapped.
	pub fn look_at_memfds(&self, process: &impl Process, others: u64) {
		if let Some(memfds) = process.memfds(others) {
			self.gone.set(memfds.gone);
			self.held.set(memfds.bytes);
		}
	}

	/// Tells memory that exists in vain from the process's own; gives the former.
	pub fn weigh(&self, process: &impl Process, others: u64, anonymous: u64) -> u64 {
		self.anonymous.set(anonymous);
		let Some(written) = process.written(others) else {
			self.own.set(self.own.get().min(anonymous));
			return self.gone.get();
		};
		self.own.set(anonymous.saturating_sub(written));
		self.look_at_memfds(process, others);
		self.vain.set(written + self.gone.get());
		self.vain.get()
	}

	/// So many bytes of the process's own memory are sealed now.
	pub fn sealed(&self, process: &impl Process, bytes: u64) {
		let now = process.anonymous();
		// While nothing is sealed all of it is its own.
		let own = if self.own.get() == 0 { now + bytes } else { self.own.get() };
		self.own.set(own.saturating_sub(bytes).min(now));
		if self.held.get() > 0 {
			self.held.add(bytes);
		}
		self.anonymous.set(now);
	}

	/// What a plain fork loses.
	pub fn lost_plainly(&self) -> u64 {
		THERE_AND_BACK * self.plain_fork.get().saturating_sub(self.floor.get())
	}

	/// A fork took `ns`, of memory that is sealed or not, and `faults` came in the cycle that ends with it. Gives what
	/// was lost by it.
	pub fn note(&self, ns: u64, faults: u64, sealed: bool) -> u64 {
		let fork = THERE_AND_BACK * ns;
		let mut cycle = fork + FAULT_NS * faults;
		let place = (self.cycles.get() % 4) as usize;
		self.last_forks[place].set(fork);
		if sealed {
			cycle += COPY_NS * self.fresh.get();
			// A fork that others have kept waiting, on a busy machine, says nothing about the seal.
			let shortest = self.last_forks.iter().map(Num::get).min().unwrap_or(fork);
			self.regret.set((self.regret.get() + cycle - fork + shortest).saturating_sub(self.plain.get()));
		}
		self.cycles.add(1);
		self.cycles_ns.add(cycle);
		self.forks_ns.add(fork);
		self.faults.add(faults);
		THERE_AND_BACK * ns.saturating_sub(self.floor.get())
	}

	/// The cycle that ends with the next fork takes so many nanoseconds more.
	pub fn pay(&self, ns: u64) {
		self.cycles_ns.add(ns);
		self.regret.add(ns);
	}

	/// Averages begin anew.
	pub fn changed(&self) {
		for number in [&self.cycles, &self.cycles_ns, &self.forks_ns, &self.faults, &self.regret, &self.counted] {
			number.set(0);
		}
	}

	/// Memory is no longer what it was: it is to be looked at anew.
	pub fn begin_anew(&self) {
		for number in [&self.gone, &self.whole, &self.shown, &self.own, &self.vain, &self.held] {
			number.set(0);
		}
	}
}
