//! Starts a program that shall become a template.

use crate::{
	error::Error,
	start::Strings,
	warm::{Moment, Ready, Warm},
};
use flashfork_core::environment;
use flashfork_warm::ReadyAt;
use rustix::process::{Pid, PidfdFlags, Signal, kill_process_group, pidfd_open};
use std::{
	ffi::{OsStr, OsString, c_char},
	num::NonZeroU64,
	os::{
		fd::{OwnedFd, RawFd},
		unix::process::CommandExt,
	},
	process::{Child, Command, Stdio},
};

/// How many threads Python's numexpr starts when it is imported, as pandas does.
const NUMEXPR: &str = "NUMEXPR_NUM_THREADS";

unsafe extern "C" {
	static mut environ: *const *const c_char;
}

/// The program while it is warmed: ended with all its group unless it becomes a template.
#[derive(Debug)]
pub struct Program(pub Option<Child>);

impl Program {
	fn pid(&self) -> Option<Pid> {
		self.0.as_ref().map(Pid::from_child)
	}

	/// One that can be waited for together with others.
	pub fn descriptor(&self) -> rustix::io::Result<OwnedFd> {
		pidfd_open(self.pid().ok_or(rustix::io::Errno::CHILD)?, PidfdFlags::empty())
	}
}

impl Drop for Program {
	fn drop(&mut self) {
		// It may have ended.
		if let Some(group) = self.pid() {
			let _ = kill_process_group(group, Signal::KILL);
		}
		if let Some(mut child) = self.0.take() {
			let _ = child.wait();
		}
	}
}

