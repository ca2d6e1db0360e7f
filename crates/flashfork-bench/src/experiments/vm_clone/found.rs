//! The records of `bench vm-clone`: what tells them apart, and how they are found again.

use super::{EXPERIMENT, GuestKind};
use crate::{prelude::*, subjects::vm_host::MemoryPages};

/// How a running machine comes about.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Method {
	/// By claiming a shell that waits.
	Clone(MemoryPages),
	/// By claiming one primed for the template.
	Primed(MemoryPages),
	/// From nothing.
	ColdBoot(MemoryPages),
}

impl Method {
	/// Every method there is, in table order.
	pub const ALL: [Self; 9] = [
		Self::Clone(MemoryPages::Small),
		Self::Clone(MemoryPages::Thp),
		Self::Clone(MemoryPages::Hugetlb),
		Self::Primed(MemoryPages::Small),
		Self::Primed(MemoryPages::Thp),
		Self::Primed(MemoryPages::Hugetlb),
		Self::ColdBoot(MemoryPages::Small),
		Self::ColdBoot(MemoryPages::Thp),
		Self::ColdBoot(MemoryPages::Hugetlb),
	];

	/// Both claims of a template on `pages`.
	pub fn claims(pages: MemoryPages) -> [Self; 2] {
		[Self::Clone(pages), Self::Primed(pages)]
	}

	/// The pages of the template that is claimed; none for a boot.
	pub fn claimed(self) -> Option<MemoryPages> {
		match self {
			Self::Clone(pages) | Self::Primed(pages) => Some(pages),
			Self::ColdBoot(_) => None,
		}
	}

	/// As records name it.
	pub fn name(self) -> String {
		match self {
			Self::Clone(pages) => format!("clone-{}", pages.as_ref()),
			Self::Primed(pages) => format!("primed-{}", pages.as_ref()),
			Self::ColdBoot(pages) => format!("cold-boot-{}", pages.as_ref()),
		}
	}
}

/// From the request until the client knows that the guest has left for the first time.
pub const FIRST_EXIT: &str = "first exit";
/// From the request until the clone's process is reaped; its guest ends by itself.
pub const CYCLE: &str = "cycle";
/// Preparing a shell, before anybody asks.
pub const PREPARE: &str = "prepare a shell";
/// From the request until the agent's word that the guest has entropy, clock and hooks.
pub const READY: &str = "ready";
/// From the request until the guest is ready and its agent has answered a call: the hello over its socket.
pub const FIRST_REPLY: &str = "first reply";

/// The steps of a claim as they follow one another. The first is the client's; the last is what nobody measures: both
/// processes' way through the scheduler.
pub const STEPS: [&str; 8] = ["send", "check", "map", "vcpus", "machine", "devices", "run", "wake-ups"];
/// The steps of a cold boot.
pub const BOOT_STEPS: [&str; 3] = ["create", "load", "run"];

/// What one clone or boot took: measures and microseconds.
pub type Sample = Vec<(&'static str, f64)>;

/// One method at one size.
#[derive(Clone, Copy)]
pub struct Cell {
	pub guest: GuestKind,
	pub method: Method,
	/// Bytes of guest memory.
	pub size: u64,
	/// The share of the template's memory on 2 MB pages.
	pub huge_fraction: f64,
}

impl Cell {
	pub fn row(&self, measure: &str) -> Row {
		let chosen = json!({ "measure": measure, "guest": self.guest.as_ref(), "size": self.size, "vcpus": 1 });
		Row::of(self.method.name(), "us", chosen).beside(json!({ "template_huge_fraction": self.huge_fraction }))
	}
}

/// What a number of shells or clones held, each of them, at one moment.
#[derive(Clone, Copy)]
pub struct Bytes {
	/// All, kernel memory included.
	pub total: f64,
	/// Of it, the processes' own.
	pub user: f64,
}

/// What was counted in: the parts of [`Bytes`].
pub const ALL: &str = "all";
pub const USER: &str = "user";
/// What was counted.
pub const WAITING: &str = "memory of a waiting shell";
pub const ALIVE: &str = "memory of a clone alive";

/// Keeps what `count` shells or clones of one size hold, one sample a repetition. `source`: how it was counted.
pub fn keep_density(what: &str, size: u64, count: usize, source: &str, counts: &[Bytes], run: &mut Run) -> Result {
	let mut keep = |part: &str, source: &str, of: fn(&Bytes) -> f64| {
		let chosen = json!({
			"measure": what,
			"part": part,
			"source": source,
			"guest": GuestKind::Tiny.as_ref(),
			"size": size,
			"count": count,
		});
		let row = Row::of(Method::Clone(MemoryPages::Small).name(), "bytes", chosen);
		run.keep(row, counts.iter().map(of).collect())
	};
	keep(ALL, source, |bytes| bytes.total)?;
	keep(USER, "sum of Pss", |bytes| bytes.user)
}

/// The record of one part of what was counted at `size`.
pub fn counted<'a>(document: &'a Document, what: &str, part: &str, size: u64) -> Option<&'a Record> {
	let wanted = json!({ "measure": what, "part": part, "size": size });
	document.find(EXPERIMENT, Method::Clone(MemoryPages::Small).name(), wanted)
}

/// The record of one measure.
pub fn find<'a>(
	document: &'a Document,
	guest: GuestKind,
	method: Method,
	size: u64,
	measure: &str,
) -> Option<&'a Record> {
	document.find(EXPERIMENT, method.name(), json!({ "measure": measure, "guest": guest.as_ref(), "size": size }))
}

/// The samples of one measure.
pub fn rounds(document: &Document, guest: GuestKind, method: Method, size: u64, measure: &str) -> Option<Rounds> {
	find(document, guest, method, size, measure).map(Record::rounds)
}

/// The sizes measured with `guest`, ascending.
pub fn sizes(document: &Document, guest: GuestKind) -> Vec<u64> {
	numbers(document.of(EXPERIMENT).filter(|record| record.text("guest") == Some(guest.as_ref())), "size")
}

/// The sizes and methods with which `measure` was taken, in table order.
pub fn cells(document: &Document, guest: GuestKind, measure: &str) -> Vec<(u64, Method)> {
	let all = sizes(document, guest).into_iter().flat_map(|size| Method::ALL.map(|method| (size, method)));
	all.filter(|&(size, method)| find(document, guest, method, size, measure).is_some()).collect()
}
