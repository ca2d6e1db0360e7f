//! What a program may do around a snapshot that could take a restore by surprise: handlers, other processes in its
//! memory, stacks that grow, limits, filters, userfaults, huge pages.

#[macro_use]
mod common;
use common::{
	back, by_each_way, in_children, intact,
	memory::{ANONYMOUS, BOTH, PAGE, advise, advised, are, file, map_over, move_break, page, read, set, unmap, write},
	patterned, wait,
};
use flashfork_core::{
	Range,
	never_seal::Reason,
	snapshot::{Error, Options, Step, restore, snapshot},
};
use libc::c_int;
use std::{
	ptr::null_mut,
	sync::atomic::{AtomicU64, Ordering::SeqCst},
};

const SEALED: Options = Options { seal: true, keep: &[], descriptors: &[], close_new: false };
const HUGE: usize = 2 << 20;

/// The turn of whoever has no other place for it; it goes back, too.
static TURN: AtomicU64 = AtomicU64::new(0);

fn map(len: usize, flags: c_int) -> *mut u8 {
	common::memory::map(len, BOTH, ANONYMOUS | flags, -1)
}

/// An address with nothing mapped around it, 32 MB in both directions.
fn lonely() -> *mut u8 {
	let at = map(64 << 20, libc::MAP_NORESERVE);
	unmap(at, 64 << 20);
	at.wrapping_add(32 << 20)
}

/// Has SIGUSR1 handled, on a stack of its own of this length if that is not 0.
fn handle(handler: extern "C" fn(c_int), stack: usize) -> *mut u8 {
	// SAFETY: plain calls; stack and handler stay.
	unsafe {
		let mut action: libc::sigaction = std::mem::zeroed();
		action.sa_sigaction = handler as *const () as usize;
		let at = map(stack.max(4096), 0);
		if stack > 0 {
			action.sa_flags = libc::SA_ONSTACK;
			let own = libc::stack_t { ss_sp: at.cast(), ss_flags: 0, ss_size: stack };
			assert_eq!(libc::sigaltstack(&raw const own, null_mut()), 0);
		}
		assert_eq!(libc::sigaction(libc::SIGUSR1, &raw const action, null_mut()), 0);
		at
	}
}

#[test]
fn a_handler_may_go_back() {
	extern "C" fn go_back(_: c_int) {
		back(TURN.load(SeqCst) + 1);
	}
	for stack in [0, 64 << 10] {
		in_children(|| {
			let big = patterned(8 << 20, 1);
			handle(go_back, stack);
			let turn = snapshot(&SEALED).unwrap();
			assert!(intact(big, 1) && TURN.load(SeqCst) == 0, "{turn}");
			if turn < 5 {
				big.fill(turn);
				TURN.store(turn, SeqCst);
				// SAFETY: the handler doesn't return.
				unsafe { libc::raise(libc::SIGUSR1) };
				unreachable!("the signal isn't blocked: the mask went back");
			}
		});
	}
}

#[test]
fn a_snapshot_of_a_handler_returns_from_it_again() {
	extern "C" fn take(_: c_int) {
		TURN.store(snapshot(&SEALED).unwrap(), SeqCst);
	}
	for stack in [0, 256 << 10] {
		in_children(|| {
			let big = patterned(8 << 20, 1);
			let at = handle(take, stack);
			// SAFETY: the handler returns.
			unsafe { libc::raise(libc::SIGUSR1) };
			let turn = TURN.load(SeqCst);
			assert!(intact(big, 1), "{turn}");
			if turn < 5 {
				big.fill(turn);
				// The stack of a handler that has returned.
				set(at, 3, stack);
				back(turn + 1);
			}
		});
	}
}

#[test]
fn a_snapshot_that_is_refused_leaves_the_one_there_is() {
	in_child!(by_each_way());
	let big = patterned(8 << 20, 1);
	// A page behind the end of its file can't be copied, which is found out late.
	let page = common::memory::map(PAGE, libc::PROT_READ, libc::MAP_PRIVATE, file(c"empty", 0)) as usize;
	let turn = snapshot(&SEALED).unwrap();
	assert!(intact(big, 1), "{turn}");
	if turn < 2 {
		assert_eq!(snapshot(&Options { descriptors: &[-1], ..SEALED }), Err(Error::Descriptor(-1)));
		let keep = [Range::new(page + 8, page + 16)];
		let refused = snapshot(&Options { keep: &keep, close_new: true, ..SEALED });
		assert_eq!(refused, Err(Error::Refused(Reason::GuardRegion)));
		big.fill(1);
		back(turn + 1);
	}
}