/// The variables that load the shim, before what is `own` of them. A program that gcc has built with AddressSanitizer
/// refuses to start with it otherwise: its runtime wants to be the first library.
pub fn preloading(shim: &OsStr, own: impl Fn(&str) -> Option<OsString>) -> [(&'static str, OsString); 2] {
	[("LD_PRELOAD", shim), ("ASAN_OPTIONS", OsStr::new("verify_asan_link_order=0"))].map(|(name, first)| {
		let own = own(name).filter(|own| !own.is_empty());
		(name, std::iter::once(first.to_owned()).chain(own).collect::<Vec<_>>().join(OsStr::new(":")))
	})
}

/// Where it is ready, as it is told; 0 where it finds that.
fn number(ready: Ready) -> u8 {
	match ready {
		Ready::Auto => 0,
		Ready::Main => ReadyAt::Main as u8,
		Ready::Call => ReadyAt::Call as u8,
		Ready::Runtime => ReadyAt::Runtime as u8,
	}
}

/// Starts the program, with the shim, in its own session.
pub fn start(warm: &mut Warm<'_>, preload: OsString, passed: [RawFd; 4]) -> Result<Child, Error> {
	let at = number(warm.ready);
	let [control, listener, directory, recipe] = passed;
	let (max, starter) = (warm.max_clones.map_or(0, NonZeroU64::get), std::process::id());
	let (renews, name) = (u8::from(warm.renews), &warm.name);
	let follows = u8::from(warm.wrapper.is_some());
	let order = format!("{control},{listener},{directory},{recipe},{at},{max},{renews},{follows},{starter},{name}");
	let mut order = OsString::from(order);
	if let Some(wrapper) = warm.wrapper.as_ref().and_then(|path| path.canonicalize().ok()) {
		order.push("\n");
		order.push(wrapper);
	}
	let mut command = Command::new(&warm.command[0]);
	command.args(&warm.command[1..]);
	let mut variables = warm.environment.clone();
	// Its threads don't stop for a fork, and no clone would have them.
	if variables.variable(NUMEXPR).is_none() {
		variables.set(NUMEXPR, "1");
	}
	for (name, value) in preloading(&preload, |name| variables.variable(name).map(OsStr::to_owned)) {
		variables.set(name, value);
	}
	variables.set(environment::WARM.name(), order);
	spawn(command, &variables, warm, passed, &warm.command[0].clone())
}

/// Starts the keeper of a template with threads, which starts the program.
pub fn start_with_threads(
	warm: &mut Warm<'_>,
	moment: &Moment,
	preload: OsString,
	passed: [RawFd; 4],
) -> Result<Child, Error> {
	let at = number(warm.ready);
	let [control, listener, directory, recipe] = passed;
	let (max, renews) = (warm.max_clones.map_or(0, NonZeroU64::get), u8::from(warm.renews));
	let order = format!("{control},{listener},{directory},{recipe},{at},{max},{renews},{}", warm.name);
	let mut command = Command::new(warm.keeper()?);
	let mut variables = warm.environment.clone();
	let [(name, preload), (asan, options)] = preloading(&preload, |name| variables.variable(name).map(OsStr::to_owned));
	command.arg(order).arg(moment.word()).arg(preload).arg("--").args(&warm.command);
	// What is to be loaded is for the program alone.
	variables.remove(name);
	variables.set(asan, options);
	spawn(command, &variables, warm, passed, OsStr::new("flashfork-keeper"))
}

/// What both have of the warm-up. `named`: in a message, if it can't be run.
fn spawn(
	mut command: Command,
	variables: &Strings,
	warm: &mut Warm<'_>,
	passed: [RawFd; 4],
	named: &OsStr,
) -> Result<Child, Error> {
	let variables = variables.with_nuls()?;
	let table: Vec<_> = variables.iter().map(|text| text.as_ptr() as usize).chain([0]).collect();
	let (output, errors) = warm.output.take().unwrap_or_else(|| (Stdio::null(), Stdio::null()));
	command.stdin(Stdio::null()).stdout(output).stderr(errors);
	if let Some(directory) = &warm.directory {
		command.current_dir(directory);
	}
	let starter = std::process::id();
	// SAFETY: only async-signal-safe calls between fork and exec, in the child's one thread. A Command that knows of no
	// variables passes on those of the C library; these live as long as it.
	unsafe {
		command.pre_exec(move || {
			let _strings = &variables;
			environ = table.as_ptr().cast();
			prepare(passed, starter)
		})
	};
	command.spawn().map_err(|e| Error::Run { program: format!("'{}'", named.display()), why: e.to_string() })
}

/// In the child before its exec: its own session, no signal blocked or ignored (each clone has its caller's), and of
/// the descriptors those passed: others of this process would stay open for good. Until it is ready it ends with the
/// thread that started it.
fn prepare(passed: [RawFd; 4], starter: u32) -> std::io::Result<()> {
	rustix::process::setsid()?;
	rustix::process::set_parent_process_death_signal(Some(Signal::KILL))?;
	if std::os::unix::process::parent_id() != starter {
		return Err(std::io::ErrorKind::Interrupted.into());
	}
	// By libc: rustix has neither signal actions nor masks nor ranges of descriptors.
	for signal in 1..=64 {
		// SAFETY: no handler; libc refuses the numbers that are its own, and those that can't be set.
		unsafe { libc::signal(signal, libc::SIG_DFL) };
	}
	// SAFETY: the set is a local of which all zeros are a value, the empty set.
	let unblocked = unsafe {
		let none: libc::sigset_t = std::mem::zeroed();
		libc::sigprocmask(libc::SIG_SETMASK, &raw const none, std::ptr::null_mut())
	};
	// SAFETY: takes numbers. Closed by the exec: until then std reports its failure through one.
	let closed = unsafe { libc::syscall(libc::SYS_close_range, 3, libc::c_uint::MAX, libc::CLOSE_RANGE_CLOEXEC) };
	if unblocked != 0 || closed != 0 {
		return Err(std::io::Error::last_os_error());
	}
	for fd in passed {
		// SAFETY: takes numbers.
		if unsafe { libc::fcntl(fd, libc::F_SETFD, 0) } < 0 {
			return Err(std::io::Error::last_os_error());
		}
	}
	Ok(())
}
