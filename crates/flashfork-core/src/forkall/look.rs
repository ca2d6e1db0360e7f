//! What each stopped thread is.

use super::{
	frame::{self, FRAME, register},
	frozen::{Frozen, Thread},
	inject::inject,
	number,
	raw::{call, into},
	unfit::{Fit, Unfit, What},
};
use crate::{
	proc::text::{ProcPath, read_file},
	range::Range,
	scratch,
	sys::{self, Result},
};
use syscalls::Sysno;

const PTRACE_GETREGS: usize = 12;
const PTRACE_GETSIGMASK: usize = 0x420a;
const PTRACE_SETSIGMASK: usize = 0x420b;
const PTRACE_GET_RSEQ_CONFIGURATION: usize = 0x420f;
const PTRACE_GET_SYSCALL_USER_DISPATCH_CONFIG: usize = 0x4211;
const PR_GET_TID_ADDRESS: usize = 40;
const PR_GET_SPECULATION_CTRL: usize = 52;

/// `restart_syscall(2)`: the program was stopped before, by `SIGSTOP` for example, and goes on with a call of which the
/// kernel knows when it began.
const RESTART: usize = 219;

/// Looks at them all, and writes the frames from which they go on in clones.
pub fn threads(frozen: &mut Frozen) -> Fit {
	let answers = (&raw mut frozen.answers) as usize;
	let count = frozen.count;
	frozen.frames = scratch::map(count * FRAME)?;
	for i in 0..count {
		let thread = &mut frozen.threads[i];
		thread.frame = frozen.frames + i * FRAME;
		let mut registers = [0; 27];
		asked_of_kernel(thread, &mut registers, frozen.pid)?;
		rewind(thread, &mut registers)?;
		number::ask_again(&mut registers);
		leave_sequence(thread, &mut registers[register::RIP]);
		if dispatches(thread.tid) {
			return Err(Unfit::named(What::Attribute, thread.tid, b"PR_SET_SYSCALL_USER_DISPATCH"));
		}
		asked_of_thread(thread, answers)?;
		if is_real_time(thread.policy) {
			return Err(Unfit::named(What::RealTime, thread.tid, &thread.name));
		}
		if thread.tid == frozen.pid && !keeps_its_number(thread) {
			return Err(Unfit::new(What::Library, thread.tid));
		}
		// SAFETY: the frame is this thread's alone.
		unsafe { frame::write(thread, &registers, thread.frame)? };
	}
	Ok(())
}

fn is_real_time(policy: i32) -> bool {
	const FIFO: i32 = 1;
	const RR: i32 = 2;
	const DEADLINE: i32 = 6;
	// The flag says that children don't inherit it.
	[FIFO, RR, DEADLINE].contains(&(policy & 0xff))
}

/// Whether a thread has system calls come back as signals: its clones' would not. Linux before 6.4 doesn't tell.
fn dispatches(tid: i32) -> bool {
	// struct ptrace_sud_config: mode, selector, offset, length.
	let mut config = [0u64; 4];
	// SAFETY: the kernel writes a local of the size that is told.
	let told =
		unsafe { sys::ptrace(PTRACE_GET_SYSCALL_USER_DISPATCH_CONFIG, tid, size_of_val(&config), into(&mut config)) };
	told.is_ok() && config[0] != 0
}

/// Everything that others may ask about it.
fn asked_of_kernel(thread: &mut Thread, registers: &mut [usize; 27], pid: i32) -> Result<()> {
	let tid = thread.tid;
	// SAFETY: the kernel writes what each request says, to what has room for it.
	unsafe {
		sys::ptrace(PTRACE_GETREGS, tid, 0, into(&mut thread.registers))?;
		sys::ptrace(PTRACE_GETSIGMASK, tid, 8, into(&mut thread.signals))?;
		let [head, len] = &mut thread.robust;
		call(Sysno::get_robust_list, [tid as usize, into(head), into(len)])?;
		// struct ptrace_rseq_configuration: address, length, signature, flags.
		let mut rseq = [0u64; 3];
		sys::ptrace(PTRACE_GET_RSEQ_CONFIGURATION, tid, size_of_val(&rseq), into(&mut rseq))?;
		let signature = (rseq[1] >> 32) as u32;
		thread.rseq = [rseq[0] as usize, rseq[1] as u32 as usize, signature as usize];
		thread.nice = 20 - call(Sysno::getpriority, [0, tid as usize])? as i32;
		thread.policy = call(Sysno::sched_getscheduler, [tid as usize])? as i32;
		thread.cpus = [0; _];
		call(Sysno::sched_getaffinity, [tid as usize, size_of_val(&thread.cpus), into(&mut thread.cpus)])?;
	}
	let path = ProcPath::of(pid).push(b"/task/").number(tid).push(b"/comm");
	let mut name = [0; 64];
	let told = read_file(path.as_c(), &mut name)?.trim_ascii_end();
	let len = told.len().min(15);
	thread.name = [0; 16];
	thread.name[..len].copy_from_slice(&told[..len]);
	thread.next = thread.registers[register::RIP];
	*registers = thread.registers;
	Ok(())
}