/// A child of vfork(2), and one that runs on beside its parent.
#[test]
fn another_process_in_the_same_memory_is_no_place_for_either() {
	extern "C" fn child(stop: *mut libc::c_void) -> c_int {
		let right = restore(1) == Error::Clone && snapshot(&SEALED) == Err(Error::Refused(Reason::Threads));
		// SAFETY: the parent's number.
		let stop = unsafe { &*stop.cast::<AtomicU64>() };
		stop.fetch_add(1, SeqCst);
		while stop.load(SeqCst) == 1 {
			std::hint::spin_loop();
		}
		if right { 0 } else { 77 }
	}
	for flags in [libc::CLONE_VM | libc::CLONE_VFORK, libc::CLONE_VM] {
		in_children(|| {
			static STOP: AtomicU64 = AtomicU64::new(0);
			let big = patterned(8 << 20, 1);
			if snapshot(&SEALED).unwrap() == 1 {
				assert!(intact(big, 1));
				return;
			}
			big.fill(2);
			let beside = flags & libc::CLONE_VFORK == 0;
			STOP.store(u64::from(!beside), SeqCst);
			// SAFETY: the child runs on its own stack and uses nothing that its parent uses meanwhile.
			let pid = unsafe {
				let stack = map(1 << 20, 0).add(1 << 20);
				libc::clone(child, stack.cast(), flags | libc::SIGCHLD, (&raw const STOP).cast_mut().cast())
			};
			assert!(pid > 0);
			if beside {
				while STOP.load(SeqCst) == 0 {
					std::hint::spin_loop();
				}
				assert_eq!(restore(1), Error::Refused(Reason::Threads));
				assert_eq!(snapshot(&SEALED), Err(Error::Refused(Reason::Threads)));
				STOP.store(2, SeqCst);
			}
			assert_eq!(wait(pid), 0);
			back(1);
		});
	}
}

#[test]
fn a_mapping_that_has_grown_down_may_do_so_again() {
	in_child!(by_each_way());
	const LEN: usize = 64 << 10;
	let at = lonely();
	map_over(at, LEN, BOTH, ANONYMOUS | libc::MAP_GROWSDOWN, -1);
	set(at, 5, LEN);
	let turn = snapshot(&SEALED).unwrap();
	assert!(are(at, 5, LEN), "{turn}");
	if turn == 3 {
		// What grows down can't be made again.
		unmap(at, PAGE);
		assert_eq!(restore(4), Error::Changed(Range::new(at as usize, at as usize + PAGE)));
		return;
	}
	for number in 1..20 {
		let below = at.wrapping_sub(number * PAGE);
		assert_eq!(read(below), 0, "{turn}");
		write(below, 9);
	}
	set(at, 6, LEN);
	back(turn + 1);
}

/// Recursion with a page in each frame; `end` is called in the last, and all of them are what they were afterwards.
fn deep(frames: usize, end: fn() -> u64) -> u64 {
	let page = std::hint::black_box([frames as u64; 512]);
	let value = if frames == 0 { end() } else { deep(frames - 1, end) };
	assert!(page.iter().all(|word| *word == frames as u64));
	value
}

#[test]
fn the_stack_may_be_deeper_or_not_so_deep() {
	in_children(|| {
		let turn = snapshot(&SEALED).unwrap();
		deep(100, || 0);
		if turn < 3 {
			back(turn + 1);
		}
	});
	in_child!(by_each_way());
	let turn = deep(100, || snapshot(&SEALED).unwrap());
	if turn < 3 {
		back(turn + 1);
	}
}

