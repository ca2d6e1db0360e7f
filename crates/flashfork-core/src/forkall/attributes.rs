//! What a thread has that only it can ask, and clones have from the maker: it must have the same. And a sandbox, in
//! which the maker could not do its work.

use super::{
	frozen::{ANSWERS, Frozen},
	inject::inject,
	raw::{call, numeric},
	unfit::{Fit, Unfit, What},
};
use crate::{
	proc::text::{ProcPath, read_file},
	sys::{self, Errno},
};
use syscalls::Sysno;

/// What is asked, and how. The kernel answers by what it returns, or where the question says so.
const QUESTIONS: [(&[u8], What, Sysno, [usize; 3]); 12] = [
	(b"secure bits", What::Credentials, Sysno::prctl, [27, 0, 0]),
	(b"session keyring", What::Credentials, Sysno::keyctl, [0, -3isize as usize, 0]),
	(b"process keyring", What::Credentials, Sysno::keyctl, [0, -2isize as usize, 0]),
	(b"thread keyring", What::Credentials, Sysno::keyctl, [0, -1isize as usize, 0]),
	(b"timer slack", What::Attribute, Sysno::prctl, [30, 0, 0]),
	(b"PR_MCE_KILL", What::Attribute, Sysno::prctl, [34, 0, 0]),
	(b"PR_SET_CHILD_SUBREAPER", What::Attribute, Sysno::prctl, [37, ANSWER, 0]),
	(b"PR_SET_TSC", What::Attribute, Sysno::prctl, [25, ANSWER, 0]),
	(b"ARCH_SET_CPUID", What::Attribute, Sysno::arch_prctl, [0x1011, 0, 0]),
	(b"personality", What::Attribute, Sysno::personality, [0xffff_ffff, 0, 0]),
	(b"set_mempolicy", What::Attribute, Sysno::get_mempolicy, [ANSWER, MASK, 64 * (ANSWERS - 1)]),
	(b"ioprio", What::Attribute, Sysno::ioprio_get, [1, 0, 0]),
];

/// In place of the address of an `int` for the answer, and of all words behind that.
const ANSWER: usize = usize::MAX;
const MASK: usize = usize::MAX - 1;

/// With all threads stopped, whose registers are known.
pub fn check(frozen: &mut Frozen) -> Fit {
	let Frozen { threads, count, answers, small, list, pid, .. } = frozen;
	let cgroups = read_file(c"/proc/thread-self/cgroup", list)?;
	let answer = answers.as_mut_ptr();
	let nice = 20 - numeric(Sysno::getpriority, [0, 0])? as i32;
	for thread in &threads[..*count] {
		for (name, what, number, arguments) in QUESTIONS {
			// Some kernels make it of the nice value.
			if number == Sysno::ioprio_get && thread.nice != nice {
				continue;
			}
			let [first, second, third] = arguments.map(|argument| match argument {
				ANSWER => answer as usize,
				MASK => answer.wrapping_add(1) as usize,
				number => number,
			});
			// SAFETY: the questions change nothing; the kernel writes to memory of the maker's at most.
			let (own, its) = unsafe {
				let answers = answer.cast::<[u64; ANSWERS]>();
				answers.write_volatile([0; ANSWERS]);
				let own = (call(number, [first, second, third, 0]), answers.read_volatile());
				answers.write_volatile([0; ANSWERS]);
				let its = inject(thread.tid, &thread.registers, number, [first, second, third, 0]);
				(own, (its, answers.read_volatile()))
			};
			if own != its {
				return Err(Unfit::named(what, thread.tid, name));
			}
		}
		let place = ProcPath::of(*pid).push(b"/task/").number(thread.tid).push(b"/cgroup");
		if read_file(place.as_c(), small)? != cgroups {
			return Err(Unfit::named(What::Attribute, thread.tid, b"cgroup"));
		}
		let asked = [thread.tid as usize, INIT as usize, KCMP_VM, 0];
		if inject(thread.tid, &thread.registers, Sysno::kcmp, asked).is_err() {
			return Err(Unfit::new(What::Landlock, thread.tid));
		}
	}
	Ok(())
}

/// Whether the maker, and so the main thread, may look at anything at all, and is in no sandbox. Landlock keeps who is
/// in a domain from looking at who is not, whatever else it forbids. The template's init is in none, and nothing else
/// keeps the program from looking at it: their keeper has seen to that.
pub fn before() -> Fit {
	let me = sys::getpid();
	sys::compare_memory(me, me).map_err(|e| Unfit::forbidden(b"kcmp", e))?;
	sys::read_own((&raw const me) as usize, &mut [0]).map_err(|e| Unfit::forbidden(b"process_vm_writev", e))?;
	// SAFETY: a number that no descriptor has, so nothing happens; a filter answers otherwise.
	let setns = unsafe { call(Sysno::setns, [usize::MAX, 0]) };
	if let Err(e) = setns
		&& e != Errno::EBADF
	{
		return Err(Unfit::forbidden(b"setns", e));
	}
	sys::compare_memory(me, INIT).map(drop).map_err(|_| Unfit::new(What::Landlock, me))
}

/// The first process of the template's namespace.
const INIT: i32 = 1;
const KCMP_VM: usize = 1;
