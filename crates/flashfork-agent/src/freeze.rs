//! Everything else in the guest stands still from before its template is made until a clone is one of its own: what ran
//! on would draw random numbers that are the same in every clone, and read the template's clock.
//!
//! Processes are frozen by cgroup v2 (`cgroup.freeze`, Documentation/admin-guide/cgroup-v2.rst), which no process can
//! tell from having had no processor, but for calls like epoll_wait(2) that may end with `EINTR` as after SIGCONT
//! (signal(7)). Those in cgroups of their own are frozen there; those in the root, which can't be frozen, are moved to
//! one for the time.

use std::{
	fs, io,
	os::fd::{AsRawFd, OwnedFd},
	path::{Path, PathBuf},
	thread,
	time::{Duration, Instant},
};

use rustix::mount::{FsMountFlags, FsOpenFlags, MountAttrFlags, fsconfig_create, fsmount, fsopen};

use crate::log;

/// Where processes of the root are meanwhile.
const PLACE: &str = "flashfork.frozen";

/// How long processes may take to stop. One that waits for a disk stops when it has its answer.
const PATIENCE: Duration = Duration::from_secs(30);

/// How often they are looked at.
const AGAIN: Duration = Duration::from_millis(1);

/// `PF_KTHREAD` of linux/sched.h: the kernel's own threads can't be frozen, and need not.
const KERNEL_THREAD: u64 = 0x0020_0000;

/// The guest's other processes, standing still. They go on when they are [thawed](Frozen::thaw).
#[derive(Debug)]
pub struct Frozen {
	cgroups: Cgroups,
	frozen: Vec<PathBuf>,
	origin: PathBuf,
}

/// Freezes every process of the guest but this one, the first process too.
pub fn others() -> Result<Frozen, String> {
	let cgroups = Cgroups::mount().map_err(|error| {
		format!(
			"the guest's other processes can't be frozen: {error}; its kernel needs control groups (CONFIG_CGROUPS, Linux 5.2)"
		)
	})?;
	let memberships = fs::read_to_string("/proc/self/cgroup").map_err(|error| format!("/proc/self/cgroup: {error}"))?;
	let origin = memberships.lines().find_map(|line| line.strip_prefix("0::/")).unwrap_or_default();
	let origin = cgroups.root.join(origin);
	freeze(cgroups, origin, std::process::id())
}

/// The hierarchy of cgroup v2.
#[derive(Debug)]
struct Cgroups {
	root: PathBuf,
	/// Of a mount that nobody else sees.
	_mount: Option<OwnedFd>,
}

impl Cgroups {
	fn mount() -> io::Result<Self> {
		let context = fsopen("cgroup2", FsOpenFlags::FSOPEN_CLOEXEC)?;
		fsconfig_create(&context)?;
		let mount = fsmount(&context, FsMountFlags::FSMOUNT_CLOEXEC, MountAttrFlags::empty())?;
		Ok(Self { root: format!("/proc/self/fd/{}", mount.as_raw_fd()).into(), _mount: Some(mount) })
	}

	/// Cgroups of the first level but [`PLACE`].
	fn children(&self) -> io::Result<Vec<PathBuf>> {
		let entries = fs::read_dir(&self.root)?.collect::<io::Result<Vec<_>>>()?;
		let directories = entries.into_iter().filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()));
		Ok(directories.map(|entry| entry.path()).filter(|path| !path.ends_with(PLACE)).collect())
	}
}

/// Freezes all below the root of `cgroups`, and all in it, but process `own`, which was in `origin`.
fn freeze(cgroups: Cgroups, origin: PathBuf, own: u32) -> Result<Frozen, String> {
	let frozen = Vec::new();
	let mut frozen = Frozen { cgroups, frozen, origin };
	frozen.freeze(own).map_err(|error| {
		let message = format!("the guest's other processes can't be frozen: {error}");
		match frozen.undo(own) {
			Ok(()) => message,
			Err(error) => format!("{message}; nor thawed again: {error}"),
		}
	})?;
	Ok(frozen)
}

