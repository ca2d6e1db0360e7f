//! Runs the victim under ptrace(2) and lets system calls between its two marks fail.

use crate::fault::{Fault, faults, target};
use flashfork_tests::{Result, libraries, own_code::TRUST};
use libc::{c_int, user_regs_struct};
use nix::{
	sys::{
		ptrace::{self, Options},
		signal::Signal,
		wait::{WaitStatus, waitpid},
	},
	unistd::Pid,
};
use std::{
	io::Read,
	os::unix::process::CommandExt,
	path::{Path, PathBuf},
	process::{Child, Command, Stdio},
	sync::LazyLock,
};

/// The second mark, as in the victim: the first is that it stops.
const MARK: u64 = 0x666c_6173;

/// What is to go wrong: faults by the index of the system call after the first mark. One that the call at
/// that place can't give is left out.
pub type Plan = [(usize, Fault)];

/// A scene of the victim and the way it reaches the engine.
#[derive(Clone, Copy, Debug)]
pub struct Case<'a> {
	pub victim: &'a Path,
	pub shim: Option<&'a Path>,
	pub scene: &'a str,
}

/// Runs a case with the plan; `leak_allowed`: scratch memory may stay mapped; `number`: what the first call of the plan
/// is. Now and then there is one call more or less than there was before, and another would fail than was meant.
/// Returns the system calls between the marks, each as it was entered; with a plan, up to its last fault. The error is
/// what the victim said, or how it ended.
pub fn run(case: &Case, plan: &Plan, number: Option<u64>, leak_allowed: bool) -> Result<Vec<user_regs_struct>> {
	let mut child = start(case, leak_allowed)?;
	let pid = Pid::from_raw(child.id() as i32);
	let calls = trace(pid, plan, number);
	// When tracing failed the victim has ended, by a signal perhaps, or is ended here; its status is gone then.
	let status = match &calls {
		Ok(_) => child.wait().map_err(|e| format!("wait: {e}"))?,
		Err(_) => child.kill().and_then(|()| child.wait()).unwrap_or_default(),
	};
	let mut said = String::new();
	if let Some(mut pipe) = child.stderr.take() {
		pipe.read_to_string(&mut said).map_err(|e| format!("what the victim says: {e}"))?;
	}
	match calls {
		Ok(calls) if status.success() => Ok(calls),
		Ok(_) => Err(format!("{} ({status})", said.trim())),
		Err(e) => Err(format!("{} ({e})", said.trim())),
	}
}

/// Where the victim finds libraries.
const LIBRARIES: &str = "FLASHFORK_TEST_LIBRARIES";

/// Compiled once.
fn libraries_dir() -> &'static Path {
	static DIR: LazyLock<PathBuf> = LazyLock::new(|| {
		let dir = Path::new(env!("CARGO_TARGET_TMPDIR")).join("faults");
		std::fs::create_dir_all(&dir).expect("a directory for libraries");
		libraries::build(&dir).expect("libraries");
		dir
	});
	&DIR
}

fn start(case: &Case, leak_allowed: bool) -> Result<Child> {
	let mut command = Command::new(case.victim);
	command.arg(if case.shim.is_some() { "shim" } else { "linked" }).arg(case.scene);
	if leak_allowed {
		command.arg("leak-allowed");
	}
	if let Some(shim) = case.shim {
		command.env("LD_PRELOAD", shim).env("FLASHFORK_ENGINE", "fork").env(TRUST.0, TRUST.1);
	}
	command.env(LIBRARIES, libraries_dir());
	command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
	// SAFETY: one system call between fork and exec.
	unsafe { command.pre_exec(|| ptrace::traceme().map_err(Into::into)) };
	command.spawn().map_err(|e| format!("{}: {e}", case.victim.display()))
}

