//! What clones use of the processors.

use std::{
	collections::{BTreeMap, BTreeSet},
	fs::{read_dir, read_link, read_to_string},
	path::PathBuf,
};

/// Descriptors of a process that are looked at, from the lowest on.
const LOOKED_AT: usize = 256;

/// A clone below a warden, by the inode of its connection, which it has open as long as it speaks.
#[derive(Clone, Copy)]
pub struct Process {
	pub warden: u32,
	/// How many namespaces of processes its own is below the warden's.
	pub depth: u32,
	pub socket: u64,
}

/// What an instance's use of the processors is known by.
#[derive(Clone, Copy)]
pub enum Known {
	Process(Process),
	/// The VM daemon's process that runs a machine.
	Machine(u32),
}

/// What an instance has used, with all in its namespace.
#[derive(Clone, Copy, Default)]
pub struct Used {
	/// Of a second.
	pub hundredths: u64,
	/// Whether a process there computes just now: it may be one whose times nobody takes.
	pub runs: bool,
}

/// What each has used; `None` of one that is not found.
pub fn used(all: &[Known]) -> Vec<Option<Used>> {
	let process = |known: &Known| if let Known::Process(process) = known { Some(*process) } else { None };
	let mut processes = of_processes(&all.iter().filter_map(process).collect::<Vec<_>>()).into_iter();
	let all = all.iter().map(|known| match known {
		Known::Process(_) => processes.next()?,
		// Its first thread tells nothing of the others.
		Known::Machine(process) => Some(Used { runs: false, ..of(*process)? }),
	});
	all.collect()
}

/// All are looked at once, however many clones there are.
fn of_processes(clones: &[Process]) -> Vec<Option<Used>> {
	let mut seen = Seen::default();
	let wardens: BTreeMap<_, _> = clones.iter().map(|clone| (clone.warden, clone.depth)).collect();
	wardens
		.into_iter()
		.for_each(|(warden, depth)| walk(warden, depth, None, None, &mut |one, call| seen.look(one, call)));
	let used = |clone: &Process| {
		let calls = seen.holders.get(&clone.socket)?.iter().map(|call| seen.used[call]);
		Some(calls.fold(Used::default(), Used::and))
	};
	clones.iter().map(used).collect()
}

/// Calls, by their namespaces, which have all below them, whatever namespaces these make.
#[derive(Default)]
struct Seen {
	/// What each has used.
	used: BTreeMap<PathBuf, Used>,
	/// Those that hold a socket, by its inode: one may have passed it to another.
	holders: BTreeMap<u64, BTreeSet<PathBuf>>,
}

impl Seen {
	fn look(&mut self, process: u32, call: Option<&PathBuf>) {
		let Some(call) = call else { return };
		let all = self.used.entry(call.clone()).or_default();
		*all = all.and(of(process).unwrap_or_default());
		let files = read_dir(format!("/proc/{process}/fd")).into_iter().flatten().flatten();
		let socket = |file: PathBuf| file.to_str()?.strip_prefix("socket:[")?.strip_suffix(']')?.parse().ok();
		for socket in files.take(LOOKED_AT).filter_map(|file| socket(read_link(file.path()).ok()?)) {
			self.holders.entry(socket).or_default().insert(call.clone());
		}
	}
}

/// Tells of a process and all below it, of which calls are so many namespaces further down, in which call each is, if
/// in any; of this one it is known.
pub fn walk(
	process: u32,
	depth: u32,
	above: Option<&PathBuf>,
	call: Option<&PathBuf>,
	look: &mut impl FnMut(u32, Option<&PathBuf>),
) {
	let (depth, own) = match (namespace(process), above) {
		(Some(own), Some(above)) if own != *above => (depth.saturating_sub(1), Some(own)),
		(own, above) => (depth, own.or_else(|| above.cloned())),
	};
	let call = call.or(own.as_ref().filter(|_| depth == 0));
	look(process, call);
	children(process).for_each(|child| walk(child, depth, own.as_ref(), call, look));
}

/// Of processes, that this one is in.
pub fn namespace(process: u32) -> Option<PathBuf> {
	read_link(format!("/proc/{process}/ns/pid")).ok()
}

impl Used {
	fn and(self, other: Used) -> Used {
		Used { hundredths: self.hundredths + other.hundredths, runs: self.runs || other.runs }
	}
}

/// A process, with its children that it has waited for.
fn of(process: u32) -> Option<Used> {
	let stat = read_to_string(format!("/proc/{process}/stat")).ok()?;
	// `proc_pid_stat(5)`: state, and utime to cstime in ticks; the name before them may have any characters.
	let fields: Vec<_> = stat.rsplit_once(')')?.1.split_whitespace().collect();
	let ticks: u64 = fields.get(11..15)?.iter().filter_map(|field| field.parse::<u64>().ok()).sum();
	Some(Used { hundredths: ticks * 100 / rustix::param::clock_ticks_per_second(), runs: fields[0] == "R" })
}

pub fn children(process: u32) -> impl Iterator<Item = u32> {
	let threads = read_dir(format!("/proc/{process}/task")).into_iter().flatten().flatten();
	let all = threads.map(|thread| read_to_string(thread.path().join("children")).unwrap_or_default());
	all.flat_map(|all| all.split_whitespace().filter_map(|child| child.parse().ok()).collect::<Vec<_>>())
}
