//! System calls that a stopped thread makes, for what only it can ask.

use crate::sys::{self, Errno, Result};
use syscalls::Sysno;

const PTRACE_GETREGS: usize = 12;
const PTRACE_SETREGS: usize = 13;
const PTRACE_SYSCALL: usize = 24;
/// `__WALL | __WNOTHREAD`: of this thread's tracees, threads too.
const OWN: u32 = 0x4000_0000 | 0x2000_0000;
/// Whom `wait4(2)` waits for: all.
const ANY: i32 = -1;
/// What a thread stops with at the begin and at the end of a call (`PTRACE_O_TRACESYSGOOD`).
const AT_CALL: i32 = 5 | 0x80;
const SIGILL: i32 = 4;
const SIGBUS: i32 = 7;
const SIGSEGV: i32 = 11;

const RAX: usize = 10;
const ORIG_RAX: usize = 15;
const RIP: usize = 16;
/// Where arguments are in `struct user_regs_struct`: rdi, rsi, rdx, r10; and r8 and r9, which are 0: some calls look
/// whether what they don't use is.
const ARGUMENTS: [usize; 4] = [14, 13, 12, 7];
const REST: [usize; 2] = [9, 8];

/// Has a thread that is stopped, with all signals blocked, make a call; nothing of its memory is touched. What is left
/// of its registers is of no use: to go on it would have to be given its own.
///
/// For the maker, which traces all threads of the program and has no other child. When all are killed, the main
/// thread's end is told only after the others' ends have been taken (`delay_group_leader()`), so they are.
pub fn inject(tid: i32, registers: &[usize; 27], number: Sysno, arguments: [usize; 4]) -> Result<usize> {
	make(sys::instruction(), ANY, tid, registers, number, arguments)
}

/// The same, of whoever traces this thread alone, with a `syscall` instruction at this address of the thread's memory.
pub fn inject_at(
	instruction: usize,
	tid: i32,
	registers: &[usize; 27],
	number: Sysno,
	arguments: [usize; 4],
) -> Result<usize> {
	make(instruction, tid, tid, registers, number, arguments)
}

fn make(
	instruction: usize,
	waited: i32,
	tid: i32,
	registers: &[usize; 27],
	number: Sysno,
	arguments: [usize; 4],
) -> Result<usize> {
	let mut now = *registers;
	now[RIP] = instruction;
	now[RAX] = number as usize;
	// In no call: the kernel has none to begin again.
	now[ORIG_RAX] = usize::MAX;
	for (place, argument) in ARGUMENTS.iter().zip(arguments) {
		now[*place] = argument;
	}
	for place in REST {
		now[place] = 0;
	}
	// SAFETY: struct user_regs_struct is 27 words. The thread executes one instruction, and is given other registers
	// before it goes on.
	unsafe {
		sys::ptrace(PTRACE_SETREGS, tid, 0, now.as_ptr() as usize)?;
		to_next_stop(waited, tid)?;
		to_next_stop(waited, tid)?;
		sys::ptrace(PTRACE_GETREGS, tid, 0, now.as_mut_ptr() as usize)?;
	}
	Errno::from_ret(now[RAX])
}

/// Lets it run to the begin or the end of its call. Who is waited for is it, or all.
fn to_next_stop(waited: i32, tid: i32) -> Result<()> {
	loop {
		// SAFETY: numbers are passed. A signal that it was about to get has been taken down.
		unsafe { sys::ptrace(PTRACE_SYSCALL, tid, 0, 0) }?;
		let status = loop {
			match sys::wait(waited, OWN)? {
				(id, status) if id == tid => break status,
				// The others stand still: they have but their ends to tell.
				_ => {}
			}
		};
		if status & 0xff != 0x7f {
			return Err(Errno::ESRCH);
		}
		match (status >> 8 & 0xff, status >> 16) {
			(AT_CALL, 0) => return Ok(()),
			// There is no such instruction: the program has told a false address.
			(SIGILL | SIGBUS | SIGSEGV, 0) => return Err(Errno::EFAULT),
			_ => {}
		}
	}
}

#[cfg(test)]
mod tests {
	use super::*;
	use std::{
		env, fs,
		process::Command,
		sync::mpsc,
		thread,
		time::{Duration, Instant},
	};

	const SEIZE: usize = 0x4206;
	const INTERRUPT: usize = 0x4207;
	const TRACESYSGOOD: usize = 1;
	const WALL: u32 = 0x4000_0000;

	/// Has the test below run on as a program with two threads.
	const RUNS_ON: &str = "FLASHFORK_TEST_RUNS_ON";

	#[test]
	fn a_call_ends_when_all_threads_are_killed_meanwhile() {
		while env::var_os(RUNS_ON).is_some() {
			thread::park();
		}
		let mut command = Command::new(env::current_exe().unwrap());
		let test = "forkall::inject::tests::a_call_ends_when_all_threads_are_killed_meanwhile";
		command.args(["--exact", test, "--test-threads", "2"]).env(RUNS_ON, "1");
		let mut program = command.spawn().unwrap();
		let pid = program.id() as i32;
		let threads = move || -> Vec<i32> {
			let tasks = fs::read_dir(format!("/proc/{pid}/task")).unwrap();
			tasks.map(|task| task.unwrap().file_name().to_str().unwrap().parse().unwrap()).collect()
		};
		// Both wait, in futex(2).
		let waits = |tid: &i32| {
			fs::read_to_string(format!("/proc/{pid}/task/{tid}/syscall")).is_ok_and(|text| text.starts_with("202 "))
		};
		until(|| threads().len() == 2 && threads().iter().all(waits));
		let (tell, told) = mpsc::channel();
		thread::spawn(move || {
			let mut registers = [0; 27];
			for tid in threads() {
				// SAFETY: numbers are passed, and where struct user_regs_struct is written; both threads' are 27 words.
				unsafe {
					sys::ptrace(SEIZE, tid, 0, TRACESYSGOOD).unwrap();
					sys::ptrace(INTERRUPT, tid, 0, 0).unwrap();
					sys::wait(tid, WALL).unwrap();
					if tid == pid {
						sys::ptrace(PTRACE_GETREGS, tid, 0, registers.as_mut_ptr() as usize).unwrap();
					}
				}
			}
			// The threads of one program have the same code.
			let instruction = registers[RIP] - 2;
			tell.send(make(instruction, ANY, pid, &registers, Sysno::pause, [0; 4])).unwrap();
		});
		until(|| fs::read_to_string(format!("/proc/{pid}/syscall")).is_ok_and(|text| text.starts_with("34 ")));
		Command::new("kill").args(["-KILL", &pid.to_string()]).status().unwrap();
		assert_eq!(told.recv_timeout(Duration::from_secs(60)), Ok(Err(Errno::ESRCH)));
		// Its end has been taken by the call.
		assert!(program.wait().is_err());
	}

	fn until(mut so: impl FnMut() -> bool) {
		let start = Instant::now();
		while !so() {
			assert!(start.elapsed() < Duration::from_secs(60));
			thread::sleep(Duration::from_millis(1));
		}
	}
}