impl Frozen {
	fn freeze(&mut self, own: u32) -> io::Result<()> {
		let root = self.cgroups.root.clone();
		// Its own cgroup is about to be frozen, with what else is in it.
		join(&root, own)?;
		let place = root.join(PLACE);
		fs::create_dir(&place).or_else(|e| if e.kind() == io::ErrorKind::AlreadyExists { Ok(()) } else { Err(e) })?;
		fs::write(place.join("cgroup.freeze"), "1")?;
		let deadline = Instant::now() + PATIENCE;
		loop {
			// Processes make others until they stand still.
			let mut calm = true;
			for child in self.cgroups.children()? {
				calm &= !self.freeze_cgroup(child)?;
			}
			for process in
				processes(&root)?.into_iter().filter(|process| *process != own && !is_kernel_thread(*process))
			{
				calm &= !join(&place, process)?;
			}
			let waits = self.frozen.iter().chain([&place]).find(|cgroup| !stands_still(cgroup));
			match waits {
				None if calm => return Ok(()),
				Some(cgroup) if Instant::now() >= deadline => {
					let name = cgroup.file_name().unwrap_or_default().to_string_lossy();
					let message = format!("some in cgroup {name} go on for {} s", PATIENCE.as_secs());
					return Err(io::Error::new(io::ErrorKind::TimedOut, message));
				}
				_ => thread::sleep(AGAIN),
			}
		}
	}

	/// Whether there was anything to do.
	fn freeze_cgroup(&mut self, cgroup: PathBuf) -> io::Result<bool> {
		let file = cgroup.join("cgroup.freeze");
		match fs::read_to_string(&file) {
			// Who froze it, thaws it.
			Ok(state) if state.trim() == "1" => return Ok(false),
			Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(false),
			other => other?,
		};
		fs::write(&file, "1")?;
		self.frozen.push(cgroup);
		Ok(true)
	}

	/// Lets everything go on.
	pub fn thaw(self) -> Result<(), String> {
		self.undo(std::process::id()).map_err(|error| format!("the guest's other processes can't be thawed: {error}"))
	}

	fn undo(&self, own: u32) -> io::Result<()> {
		let (root, place) = (&self.cgroups.root, self.cgroups.root.join(PLACE));
		for cgroup in &self.frozen {
			fs::write(cgroup.join("cgroup.freeze"), "0")?;
		}
		// In a cgroup that isn't frozen they go on.
		loop {
			let left = if place.exists() { processes(&place)? } else { Vec::new() };
			if left.is_empty() {
				break;
			}
			for process in left {
				join(root, process)?;
			}
		}
		if let Err(error) = fs::remove_dir(&place) {
			log::line(&format!("cannot remove cgroup {PLACE}: {error}"));
		}
		if self.origin != *root {
			join(&self.origin, own)?;
		}
		Ok(())
	}
}

/// Moves a process into a cgroup; whether there still was one.
fn join(cgroup: &Path, process: u32) -> io::Result<bool> {
	match fs::write(cgroup.join("cgroup.procs"), process.to_string()) {
		Err(error) if error.raw_os_error() == Some(libc::ESRCH) => Ok(false),
		joined => joined.map(|()| true),
	}
}

fn processes(cgroup: &Path) -> io::Result<Vec<u32>> {
	let list = fs::read_to_string(cgroup.join("cgroup.procs"))?;
	// 0 is one of another process id namespace, above this one.
	Ok(list.lines().filter_map(|line| line.parse().ok()).filter(|process| *process != 0).collect())
}

fn stands_still(cgroup: &Path) -> bool {
	fs::read_to_string(cgroup.join("cgroup.events"))
		.map_or(true, |events| events.lines().any(|line| line == "frozen 1"))
}

/// proc_pid_stat(5): the ninth field has the flags; the second, in parentheses, may contain anything.
fn is_kernel_thread(process: u32) -> bool {
	let stat = fs::read_to_string(format!("/proc/{process}/stat")).unwrap_or_default();
	let flags = stat.rsplit_once(')').and_then(|(_, rest)| rest.split_whitespace().nth(6)?.parse::<u64>().ok());
	flags.is_some_and(|flags| flags & KERNEL_THREAD != 0)
}

#[cfg(test)]
mod tests;
