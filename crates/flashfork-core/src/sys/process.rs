//! Processes: identity, limits, children, tracing.

use super::{
	files::readlink,
	raw::{Result, call, numeric},
};
use linux_raw_sys::{general as k, prctl as p};
use syscalls::{Errno, Sysno};

/// Whether forks of this process are on demand (`PR_GET_ODF`, kernel/series/0013). `EINVAL`: not in this kernel.
pub fn odf() -> Result<bool> {
	const PR_GET_ODF: usize = 0x4f44_4602;
	numeric(Sysno::prctl, [PR_GET_ODF, 0, 0, 0, 0]).map(|on| on != 0)
}

/// Sets whether forks of this process are on demand (`PR_SET_ODF`). `EPERM`: switched off by the sysctl.
pub fn set_odf(on: bool) -> Result<()> {
	const PR_SET_ODF: usize = 0x4f44_4601;
	numeric(Sysno::prctl, [PR_SET_ODF, usize::from(on), 0, 0, 0]).map(drop)
}

/// `clone3(2)` with `CLONE_ODF`: a fork that shares page tables. 0 in the child.
///
/// # Safety
/// As `fork(2)` made without libc: the child may only do what is async-signal-safe.
pub unsafe fn clone_odf() -> Result<i32> {
	const CLONE_ODF: u64 = 0x1000_0000_0000_0000;
	const SIGCHLD: u64 = 17;
	// struct clone_args as of Linux 5.3: flags, pidfd, child_tid, parent_tid, exit_signal, stack, stack_size, tls.
	let args = [CLONE_ODF, 0, 0, 0, SIGCHLD, 0, 0, 0];
	// SAFETY: the kernel reads the struct; without CLONE_VM parent and child go on with memory of their own.
	unsafe { call(Sysno::clone3, [args.as_ptr() as usize, size_of_val(&args)]) }.map(|pid| pid as i32)
}

/// Whether the next child would be in another namespace of processes than the caller, after `unshare(CLONE_NEWPID)` or
/// `setns(2)`: the first there ends the namespace when it ends, and must be the program's own (pid_namespaces(7)).
/// False where /proc doesn't tell.
pub fn children_go_elsewhere() -> bool {
	let (mut own, mut next) = ([0; 32], [0; 32]);
	let Ok(own_len) = readlink(c"/proc/thread-self/ns/pid", &mut own) else { return false };
	// While there is no first child yet there is no link (`pidns_for_children_get`, kernel/pid_namespace.c).
	match readlink(c"/proc/thread-self/ns/pid_for_children", &mut next) {
		Ok(next_len) => own[..own_len] != next[..next_len],
		Err(e) => e == Errno::ENOENT,
	}
}

/// Whether a child with memory of its own would be in another time namespace, after `unshare(CLONE_NEWTIME)`: the
/// clocks of that are fixed as soon as somebody is in it (time_namespaces(7)), and the program may still want to set
/// them. False where /proc doesn't tell.
fn children_have_other_clocks() -> bool {
	let (mut own, mut next) = ([0; 32], [0; 32]);
	let own_len = readlink(c"/proc/thread-self/ns/time", &mut own);
	let next_len = readlink(c"/proc/thread-self/ns/time_for_children", &mut next);
	matches!((own_len, next_len), (Ok(own_len), Ok(next_len)) if own[..own_len] != next[..next_len])
}

/// A fork without libc whose child sends no signal when it ends (`clone(2)`). 0 in the child. `EAGAIN` where it would
/// be the first of another namespace.
///
/// # Safety
/// As `fork(2)` made without libc: the child may only do what is async-signal-safe.
pub unsafe fn fork_in_silence() -> Result<i32> {
	if children_go_elsewhere() || children_have_other_clocks() {
		return Err(Errno::EAGAIN);
	}
	// SAFETY: without CLONE_VM parent and child go on with memory of their own.
	unsafe { call(Sysno::clone, [0, 0, 0, 0, 0]) }.map(|pid| pid as i32)
}

/// Whether this thread is under a seccomp filter, or under more: not 0.
pub fn seccomp_mode() -> Result<usize> {
	numeric(Sysno::prctl, [p::PR_GET_SECCOMP as usize, 0, 0, 0, 0])
}

