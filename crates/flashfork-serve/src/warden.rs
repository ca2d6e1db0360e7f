//! The warden of a function: the process that makes its template, and in whose namespaces that lives.
//!
//! It is this program started again, twice: the outer process lives as long as the server, by the pipe to that; the
//! inner one is the first process of the template's namespace, and ends with the outer one, and all that runs there
//! with it.

use crate::{programs::Program, store::Config};
use flashfork_templates::{Directory, Moment, Ready, Template};
use rustix::{
	event::{PollFd, PollFlags, Timespec, poll},
	fs::{CWD, Mode, OFlags},
	mount::{MountFlags, MountPropagationFlags, UnmountFlags, mount, mount_bind, mount_change, mount_remount, unmount},
	process::{
		Pid, PidfdFlags, Resource, Rlimit, Signal, WaitOptions, getrlimit, pidfd_open, set_parent_process_death_signal,
		setrlimit, wait,
	},
};
use seccompiler::{BpfProgram, SeccompAction, SeccompFilter};
use serde::{Deserialize, Serialize};
use std::{
	collections::BTreeMap,
	ffi::CStr,
	io::{Error, Result, Write},
	os::{
		fd::AsRawFd,
		unix::fs::{DirBuilderExt, FileTypeExt},
	},
	path::{Path, PathBuf},
	process::Stdio,
	time::Duration,
};

/// What a warden is to make; one line of JSON.
#[derive(Serialize, Deserialize)]
pub struct Order {
	pub state: PathBuf,
	pub code: PathBuf,
	pub program: Program,
	pub shim: PathBuf,
	pub config: Config,
	/// Most namespaces of a kind that all of it may have.
	pub namespaces: usize,
}

/// What has come of it, one line of JSON: how many kilobytes the template has as its data (`VmData` in
/// `/proc/PID/status`), and whether with its threads; or why there is none.
pub type Told = std::result::Result<(u64, bool), String>;

/// The inner process, in its namespace.
const INIT: i32 = 1;
/// How often it is looked for what a warm-up has left, while others begin.
const LOOKS: usize = 1000;

/// The name of a template, which is alone in its directory.
pub const NAME: &str = "function";

/// Where a template has its name, in memory: in the mounts of the outer process to the end, in those of the inner one
/// until it is warm.
pub fn names(state: &Path) -> PathBuf {
	state.join("names")
}

/// Where a function finds its code.
pub fn task_root(state: &Path) -> PathBuf {
	state.join("task")
}

/// The environment in which a function is warmed, and its calls run, that finds its code in `root`.
pub fn environment(root: &Path, config: &Config) -> BTreeMap<String, String> {
	let mut all = config.environment.variables.clone();
	let memory = config.memory_size.to_string();
	let root = root.display().to_string();
	for (name, value) in [
		("AWS_LAMBDA_RUNTIME_API", "127.0.0.1:1"),
		("AWS_LAMBDA_FUNCTION_NAME", &config.function_name),
		("AWS_LAMBDA_FUNCTION_VERSION", "$LATEST"),
		("AWS_LAMBDA_FUNCTION_MEMORY_SIZE", &memory),
		("AWS_LAMBDA_LOG_GROUP_NAME", &format!("/aws/lambda/{}", config.function_name)),
		("AWS_LAMBDA_LOG_STREAM_NAME", "local"),
		("LAMBDA_TASK_ROOT", &root),
		("_HANDLER", &config.handler),
	] {
		all.insert(name.into(), value.into());
	}
	for (name, value) in [
		("PATH", "/usr/local/bin:/usr/bin:/bin"),
		("LANG", "C.UTF-8"),
		("TZ", ":UTC"),
		("HOME", "/tmp"),
		("AWS_REGION", "local"),
		("AWS_DEFAULT_REGION", "local"),
	] {
		all.entry(name.into()).or_insert_with(|| value.into());
	}
	all
}

/// What this program does when it is started as a warden.
pub fn main() {
	let (told, template) = match inner() {
		Ok(None) => return,
		Ok(Some((told, template))) => (Told::Ok(told), Some(template)),
		Err(why) => (Told::Err(why.to_string()), None),
	};
	// Whoever would hear it may be gone: then this process is, in a moment.
	let _ = writeln!(std::io::stdout(), "{}", serde_json::json!(told));
	if let Some(template) = template {
		stay(template);
	}
}

