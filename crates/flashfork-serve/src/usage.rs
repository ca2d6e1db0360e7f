//! What a clone uses of the processors.

use std::fs::{read_dir, read_link, read_to_string};
use std::path::{Path, PathBuf};

/// A clone below a warden, by the inode of its connection, which it has open as long as it speaks.
#[derive(Clone, Copy)]
pub struct Clone {
	pub warden: u32,
	pub socket: u64,
}

impl Clone {
	/// Hundredths of a second that all in its namespace have used; `None` if it is not found.
	pub fn used(self) -> Option<u64> {
		let namespace = find(self.warden, &format!("socket:[{}]", self.socket))?;
		Some(used(self.warden, &namespace, false) * 100 / rustix::param::clock_ticks_per_second())
	}
}

/// The namespace of a process that has this open, of all below one.
fn find(process: u32, socket: &str) -> Option<PathBuf> {
	let files = read_dir(format!("/proc/{process}/fd")).into_iter().flatten().flatten();
	match files.filter_map(|file| read_link(file.path()).ok()).any(|file| file.as_os_str() == socket) {
		true => namespace(process),
		false => children(process).find_map(|child| find(child, socket)),
	}
}

fn namespace(process: u32) -> Option<PathBuf> {
	read_link(format!("/proc/{process}/ns/pid")).ok()
}

/// Ticks of the clock that all below a process have used that are in a namespace, or below one that is.
fn used(process: u32, of: &Path, is_in: bool) -> u64 {
	let is_in = is_in || namespace(process).as_deref() == Some(of);
	let below: u64 = children(process).map(|child| used(child, of, is_in)).sum();
	if !is_in {
		return below;
	}
	let stat = read_to_string(format!("/proc/{process}/stat")).unwrap_or_default();
	// `proc_pid_stat(5)`: utime to cstime; the name before them may have any characters.
	let fields = stat.rsplit_once(')').unwrap_or_default().1.split_whitespace();
	below + fields.skip(11).take(4).filter_map(|field| field.parse::<u64>().ok()).sum::<u64>()
}

fn children(process: u32) -> impl Iterator<Item = u32> {
	let threads = read_dir(format!("/proc/{process}/task")).into_iter().flatten().flatten();
	let all = threads.map(|thread| read_to_string(thread.path().join("children")).unwrap_or_default());
	all.flat_map(|all| all.split_whitespace().filter_map(|child| child.parse().ok()).collect::<Vec<_>>())
}
