//! The Rust API: what reports say, and how refusals read.

#[macro_use]
mod common;
use common::{Child, in_child, populated, wait};
use flashfork::{Forked, Reason, SealError, SealOptions};
use std::fs;

const SIZE: usize = 32 << 20;

fn seal() -> flashfork::SealReport {
	flashfork::seal(&SealOptions::default()).expect("seal")
}

#[test]
fn the_report_adds_up_and_names_what_was_left() {
	in_child!();
	let memory = populated(SIZE, libc::MADV_NORMAL);
	let at = memory.as_ptr() as usize;
	let report = seal();
	assert!(report.sealed_bytes >= (SIZE - (4 << 20)) as u64);
	assert!(report.huge_bytes <= report.sealed_bytes && report.write_sealed && report.generation == 1);
	assert!(report.peak_extra_bytes <= 128 << 20, "{}", report.peak_extra_bytes);
	assert_eq!(report.vmas.iter().map(|v| v.sealed_bytes).sum::<u64>(), report.sealed_bytes);
	let of = |addr: usize| report.vmas.iter().find(|v| v.range.contains(&addr)).unwrap();
	assert!(of(at + SIZE / 2).sealed_bytes > 0);
	let stack = report.vmas.iter().find(|v| v.name == "[stack]").unwrap();
	assert_eq!((stack.reason, stack.sealed_bytes), (Some(Reason::Stack), 0));
	assert!(report.vmas.iter().any(|v| v.reason == Some(Reason::File)));
}

#[test]
fn the_report_reads_well_and_what_is_sealed_is_called_so() {
	in_child!();
	let memory = populated(SIZE, libc::MADV_NORMAL);
	let at = memory.as_ptr() as usize;
	flashfork::exclude(memory[SIZE / 2..].as_ptr(), 4096).unwrap();
	let report = seal();
	let (line, all) = (report.to_string(), format!("{report:#}"));
	assert!(line.starts_with(&format!("{} MB sealed in ", report.sealed_bytes >> 20)), "{line}");
	assert!(!line.contains('\n') && all.starts_with(&line), "{all}");
	assert_eq!(all.lines().count(), 1 + report.vmas.len());
	let with_hole = report.vmas.iter().find(|vma| vma.range.contains(&at)).unwrap();
	let left = with_hole.reason.expect("a page is excluded").row().what;
	let words = format!(" {} KB sealed; of the rest, left: {left}", with_hole.sealed_bytes >> 10);
	assert!(with_hole.to_string().ends_with(&words), "{with_hole}");
	let stack = report.vmas.iter().find(|vma| vma.name == "[stack]").unwrap();
	let words = format!("{:x}-{:x} [stack]: left: {}", stack.range.start, stack.range.end, Reason::Stack.row().what);
	assert_eq!(stack.to_string(), words);
}

#[test]
fn clones_are_counted_apart_before_and_after_the_seal() {
	in_child!();
	let clone = || {
		// SAFETY: one thread.
		match unsafe { flashfork::fork() }.unwrap() {
			// SAFETY: ends the clone.
			Forked::Child => unsafe { libc::_exit(3) },
			Forked::Parent(pid) => assert_eq!(wait(pid), 3),
		}
	};
	populated(SIZE, libc::MADV_NORMAL);
	clone();
	seal();
	clone();
	clone();
	let stats = flashfork::stats();
	assert_eq!((stats.plain_forks, stats.sealed_forks), (1, 2));
	assert!(stats.plain_fork_time.as_nanos() > 0 && stats.sealed_fork_time.as_nanos() > 0);
}

#[test]
fn unseal_gives_back_what_was_sealed_once() {
	in_child!();
	let memory = populated(SIZE, libc::MADV_NORMAL);
	let sealed = seal().sealed_bytes;
	assert_eq!(flashfork::unseal().unwrap(), sealed);
	assert_eq!(flashfork::unseal().unwrap(), 0);
	assert!(memory.iter().step_by(4096).all(|b| *b == 7));
}

#[test]
fn excluding_ends_at_64_ranges() {
	in_child!();
	let memory = populated(SIZE, libc::MADV_NORMAL);
	for _ in 0..64 {
		flashfork::exclude(memory.as_ptr(), 4096).unwrap();
	}
	assert!(matches!(flashfork::exclude(memory.as_ptr(), 4096), Err(SealError::TooManyExcluded)));
}