fn trace(pid: Pid, plan: &Plan, number: Option<u64>) -> Result<Vec<user_regs_struct>> {
	match stop(pid)? {
		Stop::Signal(Signal::SIGTRAP) => {}
		other => return Err(format!("not stopped at exec: {other:?}")),
	}
	ptrace::setoptions(pid, Options::PTRACE_O_TRACESYSGOOD | Options::PTRACE_O_EXITKILL).map_err(text)?;
	ptrace::cont(pid, None).map_err(text)?;
	match stop(pid)? {
		Stop::Signal(Signal::SIGSTOP) => {}
		other => return Err(format!("not stopped at the first mark: {other:?}")),
	}
	let mut calls = Vec::new();
	loop {
		let entered = next_call(pid)?;
		if entered.orig_rax as i64 == libc::SYS_prctl && entered.rdi == MARK {
			return ptrace::detach(pid, None).map(|()| calls).map_err(text);
		}
		// The rest is at full speed.
		if plan.last().is_some_and(|(last, _)| calls.len() > *last) {
			return ptrace::detach(pid, None).map(|()| calls).map_err(text);
		}
		// Where another call failed before, this may not be the one that the plan meant.
		let is_meant = |i: usize| Some(i) != plan.first().map(|(first, _)| *first) || number == Some(entered.orig_rax);
		let here = |i: usize| i == calls.len() && is_meant(i);
		let planned = plan.iter().find(|(i, fault)| here(*i) && faults(&entered).contains(fault));
		let unseen = makes_an_unseen_thread(&entered).then_some(Fault::Errno(libc::EAGAIN));
		calls.push(entered);
		match planned.map(|(_, fault)| *fault).or(unseen) {
			Some(fault) => {
				enter(pid, fault, entered)?;
				let left = next_call(pid)?;
				leave(pid, fault, &entered, left)?;
			}
			None => drop(next_call(pid)?),
		}
	}
}

/// Whether it is the thread that does the work of a seal with its own table of descriptors. It is not traced, so it
/// never comes to be: then the same work is done by the calls of the victim itself.
fn makes_an_unseen_thread(entered: &user_regs_struct) -> bool {
	let kind = entered.rdi as c_int & (libc::CLONE_THREAD | libc::CLONE_FILES);
	entered.orig_rax == libc::SYS_clone as u64 && kind == libc::CLONE_THREAD
}

#[derive(Debug)]
enum Stop {
	Call,
	Signal(Signal),
}

fn stop(pid: Pid) -> Result<Stop> {
	match waitpid(pid, None).map_err(text)? {
		WaitStatus::PtraceSyscall(_) => Ok(Stop::Call),
		WaitStatus::Stopped(_, signal) => Ok(Stop::Signal(signal)),
		other => Err(format!("ended early: {other:?}")),
	}
}

/// Runs to the next entry or exit of a system call; signals go through.
fn next_call(pid: Pid) -> Result<user_regs_struct> {
	let mut signal = None;
	loop {
		ptrace::syscall(pid, signal).map_err(text)?;
		match stop(pid)? {
			Stop::Call => return ptrace::getregs(pid).map_err(text),
			Stop::Signal(s) => signal = Some(s),
		}
	}
}

/// Changes a call on its way in.
fn enter(pid: Pid, fault: Fault, mut regs: user_regs_struct) -> Result {
	match fault {
		// No such call: nothing is done.
		Fault::Errno(_) => regs.orig_rax = u64::MAX,
		Fault::Late(_) => return Ok(()),
		Fault::Short => regs.rdx = (regs.rdx / 3).max(1),
		Fault::Hole => {
			let (addr, len) = target(&regs).ok_or("a hole needs a fixed target")?;
			(regs.orig_rax, regs.rdi, regs.rsi) = (libc::SYS_munmap as u64, addr, len);
		}
	}
	ptrace::setregs(pid, regs).map_err(text)
}

/// Changes what it gives on its way out; the other registers are as the program set them.
fn leave(pid: Pid, fault: Fault, entered: &user_regs_struct, left: user_regs_struct) -> Result {
	let error = |e: c_int| -i64::from(e) as u64;
	let mut regs = left;
	(regs.rdi, regs.rsi, regs.rdx) = (entered.rdi, entered.rsi, entered.rdx);
	regs.rax = match fault {
		Fault::Errno(e) | Fault::Late(e) => error(e),
		Fault::Short => left.rax,
		Fault::Hole => error(libc::ENOMEM),
	};
	ptrace::setregs(pid, regs).map_err(text)
}

fn text(e: nix::errno::Errno) -> String {
	format!("ptrace: {e}")
}
