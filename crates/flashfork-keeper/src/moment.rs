//! When a program is ready that doesn't say so itself.

use regex::bytes::Regex;
use std::{
	collections::{HashMap, HashSet, VecDeque},
	ffi::OsString,
	path::{Path, PathBuf},
	time::{Duration, Instant},
};

/// When it is.
#[derive(Debug)]
pub enum Moment {
	/// When it says so.
	Itself,
	/// When it has used next to no processor time for so long.
	Idle(Duration),
	/// When it listens for connections, on this port or on any.
	Listen(Option<u16>),
	/// When it has printed a line in which this is found.
	Line(Regex),
}

impl Moment {
	/// As it is written on the command line.
	pub fn of(text: &str) -> Option<Moment> {
		match text.split_once(':') {
			None if text == "itself" => Some(Moment::Itself),
			None if text == "listen" => Some(Moment::Listen(None)),
			Some(("listen", port)) => port.parse().ok().map(|port| Moment::Listen(Some(port))),
			Some(("idle", seconds)) => {
				let span = Duration::try_from_secs_f64(seconds.parse().ok()?).ok()?;
				(!span.is_zero()).then_some(Moment::Idle(span))
			}
			Some(("line", pattern)) => Regex::new(pattern).ok().map(Moment::Line),
			_ => None,
		}
	}
}

/// Looks every now and then whether it has come.
#[derive(Debug)]
pub struct Watch {
	/// When it was looked, and what processor time had been used or waited for.
	samples: VecDeque<(Instant, Duration)>,
	waits: Waits,
	/// Where it listens that was to listen elsewhere.
	elsewhere: Vec<u16>,
	/// Since when it is ready, but for its main thread.
	ready: Option<Instant>,
}

/// How long a program that listens, or asks for work, is given until its main thread waits, for connections perhaps: in
/// the middle of something it may hold a lock that clones could not unlock.
const TO_WAIT: Duration = Duration::from_secs(1);

/// Of the time: what a runtime does that has nothing to do.
const IDLE: f64 = 0.05;

impl Watch {
	pub fn new() -> Watch {
		Watch { samples: VecDeque::new(), waits: Waits::default(), elsewhere: Vec::new(), ready: None }
	}

	/// How long to wait until the next look; `None` where what comes tells.
	pub fn patience(moment: &Moment) -> Option<Duration> {
		match moment {
			Moment::Itself | Moment::Line(_) => None,
			Moment::Idle(span) => Some((*span / 10).clamp(Duration::from_millis(5), Duration::from_millis(100))),
			Moment::Listen(_) => Some(Duration::from_millis(10)),
		}
	}

	/// Whether it has come for a process.
	pub fn has_come(&mut self, moment: &Moment, pid: i32) -> bool {
		match moment {
			Moment::Itself | Moment::Line(_) => false,
			Moment::Idle(span) => self.is_idle(*span, pid),
			Moment::Listen(port) => {
				let listens = listens(pid, *port);
				self.ready = self.ready.filter(|_| listens);
				listens && self.waits(pid)
			}
		}
	}

	/// Whether the main thread of a process that is ready waits, or has been given [`TO_WAIT`].
	pub fn waits(&mut self, pid: i32) -> bool {
		let since = *self.ready.get_or_insert_with(Instant::now);
		since.elapsed() >= TO_WAIT || !has_to_do(&PathBuf::from(format!("/proc/{pid}")))
	}

	/// The ports on which a process listens that was to listen on another one, if they are others than before.
	pub fn listens_elsewhere(&mut self, moment: &Moment, pid: i32) -> Option<&[u16]> {
		if !matches!(moment, Moment::Listen(Some(_))) {
			return None;
		}
		let ports = ports_of(pid);
		let new = ports != self.elsewhere;
		self.elsewhere = ports;
		new.then_some(&self.elsewhere)
	}

	fn is_idle(&mut self, span: Duration, pid: i32) -> bool {
		let (now, Some(used)) = (Instant::now(), processor_time(pid)) else { return false };
		// On a busy machine a program that has much to do may have been given no time at all.
		let (waited, have_to_do) = self.waits.look(pid);
		let used = used + waited;
		self.samples.push_back((now, used));
		// The first that is left is the youngest that is old enough.
		while self.samples.get(1).is_some_and(|(at, _)| now - *at >= span) {
			self.samples.pop_front();
		}
		self.samples.front().is_some_and(|(at, before)| {
			let share = used.saturating_sub(*before).as_secs_f64() / (now - *at).as_secs_f64();
			now - *at >= span && share < IDLE && !have_to_do
		})
	}
}