/// What is told of the template, and its process; `None` when all is over.
fn inner() -> Result<Option<((u64, bool), i32)>> {
	let mut line = String::new();
	std::io::stdin().read_line(&mut line)?;
	let order: Order = serde_json::from_str(&line)?;
	let (user, group) = (rustix::process::geteuid().as_raw(), rustix::process::getegid().as_raw());
	let all = libc::CLONE_NEWUSER | libc::CLONE_NEWPID | libc::CLONE_NEWNS | libc::CLONE_NEWIPC;
	// SAFETY: takes a number; this process has one thread.
	if unsafe { libc::unshare(all) } != 0 {
		return Err(failed("make namespaces (is kernel.unprivileged_userns_clone off, or AppArmor in the way?)"));
	}
	std::fs::write("/proc/self/setgroups", "deny")?;
	std::fs::write("/proc/self/uid_map", format!("{user} {user} 1"))?;
	std::fs::write("/proc/self/gid_map", format!("{group} {group} 1"))?;
	see_little(&order)?;
	let (alive, held) = std::io::pipe()?;
	// SAFETY: this process has one thread.
	match unsafe { libc::fork() } {
		-1 => Err(failed("fork")),
		0 => {
			set_parent_process_death_signal(Some(Signal::KILL))?;
			drop(held);
			// The outer process may have ended before that, and can't be seen from here.
			if poll(&mut [PollFd::new(&alive, PollFlags::IN)], Some(&Timespec::default()))? != 0 {
				return Ok(None);
			}
			warm(&order).map(Some)
		}
		inside => outer(inside).map(|()| None),
	}
}

fn failed(what: &str) -> Error {
	let why = Error::last_os_error();
	Error::new(why.kind(), format!("can't {what}: {why}"))
}

/// Returns when the server has gone, or the inner process has.
fn outer(inside: i32) -> Result<()> {
	let inside = Pid::from_raw(inside).and_then(|pid| pidfd_open(pid, PidfdFlags::empty()).ok());
	let inside = inside.ok_or_else(|| failed("wait for the first process of a namespace"))?;
	let stdin = std::io::stdin();
	// Nothing more is ever written.
	let mut ends = [PollFd::new(&stdin, PollFlags::IN), PollFd::new(&inside, PollFlags::IN)];
	loop {
		match poll(&mut ends, None) {
			Err(rustix::io::Errno::INTR) => {}
			done => return Ok(done.map(|_| ())?),
		}
	}
}

fn warm(order: &Order) -> Result<((u64, bool), i32)> {
	go_apart(&order.state)?;
	limit_namespaces(order.namespaces)?;
	without_keys()?;
	// The server keeps room for what it sends: see MOST_DESCRIPTORS in pool.rs.
	let half = getrlimit(Resource::Nofile).maximum.map(|most| most / 2);
	setrlimit(Resource::Nofile, Rlimit { current: half, maximum: half })?;
	let place = names(&order.state);
	let names = Directory::open(&place).map_err(Error::other)?;
	std::env::set_current_dir(task_root(&order.state))?;
	rustix::process::umask(rustix::fs::Mode::from_raw_mode(0o022));
	let program = &order.program;
	let start = |threads| {
		let mut warm = Template::warm(&names, NAME.parse().map_err(Error::other)?, &program.path, &order.shim)
			.args(&program.arguments)
			.envs(environment(&task_root(&order.state), &order.config))
			.envs(program.variables.iter().map(|(name, value)| (name, value)))
			.ready(Ready::Runtime);
		if threads {
			warm = warm.threads(Moment::Itself);
		}
		let errors = || Ok::<_, Error>(Stdio::from(rustix::io::dup(std::io::stderr())?));
		let warming = warm.output(errors()?, errors()?).start();
		Ok::<_, Error>(warming.and_then(flashfork_templates::Warming::wait))
	};
	let (mut threads, mut warmed) = (program.threads == Some(true), start(program.threads == Some(true))?);
	// With threads it may have more of its own, and a clone takes longer.
	if program.threads.is_none() && warmed.is_err() {
		// What the first has left running is no part of the second.
		// SAFETY: takes numbers; this is the first process of its namespace, which is not among those that are killed.
		unsafe { libc::kill(-1, libc::SIGKILL) };
		// Nor is what it has written.
		mount_own_places()?;
		(threads, warmed) = (true, start(true)?);
	}
	let facts = warmed.map_err(Error::other)?;
	// A template with threads has looked in its own namespace.
	if leaves_any(facts.pid)? {
		return Err(Error::other("it has left a process running, beside all calls: start it in the handler"));
	}
	for place in own_places().into_iter().filter(|place| place.is_dir()) {
		close(&place)?;
	}
	// No call is to find it, nor the function to write there by what it has opened, or mounted elsewhere.
	close(&place)?;
	let socket = std::fs::symlink_metadata(place.join(NAME))?;
	if !socket.file_type().is_socket() {
		return Err(Error::other("its name is no template's"));
	}
	unmount(&place, UnmountFlags::DETACH)?;
	// With threads the template is another process than those that it stands for; no other here has as much.
	let all = if threads { processes()? } else { vec![facts.pid] };
	Ok(((all.into_iter().filter_map(data_of).max().unwrap_or_default(), threads), facts.pid))
}