/// Soft and hard limit of a resource (`prlimit64(2)`).
pub fn getrlimit(resource: u32) -> Result<[u64; 2]> {
	let mut limits = [0u64; 2];
	// SAFETY: the kernel writes one struct rlimit64 to a local.
	unsafe { call(Sysno::prlimit64, [0, resource as usize, 0, limits.as_mut_ptr() as usize]) }.map(|_| limits)
}

/// Sets soft and hard limit of a resource.
pub fn setrlimit(resource: u32, limits: [u64; 2]) -> Result<()> {
	// SAFETY: the kernel reads one struct rlimit64 from a local.
	unsafe { call(Sysno::prlimit64, [0, resource as usize, limits.as_ptr() as usize, 0]) }.map(drop)
}

pub const RLIMIT_FSIZE: u32 = k::RLIMIT_FSIZE;

/// Whether the calling thread runs before all ordinary ones (`sched(7)`, `SCHED_FIFO` or `SCHED_RR`) and the kernel
/// ends its process when it has done so for longer than `RLIMIT_RTTIME` without a sleep.
pub fn real_time_is_limited() -> bool {
	// SAFETY: takes numbers.
	let policy =
		unsafe { call(Sysno::sched_getscheduler, [0]) }.map_or(0, |policy| policy as u32 & !k::SCHED_RESET_ON_FORK);
	matches!(policy, k::SCHED_FIFO | k::SCHED_RR)
		&& getrlimit(k::RLIMIT_RTTIME).is_ok_and(|limits| limits != [k::RLIM64_INFINITY as u64; 2])
}

/// Has the calling thread, one of the engine's, run as ordinary ones do where its time before them is limited.
pub fn leave_limited_real_time() -> Result<()> {
	if !real_time_is_limited() {
		return Ok(());
	}
	let priority = 0u32;
	// SAFETY: the kernel reads one struct sched_param, a number.
	unsafe { call(Sysno::sched_setscheduler, [0, k::SCHED_NORMAL as usize, &raw const priority as usize]) }.map(drop)
}

/// Page faults of this process that needed no disk (`getrusage(2)`, `ru_minflt`).
pub fn minor_faults() -> u64 {
	usage()[8]
}

/// Page faults of this process, with those that needed a disk (`ru_majflt`).
pub fn all_faults() -> u64 {
	let usage = usage();
	usage[8] + usage[9]
}

/// The most bytes of memory that this process has ever had resident (`ru_maxrss`).
pub fn most_resident() -> u64 {
	usage()[4] * 1024
}

/// `getrusage(2)`; zeros where it isn't allowed.
fn usage() -> [u64; 18] {
	let mut usage = [0u64; 18];
	// SAFETY: struct rusage is 18 words on this architecture.
	match unsafe { call(Sysno::getrusage, [0, usage.as_mut_ptr() as usize]) } {
		Ok(_) => usage,
		Err(_) => [0; 18],
	}
}

/// The process id.
pub fn getpid() -> i32 {
	// SAFETY: no arguments, can't fail.
	unsafe { call(Sysno::getpid, []) }.map_or(0, |p| p as i32)
}

/// The process id of the parent.
pub fn getppid() -> i32 {
	// SAFETY: no arguments, can't fail.
	unsafe { call(Sysno::getppid, []) }.map_or(0, |p| p as i32)
}

/// `unshare(CLONE_VM)`: changes nothing for a process whose memory nobody else uses, and is `EINVAL` for any other
/// (check_unshare_flags, current_is_single_threaded).
pub fn unshare_memory() -> Result<()> {
	const WNOHANG: u32 = 1;
	let ask = || numeric(Sysno::unshare, [k::CLONE_VM as usize]).map(drop);
	// The number of a thread that has ended is nobody's while the kernel still counts it, under a lock (release_task).
	// A wait takes that, too (do_wait); nobody is a child of itself, so it tells and changes nothing.
	match ask() {
		Err(Errno::EINVAL) => {
			let _ = wait(getpid(), WNOHANG);
			ask()
		}
		asked => asked,
	}
}

/// Whether two processes share their address space. Where the kernel doesn't say: no.
pub fn same_memory(one: i32, other: i32) -> bool {
	compare_memory(one, other) == Ok(true)
}