#[test]
fn a_restore_that_limits_leave_no_room_for_is_refused() {
	for (resource, hard) in [(libc::RLIMIT_AS, true), (libc::RLIMIT_DATA, true), (libc::RLIMIT_AS, false)] {
		in_children(|| {
			let (big, small) = (patterned(8 << 20, 1), patterned(64 << 10, 2));
			let heap = move_break(6 << 20);
			set(heap, 7, 6 << 20);
			let turn = snapshot(&SEALED).unwrap();
			assert!(intact(big, 1) && intact(small, 2), "{turn}");
			assert!(are(heap, 7, 6 << 20), "{turn}");
			let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
			// SAFETY: a local.
			unsafe { libc::getrlimit(resource, &raw mut limit) };
			if turn == 1 {
				assert!(!hard && limit.rlim_cur == 1 << 20, "a soft limit is lifted for the time being");
				return;
			}
			unmap(big.as_ptr(), 8 << 20);
			unmap(small.as_ptr(), 64 << 10);
			move_break(-(5 << 20));
			limit.rlim_cur = 1 << 20;
			limit.rlim_max = if hard { 1 << 20 } else { limit.rlim_max };
			// SAFETY: as above.
			assert_eq!(unsafe { libc::setrlimit(resource, &raw const limit) }, 0);
			let refused = restore(1);
			assert!(hard && matches!(refused, Error::System(Step::Limits, _)), "{refused:?}");
		});
	}
}

#[test]
fn what_lies_in_the_grown_heap_goes() {
	in_child!(by_each_way());
	let end = move_break(0);
	let turn = snapshot(&SEALED).unwrap();
	assert_eq!(move_break(0), end, "{turn}");
	if turn == 2 {
		return;
	}
	move_break(6 << 20);
	let above = ((end as usize + HUGE) & !(PAGE - 1)) as *mut u8;
	match turn {
		0 => map_over(above, 2 * PAGE, libc::PROT_READ, libc::MAP_PRIVATE, file(c"empty", 0)),
		_ => map_over(above, 2 * PAGE, libc::PROT_NONE, ANONYMOUS, -1),
	}
	back(turn + 1);
}

#[test]
fn an_exec_that_failed_leaves_no_trace() {
	in_child!(by_each_way());
	let big = patterned(8 << 20, 1);
	let turn = snapshot(&SEALED).unwrap();
	assert!(intact(big, 1), "{turn}");
	if turn < 3 {
		big.fill(turn);
		let none = [std::ptr::null()];
		for path in [c"/nowhere", c"/etc/passwd"] {
			// SAFETY: plain calls that fail.
			assert_eq!(unsafe { libc::execv(path.as_ptr(), none.as_ptr()) }, -1);
		}
		back(turn + 1);
	}
}

/// Puts the process under a filter that answers some calls so, and allows all others.
fn filter(calls: &[libc::c_long], answer: u32) {
	let instruction = |code, jf, k| libc::sock_filter { code, jt: 0, jf, k };
	let mut program = vec![instruction(0x20, 0, 0)];
	for call in calls {
		program.extend([instruction(0x15, 1, *call as u32), instruction(6, 0, answer)]);
	}
	program.push(instruction(6, 0, libc::SECCOMP_RET_ALLOW));
	let all = libc::sock_fprog { len: program.len() as u16, filter: program.as_mut_ptr() };
	// SAFETY: plain calls; the program is read during the call.
	unsafe {
		assert_eq!(libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), 0);
		assert_eq!(libc::prctl(libc::PR_SET_SECCOMP, libc::SECCOMP_MODE_FILTER, &raw const all), 0);
	}
}

#[test]
fn a_filter_that_came_since_is_refused_and_one_that_was_there_is_not() {
	let calls = [libc::SYS_munmap, libc::SYS_brk, libc::SYS_mprotect];
	for answer in [libc::SECCOMP_RET_KILL_PROCESS, libc::SECCOMP_RET_ERRNO | libc::EPERM as u32] {
		for len in [8 << 20, 64 << 10] {
			in_children(|| {
				let memory = patterned(len, 1);
				filter(&[libc::SYS_acct], answer);
				let turn = snapshot(&SEALED).unwrap();
				assert!(intact(memory, 1), "{turn}");
				memory.fill(2);
				if turn == 0 {
					back(1);
				}
				map(4096, 0);
				filter(&calls, answer);
				assert_eq!(restore(2), Error::Refused(Reason::SeccompFilter));
			});
		}
	}
}

#[test]
fn the_strict_mode_of_seccomp_that_came_since_is_refused() {
	in_child!(by_each_way());
	patterned(8 << 20, 1);
	assert_eq!(snapshot(&SEALED), Ok(0));
	// SAFETY: plain calls: from the first on there are no others than the last, and writes.
	unsafe {
		assert_eq!(libc::prctl(libc::PR_SET_SECCOMP, libc::SECCOMP_MODE_STRICT), 0);
		let refused = restore(1) == Error::Refused(Reason::SeccompFilter);
		libc::syscall(libc::SYS_exit, i32::from(!refused));
	}
}

