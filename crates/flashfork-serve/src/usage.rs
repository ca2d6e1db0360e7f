//! What clones use of the processors.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{read_dir, read_link, read_to_string};
use std::path::PathBuf;

/// A clone below a warden, by the inode of its connection, which it has open as long as it speaks.
#[derive(Clone, Copy)]
pub struct Process {
	pub warden: u32,
	pub socket: u64,
}

/// What an instance's use of the processors is known by.
#[derive(Clone, Copy)]
pub enum Known {
	Process(Process),
	/// The VM daemon's process that runs a machine.
	Machine(u32),
}

/// Hundredths of a second that each has used, with all in its namespace; `None` of one that is not found.
pub fn used(all: &[Known]) -> Vec<Option<u64>> {
	let process = |known: &Known| if let Known::Process(process) = known { Some(*process) } else { None };
	let mut processes = of_processes(&all.iter().filter_map(process).collect::<Vec<_>>()).into_iter();
	let ticks = all.iter().map(|known| match known {
		Known::Process(_) => processes.next()?,
		Known::Machine(process) => ticks(*process),
	});
	ticks.map(|ticks| Some(ticks? * 100 / rustix::param::clock_ticks_per_second())).collect()
}

/// All are looked at once, however many clones there are.
fn of_processes(clones: &[Process]) -> Vec<Option<u64>> {
	let mut all: Vec<Seen> = Vec::new();
	let wardens: BTreeSet<_> = clones.iter().map(|clone| clone.warden).collect();
	wardens.into_iter().for_each(|warden| walk(warden, None, &mut all));
	// Of those that have it open the first, which the others are below.
	let sockets: BTreeMap<_, _> =
		all.iter().rev().flat_map(|one| one.sockets.iter().map(move |socket| (socket, one))).collect();
	let namespace = |clone: &Process| sockets.get(&clone.socket)?.namespace.as_ref();
	let mut ticks: BTreeMap<_, u64> = clones.iter().filter_map(namespace).map(|namespace| (namespace, 0)).collect();
	// In whose namespace each is, or below one that is.
	let mut places: Vec<Option<&PathBuf>> = Vec::new();
	for one in &all {
		let place = one.above.and_then(|above| places[above]).or(one.namespace.as_ref());
		let place = place.filter(|place| ticks.contains_key(place));
		if let Some(sum) = place.and_then(|place| ticks.get_mut(place)) {
			*sum += one.ticks;
		}
		places.push(place);
	}
	clones.iter().map(|clone| ticks.get(namespace(clone)?).copied()).collect()
}

struct Seen {
	/// The place of its parent, which comes before it.
	above: Option<usize>,
	/// That of processes, if it can be seen.
	namespace: Option<PathBuf>,
	/// By their inodes.
	sockets: Vec<u64>,
	ticks: u64,
}

/// Finds one, and all below it.
fn walk(process: u32, above: Option<usize>, all: &mut Vec<Seen>) {
	let files = read_dir(format!("/proc/{process}/fd")).into_iter().flatten().flatten();
	let socket = |file: PathBuf| file.to_str()?.strip_prefix("socket:[")?.strip_suffix(']')?.parse().ok();
	let place = all.len();
	all.push(Seen {
		above,
		namespace: read_link(format!("/proc/{process}/ns/pid")).ok(),
		sockets: files.filter_map(|file| socket(read_link(file.path()).ok()?)).collect(),
		ticks: ticks(process).unwrap_or_default(),
	});
	children(process).for_each(|child| walk(child, Some(place), all));
}

/// Ticks of the clock that a process has used, and its children that it has waited for.
fn ticks(process: u32) -> Option<u64> {
	let stat = read_to_string(format!("/proc/{process}/stat")).ok()?;
	// `proc_pid_stat(5)`: utime to cstime; the name before them may have any characters.
	let fields = stat.rsplit_once(')')?.1.split_whitespace();
	Some(fields.skip(11).take(4).filter_map(|field| field.parse::<u64>().ok()).sum())
}

fn children(process: u32) -> impl Iterator<Item = u32> {
	let threads = read_dir(format!("/proc/{process}/task")).into_iter().flatten().flatten();
	let all = threads.map(|thread| read_to_string(thread.path().join("children")).unwrap_or_default());
	all.flat_map(|all| all.split_whitespace().filter_map(|child| child.parse().ok()).collect::<Vec<_>>())
}