/// Whether anything runs here that is not below the template. Who ends when it has forked might pass a look by: so
/// none may have begun from before the first of two to behind the second.
fn leaves_any(template: i32) -> Result<bool> {
	for _ in 0..LOOKS {
		let last = last_begun()?;
		for _ in 0..2 {
			if processes()?.into_iter().any(|pid| pid != INIT && is_left(pid, template)) {
				return Ok(true);
			}
		}
		if last_begun()? == last {
			return Ok(false);
		}
		std::thread::sleep(Duration::from_millis(1));
	}
	Ok(true)
}

/// Whether a process has none but this one above it, which takes those whose parents have ended.
fn is_left(pid: i32, template: i32) -> bool {
	let above = std::iter::successors(Some(pid), |pid| parent_of(*pid));
	above.take_while(|pid| *pid != template).any(|pid| parent_of(pid) == Some(INIT))
}

/// The number of the latest process or thread of this namespace (`proc_loadavg(5)`).
fn last_begun() -> Result<String> {
	let told = std::fs::read_to_string("/proc/loadavg")?;
	Ok(told.split_whitespace().last().unwrap_or_default().to_owned())
}

/// All that can be seen.
fn processes() -> Result<Vec<i32>> {
	Ok(std::fs::read_dir("/proc")?.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok()).collect())
}

/// That of a process which has not ended, be it with threads but the first.
fn parent_of(pid: i32) -> Option<i32> {
	let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
	let fields: Vec<_> = stat.rsplit_once(')')?.1.split_whitespace().collect();
	let has_ended = fields.first() == Some(&"Z") && fields.get(17) == Some(&"1");
	fields.get(1).filter(|_| !has_ended)?.parse().ok()
}

/// How many kilobytes a process has as its data.
fn data_of(pid: i32) -> Option<u64> {
	let status = std::fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
	status.lines().find_map(|line| line.strip_prefix("VmData:")?.split_whitespace().next()?.parse().ok())
}

/// Leaves nothing that can be written to but what is in memory, and hides what is the server's.
fn see_little(order: &Order) -> Result<()> {
	let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
	let code = rustix::fs::openat(CWD, &order.code, flags, Mode::empty())?;
	tmpfs(&order.state, c"size=64m,mode=700")?;
	let (task, names) = (task_root(&order.state), names(&order.state));
	for place in [&task, &names] {
		std::fs::DirBuilder::new().mode(0o700).create(place)?;
	}
	mount_bind(format!("/proc/self/fd/{}", code.as_raw_fd()), task)?;
	// A process whose file system of its own doesn't answer can't be killed.
	let fuse = Path::new("/dev/fuse");
	if fuse.exists() {
		mount_bind("/dev/null", fuse)?;
	}
	attributes(Path::new("/"), libc::AT_RECURSIVE, [libc::MOUNT_ATTR_RDONLY, 0])?;
	// The template's socket is made there.
	tmpfs(&names, c"size=1m,nr_inodes=64,mode=700")?;
	mount_own_places()
}

fn mount_own_places() -> Result<()> {
	own_places().iter().filter(|place| place.is_dir()).try_for_each(|place| tmpfs(place, c"size=64m"))
}

fn tmpfs(place: &Path, options: &CStr) -> Result<()> {
	Ok(mount("tmpfs", place, "tmpfs", MountFlags::NOSUID | MountFlags::NODEV, options)?)
}