/// The same (`kcmp(2)`). `ESRCH`: there is no such process, or it can't be seen from here.
pub fn compare_memory(one: i32, other: i32) -> Result<bool> {
	const KCMP_VM: usize = 1;
	compare(one, other, KCMP_VM)
}

/// Whether two processes or threads use the same table of descriptors. Where the kernel doesn't say: no.
pub fn same_descriptors(one: i32, other: i32) -> bool {
	const KCMP_FILES: usize = 2;
	compare(one, other, KCMP_FILES) == Ok(true)
}

fn compare(one: i32, other: i32, what: usize) -> Result<bool> {
	numeric(Sysno::kcmp, [one as usize, other as usize, what, 0, 0]).map(|order| order == 0)
}

/// Ends a process at once: for the one state in which going on would mean running with memory missing.
pub fn die(pid: i32) -> ! {
	const SIGKILL: usize = 9;
	loop {
		let _ = numeric(Sysno::kill, [pid as usize, SIGKILL]);
	}
}

/// `ptrace(2)`.
///
/// # Safety
/// `data` is what the request takes or writes to.
pub unsafe fn ptrace(request: usize, tid: i32, addr: usize, data: usize) -> Result<()> {
	// SAFETY: see above.
	unsafe { call(Sysno::ptrace, [request, tid as usize, addr, data]) }.map(drop)
}

/// `wait4(2)`: the id and the status of a child or tracee that has something to tell; id 0 when `WNOHANG` found none.
pub fn wait(id: i32, options: u32) -> Result<(i32, i32)> {
	let mut status = 0i32;
	loop {
		// SAFETY: the kernel writes one int to a local.
		let result =
			unsafe { call(Sysno::wait4, [id as isize as usize, &raw mut status as usize, options as usize, 0]) };
		match result {
			Err(Errno::EINTR) => {}
			Ok(id) => return Ok((id as i32, status)),
			Err(e) => return Err(e),
		}
	}
}

/// Has the kernel send SIGKILL to this process when the thread that made it ends (`PR_SET_PDEATHSIG`).
pub fn die_with_parent() -> Result<()> {
	numeric(Sysno::prctl, [p::PR_SET_PDEATHSIG as usize, 9, 0, 0, 0]).map(drop)
}

/// Has this process be in its own group (`setpgid(2)`).
pub fn leave_group() -> Result<()> {
	numeric(Sysno::setpgid, [0, 0]).map(drop)
}

/// Allows one process to trace this one where Yama restricts that (`PR_SET_PTRACER`); 0: nobody.
pub fn set_ptracer(pid: i32) -> Result<()> {
	const PR_SET_PTRACER: usize = 0x5961_6d61;
	numeric(Sysno::prctl, [PR_SET_PTRACER, pid as usize, 0, 0, 0]).map(drop)
}

/// A descriptor for a process (`pidfd_open(2)`, Linux 5.3), by one of its threads where the kernel has that
/// (`PIDFD_THREAD`, 6.9): through a leader that has ended no descriptor can be had.
pub fn pidfd_open(pid: i32, thread: i32) -> Result<i32> {
	let open = |id: i32, flags: u32| numeric(Sysno::pidfd_open, [id as usize, flags as usize]);
	open(thread, k::O_EXCL).or_else(|_| open(pid, 0)).map(|fd| fd as i32)
}

/// Ends the calling process.
pub fn exit(code: i32) -> ! {
	loop {
		let _ = numeric(Sysno::exit_group, [code as usize]);
	}
}

/// Ends the calling thread, and the process with its last one (`_exit(2)`, the system call itself).
pub fn exit_thread() -> ! {
	loop {
		let _ = numeric(Sysno::exit, [0]);
	}
}

pub const RLIMIT_NOFILE: u32 = k::RLIMIT_NOFILE;

/// Whether memory that may be read may be executed, whatever is asked for (`personality(2)`, `READ_IMPLIES_EXEC`).
pub fn reading_implies_executing() -> bool {
	const ONLY_ASK: usize = 0xffff_ffff;
	const READ_IMPLIES_EXEC: usize = 0x0040_0000;
	numeric(Sysno::personality, [ONLY_ASK]).is_ok_and(|now| now & READ_IMPLIES_EXEC != 0)
}