/// Seals while something is held; the refusal must have this reason, read well, and end with what is held.
fn refused(reason: Reason, hold: impl FnOnce() -> i32, release: impl FnOnce(i32)) {
	in_child(|| {
		let memory = populated(SIZE, libc::MADV_NORMAL);
		let held = hold();
		if held < 0 {
			// A container or kernel.io_uring_disabled may forbid it; then nobody can hold one.
			let error = std::io::Error::last_os_error();
			assert!(matches!(error.raw_os_error(), Some(libc::EPERM | libc::ENOSYS)), "{error}");
			return eprintln!("skipped: this host has none to hold: {error}");
		}
		let error = flashfork::seal(&SealOptions::default()).unwrap_err();
		assert!(matches!(error, SealError::Refused(r) if r == reason), "{error}");
		let (text, cure) = (error.to_string(), reason.cure().unwrap());
		for part in ["refused: a process with ", reason.row().why, cure, "memory is unchanged and forks are correct"] {
			assert!(text.contains(part), "{text}");
		}
		assert!(!fs::read_to_string("/proc/self/maps").unwrap().contains("flashfork:"));
		release(held);
		assert!(seal().sealed_bytes > 0);
		assert!(memory.iter().step_by(4096).all(|b| *b == 7));
	});
}

fn close(fd: i32) {
	// SAFETY: the test's own descriptor.
	assert_eq!(unsafe { libc::close(fd) }, 0);
}

#[test]
fn an_io_uring_is_refused_until_it_is_closed() {
	let mut params = [0u8; 120];
	// SAFETY: struct io_uring_params is 120 bytes, all zeros are its defaults.
	let setup = || unsafe { libc::syscall(libc::SYS_io_uring_setup, 4, params.as_mut_ptr()) as i32 };
	refused(Reason::IoUring, setup, close);
}

#[test]
fn an_aio_context_is_refused_until_it_is_destroyed() {
	let context = std::cell::Cell::new(0usize);
	// SAFETY: the kernel writes one word.
	let setup = || unsafe { libc::syscall(libc::SYS_io_setup, 4, context.as_ptr()) as i32 };
	// SAFETY: the context just made.
	let destroy = |_| assert_eq!(unsafe { libc::syscall(libc::SYS_io_destroy, context.get()) }, 0);
	refused(Reason::AsyncIo, setup, destroy);
}

#[test]
fn a_userfaultfd_is_refused_until_it_is_closed() {
	// UFFD_USER_MODE_ONLY: ordinary users may have such ones too.
	// SAFETY: no memory is passed.
	let open = || unsafe { libc::syscall(libc::SYS_userfaultfd, libc::O_CLOEXEC | 1) as i32 };
	refused(Reason::Userfaultfd, open, close);
}

#[test]
fn a_thread_is_refused_until_it_has_ended() {
	let thread = std::cell::Cell::new(None);
	let start = || {
		let (send, receive) = std::sync::mpsc::channel::<()>();
		thread.set(Some((send, std::thread::spawn(move || receive.recv().is_err()))));
		0
	};
	let end = |_| {
		let (send, handle) = thread.take().unwrap();
		drop(send);
		assert!(handle.join().unwrap());
		// The kernel takes the task off its list a moment after the join.
		while fs::read_dir("/proc/self/task").unwrap().count() > 1 {
			std::thread::yield_now();
		}
	};
	refused(Reason::Threads, start, end);
}

#[test]
fn code_with_system_calls_of_its_own_is_refused_with_the_file_s_name() {
	use std::os::fd::AsRawFd;
	/// `mov $28,%eax; syscall; ret`: madvise.
	const CODE: &[u8] = &[0xb8, 28, 0, 0, 0, 0x0f, 0x05, 0xc3];
	let place = tempfile::tempdir().unwrap();
	let path = place.path().join("calls-itself");
	fs::write(&path, CODE).unwrap();
	in_child!();
	populated(SIZE, libc::MADV_NORMAL);
	let file = fs::File::open(&path).unwrap();
	let (prot, flags) = (libc::PROT_READ | libc::PROT_EXEC, libc::MAP_PRIVATE);
	// SAFETY: a fresh mapping, whose code nobody runs.
	let code = unsafe { libc::mmap(std::ptr::null_mut(), 4096, prot, flags, file.as_raw_fd(), 0) };
	assert_ne!(code, libc::MAP_FAILED);
	let refused = flashfork::seal(&SealOptions::default()).expect_err("it is refused");
	assert!(matches!(refused, SealError::Code(_)), "{refused}");
	let said = refused.to_string();
	assert!(said.contains(path.to_str().unwrap()) && said.contains("for madvise"), "{said}");
	// SAFETY: see above.
	assert_eq!(unsafe { libc::munmap(code, 4096) }, 0);
	seal();
}

/// Otherwise each restore would have to ask for all mappings.
#[test]
fn a_program_with_the_library_shows_how_its_mappings_change() {
	in_child!();
	assert_eq!(flashfork::snapshot(&Default::default()).unwrap(), 0);
	assert!(flashfork_core::snapshot::calls_tell_of_mappings());
}