/// A page that is missing would stop the restore, for whoever answers is stopped by it.
#[test]
fn a_userfaultfd_that_came_since_is_refused() {
	const API: u64 = 0xc018_aa3f;
	const REGISTER: u64 = 0xc020_aa00;
	in_child!(by_each_way());
	let memory = patterned(64 << 10, 1);
	assert_eq!(snapshot(&SEALED), Ok(0));
	let (at, len) = (memory.as_mut_ptr(), 64 << 10);
	// SAFETY: memory of the test's own, which is not used any more.
	unsafe {
		let fd = libc::syscall(libc::SYS_userfaultfd, 1) as c_int;
		if fd < 0 {
			return eprintln!("no userfaultfd here: {}", std::io::Error::last_os_error());
		}
		let mut api = [0xaa_u64, 0, 0];
		assert_eq!(libc::ioctl(fd, API, &raw mut api), 0);
		let mut register = [at as u64, len as u64, 1, 0];
		assert_eq!(libc::ioctl(fd, REGISTER, &raw mut register), 0);
	}
	advise(at, len, libc::MADV_DONTNEED);
	assert_eq!(restore(1), Error::Refused(Reason::Userfaultfd));
}

/// Where the host has huge pages to give (vm.nr_hugepages).
#[test]
fn huge_pages_over_a_part_of_what_was_there_go_as_a_whole() {
	const LEN: usize = 64 << 10;
	in_child!(by_each_way());
	let block = (lonely() as usize).next_multiple_of(HUGE) as *mut u8;
	let at = block.wrapping_add(HUGE / 2);
	map_over(at, LEN, BOTH, ANONYMOUS, -1);
	set(at, 3, LEN);
	let turn = snapshot(&SEALED).unwrap();
	assert!(are(at, 3, LEN), "{turn}");
	if turn == 2 {
		return;
	}
	let flags = libc::MAP_FIXED | ANONYMOUS | libc::MAP_HUGETLB;
	// SAFETY: memory of the test's own, and what is around it is, too.
	if unsafe { libc::mmap(block.cast(), HUGE, BOTH, flags, -1, 0) } == libc::MAP_FAILED {
		return eprintln!("no huge pages here: {}", std::io::Error::last_os_error());
	}
	write(block, 1);
	back(turn + 1);
}

#[test]
fn ranges_to_keep_may_overlap_and_lie_where_nothing_is() {
	in_child!(by_each_way());
	let memory = patterned(64 << 10, 1);
	let at = memory.as_ptr() as usize;
	let mut keep: Vec<_> = (0..60).map(|i| Range::new(at + i * 104, at + i * 104 + 152)).collect();
	keep.extend([(0, 4096), (0, 0), (1 << 46, (1 << 46) + 5), (at, at)].map(|(from, to)| Range::new(from, to)));
	let kept = (59 * 104 + 152) / 8;
	let turn = snapshot(&Options { keep: &keep, ..SEALED }).unwrap();
	if turn == 0 {
		memory.fill(5);
		back(1);
	}
	assert!(memory[..kept].iter().all(|word| *word == 5));
	assert!(memory.iter().enumerate().skip(kept).all(|(i, word)| *word == common::pattern(i, 1)));
	keep.push(keep[0]);
	assert_eq!(snapshot(&Options { keep: &keep, ..SEALED }), Err(Error::TooMany));
}

/// Where the processor has protection keys.
#[test]
fn a_protection_key_that_came_since_is_refused() {
	const NO_ACCESS: libc::c_ulong = 1;
	in_child!(by_each_way());
	let memory = patterned(64 << 10, 1);
	let turn = snapshot(&SEALED).unwrap();
	assert!(intact(memory, 1), "{turn}");
	if turn == 1 {
		return;
	}
	// SAFETY: memory of the test's own, which can be read again at the end.
	unsafe {
		let key = libc::syscall(libc::SYS_pkey_alloc, 0, NO_ACCESS);
		if key < 0 {
			return eprintln!("no protection keys here: {}", std::io::Error::last_os_error());
		}
		let protect = |key: libc::c_long| libc::syscall(libc::SYS_pkey_mprotect, memory.as_ptr(), 64 << 10, BOTH, key);
		assert_eq!(protect(key), 0);
		assert_eq!(restore(1), Error::Refused(Reason::ProtectionKey));
		assert_eq!(protect(0), 0);
		assert_eq!(libc::syscall(libc::SYS_pkey_free, key), 0);
	}
	back(1);
}