/// How long the threads of a process have waited for a processor (`/proc/PID/task/TID/schedstat`: the kernel's
/// Documentation/scheduler/sched-stats.rst); those that wait now have not waited yet, as far as it says. Where the
/// kernel doesn't count that is nothing.
#[derive(Debug, Default)]
struct Waits {
	/// By each that there was at the last look.
	of: HashMap<OsString, Duration>,
	/// By all of them, those that are gone among them, until the last look at which they were there.
	all: Duration,
}

impl Waits {
	/// By all of them until now, and whether any has to do.
	fn look(&mut self, pid: i32) -> (Duration, bool) {
		let (mut of, mut have_to_do) = (HashMap::new(), false);
		for task in std::fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten() {
			let text = std::fs::read_to_string(task.path().join("schedstat")).unwrap_or_default();
			let waited = text.split_whitespace().nth(1).and_then(|nanoseconds| nanoseconds.parse().ok());
			let waited = Duration::from_nanos(waited.unwrap_or(0));
			have_to_do |= has_to_do(&task.path());
			let before = self.of.get(&task.file_name()).copied().unwrap_or_default();
			self.all += waited.saturating_sub(before);
			of.insert(task.file_name(), waited);
		}
		self.of = of;
		(self.all, have_to_do)
	}
}

/// Whether a thread, or a process's main thread, would run, or waits for a disk; by its directory in /proc.
fn has_to_do(task: &Path) -> bool {
	let text = std::fs::read_to_string(task.join("stat")).unwrap_or_default();
	text.rsplit_once(") ").is_some_and(|(_, rest)| rest.starts_with(['R', 'D']))
}

/// What all threads of a process have used (`clock_getcpuclockid(3)`).
fn processor_time(pid: i32) -> Option<Duration> {
	let mut clock: libc::clockid_t = 0;
	let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
	// SAFETY: both are locals.
	let told = unsafe {
		libc::clock_getcpuclockid(pid, &raw mut clock) == 0 && libc::clock_gettime(clock, &raw mut time) == 0
	};
	told.then(|| Duration::new(time.tv_sec as u64, time.tv_nsec as u32))
}

/// Whether a process has a socket that listens: of TCP on that port, or of any kind.
fn listens(pid: i32, port: Option<u16>) -> bool {
	match port {
		Some(port) => ports_of(pid).contains(&port),
		None => {
			let (own, process) = (sockets_of(pid), pid.to_string());
			!ports(&own, &process).is_empty() || !listening(&own, &process, "unix", unix).is_empty()
		}
	}
}

/// The ports of TCP on which a process listens, in their order.
fn ports_of(pid: i32) -> Vec<u16> {
	ports(&sockets_of(pid), &pid.to_string())
}

/// Those on which somebody listens by these sockets, in the network of a process.
pub fn ports(sockets: &HashSet<u64>, process: &str) -> Vec<u16> {
	let listening = |table| listening(sockets, process, table, tcp);
	let mut all: Vec<u16> = ["tcp", "tcp6"].into_iter().flat_map(listening).collect();
	all.sort_unstable();
	all.dedup();
	all
}

/// What a table of /proc/net says of those of these sockets that listen.
fn listening<T>(sockets: &HashSet<u64>, process: &str, table: &str, read: fn(&[&str]) -> Option<(u64, T)>) -> Vec<T> {
	let table = std::fs::read_to_string(format!("/proc/{process}/net/{table}")).unwrap_or_default();
	let all = table.lines().skip(1).filter_map(|line| read(&line.split_whitespace().collect::<Vec<_>>()));
	all.filter(|(inode, _)| sockets.contains(inode)).map(|(_, what)| what).collect()
}

fn sockets_of(pid: i32) -> HashSet<u64> {
	let Ok(open) = std::fs::read_dir(format!("/proc/{pid}/fd")) else { return HashSet::new() };
	let links =
		open.filter_map(|entry| std::fs::read_link(entry.ok()?.path()).ok()?.into_os_string().into_string().ok());
	links.filter_map(|link| link.strip_prefix("socket:[")?.strip_suffix(']')?.parse().ok()).collect()
}

/// Inode and port of a line of /proc/net/tcp whose socket listens (proc_pid_net(5)).
fn tcp(words: &[&str]) -> Option<(u64, u16)> {
	const LISTEN: &str = "0A";
	let port = u16::from_str_radix(words.get(1)?.rsplit_once(':')?.1, 16).ok()?;
	let inode = words.get(9).filter(|_| words[3] == LISTEN)?.parse().ok()?;
	Some((inode, port))
}

/// The inode of one of /proc/net/unix.
fn unix(words: &[&str]) -> Option<(u64, ())> {
	const ACCEPTS: u64 = 1 << 16;
	let flags = u64::from_str_radix(words.get(3)?, 16).ok()?;
	Some((words.get(6).filter(|_| flags & ACCEPTS != 0)?.parse().ok()?, ()))
}

#[cfg(test)]
mod tests;