/// Goes to mounts of the inner process's own.
fn go_apart(state: &Path) -> Result<()> {
	// SAFETY: takes a number; this process has one thread.
	if unsafe { libc::unshare(libc::CLONE_NEWNS) } != 0 {
		return Err(failed("make a namespace"));
	}
	// What is unmounted there later goes from clones, too, of which one may be waiting for a caller by then.
	mount_change(state, MountPropagationFlags::SHARED)?;
	Ok(mount("proc", "/proc", "proc", MountFlags::NOSUID | MountFlags::NODEV | MountFlags::NOEXEC, None)?)
}

/// Has all that is in here have so many namespaces of each kind (`namespaces(7)`): the kernel counts them for the
/// server's user, and one call could use up those of all.
fn limit_namespaces(most: usize) -> Result<()> {
	for limit in std::fs::read_dir("/proc/sys/user")? {
		let path = limit?.path();
		if path.as_os_str().as_encoded_bytes().ends_with(b"_namespaces") {
			std::fs::write(path, most.to_string())?;
		}
	}
	Ok(())
}

/// Has no process that this one starts reach the kernel's keys (`keyrings(7)`): they are of the server's user, in no
/// namespace, so that one function could read another's.
fn without_keys() -> Result<()> {
	// The same calls have other numbers in the ABI x32.
	const X32: i64 = 0x4000_0000;
	let calls = [libc::SYS_add_key, libc::SYS_request_key, libc::SYS_keyctl];
	let rules = calls.into_iter().flat_map(|call| [(call, Vec::new()), (call | X32, Vec::new())]).collect();
	let architecture = std::env::consts::ARCH.try_into().map_err(Error::other)?;
	let none = SeccompAction::Errno(libc::ENOSYS as u32);
	let filter = SeccompFilter::new(rules, SeccompAction::Allow, none, architecture).map_err(Error::other)?;
	let program = BpfProgram::try_from(filter).map_err(Error::other)?;
	let all = libc::sock_fprog { len: program.len() as u16, filter: program.as_ptr() as *mut libc::sock_filter };
	// SAFETY: a structure with as many instructions as it says. The kernel takes it from who has all rights here; by
	// no_new_privs, which the library would set, the template would be another program than those who call it.
	match unsafe { libc::syscall(libc::SYS_seccomp, libc::SECCOMP_SET_MODE_FILTER, 0, &raw const all) } {
		0 => Ok(()),
		_ => Err(failed("keep the kernel's keys from functions")),
	}
}

/// Where processes of functions see nothing of this machine's.
pub fn hidden(state: &Path) -> Vec<PathBuf> {
	own_places().into_iter().chain([state.to_owned()]).collect()
}

/// Where the template may write, and each call has something else, or may not.
fn own_places() -> [PathBuf; 3] {
	["/tmp".into(), "/dev/shm".into(), format!("/run/user/{}", rustix::process::geteuid().as_raw()).into()]
}

/// Has nobody write any more to what is mounted there: calls would meet there.
fn close(place: &Path) -> Result<()> {
	match mount_remount(place, MountFlags::RDONLY | MountFlags::NOSUID | MountFlags::NODEV, c"") {
		Err(rustix::io::Errno::BUSY) => Err(Error::other(format!(
			"it keeps a file open in {} to write to, which all calls would share: open it in the handler",
			place.display()
		))),
		done => Ok(done?),
	}
}

/// Sets and clears attributes of what is mounted there.
fn attributes(place: &Path, flags: i32, [set, clear]: [u64; 2]) -> Result<()> {
	// `struct mount_attr` of `mount_setattr(2)`: the others are how mounts propagate, and whose users.
	let all = [set, clear, 0, 0];
	let path = std::ffi::CString::new(place.as_os_str().as_encoded_bytes())?;
	// SAFETY: a string with its NUL; a structure as long as said.
	let done = unsafe {
		let len = size_of_val(&all);
		libc::syscall(libc::SYS_mount_setattr, libc::AT_FDCWD, path.as_ptr(), flags, &raw const all, len)
	};
	if done == 0 { Ok(()) } else { Err(failed("make what is mounted read-only")) }
}

/// Sees to the ends of all processes here, until the template has ended.
fn stay(template: i32) {
	while let Ok(ended) = wait(WaitOptions::empty()) {
		if ended.is_some_and(|(pid, _)| pid.as_raw_nonzero().get() == template) {
			return;
		}
	}
}