/// The kernel drops what is under a guard to be, and looks again; what it drops of a file's mapping while writes are
/// noted stays marked, so that it would look for ever.
#[test]
fn guards_in_a_file_s_mapping_come_to_an_end_while_writes_are_noted() {
	const GUARD_INSTALL: c_int = 102;
	const PAGES: usize = 64;
	in_child!(by_each_way());
	// The kernel ends who tries for ever; other signals wait in that call.
	let limit = libc::rlimit { rlim_cur: 30, rlim_max: 30 };
	// SAFETY: a local.
	assert_eq!(unsafe { libc::setrlimit(libc::RLIMIT_CPU, &raw const limit) }, 0);
	let file = file(c"guarded", PAGES * PAGE);
	let at = common::memory::map(PAGES * PAGE, BOTH, libc::MAP_PRIVATE, file);
	write(at, 1);
	let turn = snapshot(&SEALED).unwrap();
	(0..PAGES).for_each(|i| assert_eq!(read(page(at, i)), u8::from(i == 0), "turn {turn}, page {i}"));
	if turn < 8 {
		write(page(at, turn as usize), 200);
		if turn > 3 {
			// Before Linux 6.15 files have no guards.
			advised(page(at, 2), 32 * PAGE, GUARD_INSTALL);
		}
		back(turn + 1);
	}
}

/// A system call by an instruction of the program's own, which is harmless to a seal, and seen by nobody.
macro_rules! past_all {
	($number:literal, $at:expr, $len:expr, $last:expr) => {{
		let result: isize;
		// SAFETY: memory of the test's own.
		unsafe {
			std::arch::asm!(concat!("mov eax, ", $number), "syscall", out("rax") result, in("rdi") $at,
				in("rsi") $len, in("rdx") $last, out("rcx") _, out("r11") _);
		}
		assert_eq!(result, 0);
	}};
}

fn protect_past_all(at: *mut u8, len: usize, prot: c_int) {
	past_all!(10, at, len, prot);
}

fn lock_past_all(at: *mut u8, len: usize) {
	past_all!(149, at, len, 0);
}

/// A number, and what to keep for it to survive restores.
fn kept_number() -> (&'static AtomicU64, [Range; 1]) {
	let at = map(PAGE, 0);
	// SAFETY: zeros are an atomic, and the mapping stays.
	(unsafe { &*at.cast() }, [Range::new(at as usize, at as usize + 8)])
}

#[test]
fn what_the_program_locks_by_an_instruction_of_its_own_is_unlocked() {
	in_child!(by_each_way());
	// Its own mapping: locking part of one would show.
	let (memory, (turn, keep)) = (page(map(3 * PAGE, 0), 1), kept_number());
	unmap(memory.wrapping_sub(PAGE), PAGE);
	unmap(page(memory, 1), PAGE);
	let value = snapshot(&Options { keep: &keep, ..SEALED }).unwrap();
	let status = std::fs::read_to_string("/proc/self/status").unwrap();
	let locked = status.lines().find_map(|line| line.strip_prefix("VmLck:")).unwrap();
	assert_eq!(locked.trim(), "0 kB", "turn {value}");
	write(memory, 1);
	if value == 8 {
		return;
	}
	turn.store(value + 1, SeqCst);
	if value == 6 {
		lock_past_all(memory, PAGE);
	}
	back(value + 1);
}

/// Rounds that make no call that is seen.
#[test]
fn what_the_program_protects_by_an_instruction_of_its_own_goes_back() {
	in_child!(by_each_way());
	let (memory, (turn, keep)) = (map(PAGE, 0), kept_number());
	let value = snapshot(&Options { keep: &keep, ..SEALED }).unwrap();
	assert_eq!(turn.load(SeqCst), value);
	write(memory, 1);
	if value == 8 {
		return;
	}
	turn.store(value + 1, SeqCst);
	if value == 6 {
		protect_past_all(memory, PAGE, libc::PROT_READ);
	}
	back(value + 1);
}