/// A call that was interrupted is made again, with its whole timeout if that is a span.
fn rewind(thread: &Thread, registers: &mut [usize; 27]) -> Fit {
	let number = registers[register::ORIG_RAX];
	if (number as isize) < 0 || !frame::is_interrupted(registers[register::RAX]) {
		return Ok(());
	}
	let next = &mut registers[register::RIP];
	*next -= 2;
	registers[register::RAX] = if number == RESTART {
		number_before(*next).ok_or_else(|| Unfit::named(What::Part, thread.tid, &thread.name))?
	} else {
		number
	};
	Ok(())
}

/// The number of a call that was begun by the instruction at this address, and that `restart_syscall(2)` goes on with:
/// its arguments are in their registers still, and its number is in the code before, where a C library's functions load
/// it.
fn number_before(instruction: usize) -> Option<usize> {
	/// `poll`, `nanosleep`, `futex`, `clock_nanosleep`: all that can be.
	const CALLS: [u8; 4] = [7, 35, 202, 230];
	/// `mov eax, NUMBER`.
	const LOAD: u8 = 0xb8;
	const SYSCALL: [u8; 2] = [0x0f, 0x05];
	let mut code = [0; 16];
	sys::read_own(instruction.checked_sub(code.len() - SYSCALL.len())?, &mut code).ok()?;
	let before = code.strip_suffix(&SYSCALL)?;
	before.windows(5).rev().find_map(|bytes| match bytes {
		[LOAD, number, 0, 0, 0] if CALLS.contains(number) => Some(usize::from(*number)),
		_ => None,
	})
}

/// In the middle of a restartable sequence (`rseq(2)`) it goes on where that is given up, as after any other
/// interruption: the kernel sees to that only when the thread itself goes on.
fn leave_sequence(thread: &Thread, next: &mut usize) {
	/// Where the area names the sequence.
	const SEQUENCE: usize = 8;
	let area = thread.rseq[0];
	let mut sequence = [0; 8];
	if area == 0 || sys::read_own(area + SEQUENCE, &mut sequence).is_err() {
		return;
	}
	// struct rseq_cs: version and flags, start, length, where it is given up.
	let mut words = [0u8; 32];
	let at = usize::from_ne_bytes(sequence);
	if at == 0 || sys::read_own(at, &mut words).is_err() {
		return;
	}
	let word = |i: usize| words[8 * i..].first_chunk().map_or(0, |bytes| usize::from_ne_bytes(*bytes));
	let (start, len, abort) = (word(1), word(2), word(3));
	if next.wrapping_sub(start) < len {
		*next = abort;
	}
	// SAFETY: the area is the thread's own, which stands still, and was just read there; the kernel would write the
	// same.
	unsafe { ((area + SEQUENCE) as *mut u64).write(0) };
}

/// Whether the C library keeps a thread's number where the kernel writes its end, as glibc does.
fn keeps_its_number(thread: &Thread) -> bool {
	let mut number = [0; 4];
	sys::read_own(thread.clear_tid, &mut number).is_ok() && i32::from_ne_bytes(number) == thread.tid
}

/// What only it can ask. All its signals are blocked from here on.
fn asked_of_thread(thread: &mut Thread, answers: usize) -> Result<()> {
	let all = u64::MAX;
	// SAFETY: the kernel reads a mask of 8 bytes; `answers` is memory of the maker's, which nobody uses meanwhile.
	unsafe {
		sys::ptrace(PTRACE_SETSIGMASK, thread.tid, 8, (&raw const all) as usize)?;
		let words = answers as *mut [usize; 3];
		inject(thread.tid, &thread.registers, Sysno::sigaltstack, [0, answers, 0, 0])?;
		thread.alternate = words.read_volatile();
		// A handler runs on it: the kernel finds that by the stack pointer.
		const SS_ONSTACK: usize = 1;
		thread.alternate[1] &= !SS_ONSTACK;
		inject(thread.tid, &thread.registers, Sysno::prctl, [PR_GET_TID_ADDRESS, answers, 0, 0])?;
		thread.clear_tid = words.read_volatile()[0];
		for (which, state) in thread.speculation.iter_mut().enumerate() {
			// Older kernels know fewer.
			let asked = [PR_GET_SPECULATION_CTRL, which, 0, 0];
			*state = inject(thread.tid, &thread.registers, Sysno::prctl, asked).unwrap_or(0);
		}
	}
	Ok(())
}

impl Frozen {
	pub(super) fn main(&self) -> Option<&Thread> {
		self.threads[..self.count].iter().find(|thread| thread.tid == self.pid)
	}

	pub(super) fn frames_range(&self) -> Range {
		Range::pages_of(self.frames, self.count * FRAME)
	}
}
