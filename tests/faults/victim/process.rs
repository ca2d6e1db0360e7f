//! What of the process a seal must leave as it was, besides memory.

use flashfork_tests::Result;
use std::fmt::Debug;

/// Set before, so that the engine has something to lift and to put back.
const SOFT_FILE_SIZE: u64 = 1 << 30;

/// Descriptors looked at: the victim has a handful.
const DESCRIPTORS: i32 = 64;

#[derive(Clone, Copy, PartialEq, Eq)]
pub struct State {
	descriptors: u64,
	signal_mask: u64,
	file_size: [u64; 2],
	thp_disabled: i32,
	/// Pages of address space.
	pages: usize,
}

/// Limits, settings and a signal mask that are not the default.
pub fn prepare() -> Result {
	let limit = libc::rlimit { rlim_cur: SOFT_FILE_SIZE, rlim_max: libc::RLIM_INFINITY };
	// SAFETY: plain calls with arguments of our own.
	unsafe {
		let mut set = std::mem::zeroed();
		libc::sigemptyset(&raw mut set);
		libc::sigaddset(&raw mut set, libc::SIGUSR1);
		let done = libc::setrlimit(libc::RLIMIT_FSIZE, &raw const limit) == 0
			&& libc::prctl(libc::PR_SET_THP_DISABLE, 1, 0, 0, 0) == 0
			&& libc::sigprocmask(libc::SIG_BLOCK, &raw const set, std::ptr::null_mut()) == 0;
		if done { Ok(()) } else { Err(format!("settings: {}", std::io::Error::last_os_error())) }
	}
}

/// The state now. Allocates nothing, so that looking changes nothing.
pub fn state() -> State {
	let mut descriptors = 0;
	for fd in 0..DESCRIPTORS {
		// SAFETY: F_GETFD takes no pointer.
		if unsafe { libc::fcntl(fd, libc::F_GETFD) } >= 0 {
			descriptors |= 1 << fd;
		}
	}
	let mut signal_mask = 0u64;
	let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
	// SAFETY: the kernel writes 8 bytes of signal mask and one struct rlimit to locals.
	let thp_disabled = unsafe {
		libc::syscall(libc::SYS_rt_sigprocmask, libc::SIG_BLOCK, 0usize, &raw mut signal_mask, 8usize);
		libc::getrlimit(libc::RLIMIT_FSIZE, &raw mut limit);
		libc::prctl(libc::PR_GET_THP_DISABLE, 0, 0, 0, 0)
	};
	let file_size = [limit.rlim_cur, limit.rlim_max];
	State { descriptors, signal_mask, file_size, thp_disabled, pages: address_space() }
}

/// Pages of address space, those apart on which libc's calls are led to the engine: they stay for good.
fn address_space() -> usize {
	let mut text = [0u8; 64];
	let statm = read(c"/proc/self/statm", &mut text);
	let digits = statm.iter().take_while(|b| b.is_ascii_digit());
	let pages = digits.fold(0, |value, digit| value * 10 + usize::from(digit - b'0'));
	let mut maps = [0u8; 64 << 10];
	let lines = read(c"/proc/self/maps", &mut maps).split(|b| *b == b'\n');
	let stubs = lines.filter(|line| line.ends_with(b" r-xp 00000000 00:00 0 "));
	// Pages that touch are one mapping.
	pages - stubs.map(|line| length(line) >> 12).sum::<usize>()
}

/// Bytes of the mapping that a line of maps tells of.
fn length(line: &[u8]) -> usize {
	let hexadecimal = |digits: &[u8]| {
		let digit = |b: &u8| char::from(*b).to_digit(16).unwrap_or(0) as usize;
		digits.iter().fold(0, |value, b| value << 4 | digit(b))
	};
	let mut ends = line.split(|b| *b == b'-' || *b == b' ').map(hexadecimal);
	let (start, end) = (ends.next().unwrap_or(0), ends.next().unwrap_or(0));
	end - start
}

/// Reads a file without allocating.
fn read<'a>(path: &std::ffi::CStr, buf: &'a mut [u8]) -> &'a [u8] {
	let mut len = 0;
	// SAFETY: our own buffer.
	unsafe {
		let fd = libc::open(path.as_ptr(), libc::O_RDONLY | libc::O_CLOEXEC);
		loop {
			let n = libc::read(fd, buf[len..].as_mut_ptr().cast(), buf.len() - len);
			if n <= 0 {
				break;
			}
			len += n as usize;
		}
		libc::close(fd);
	}
	&buf[..len]
}

/// Compares two states; `more` pages of address space are right, and more than that only with `leak_allowed`.
pub fn same(before: State, after: State, more: isize, leak_allowed: bool) -> Result {
	let equal = |what: &str, a: &dyn Debug, b: &dyn Debug| {
		let (a, b) = (format!("{a:x?}"), format!("{b:x?}"));
		if a == b { Ok(()) } else { Err(format!("{what}: was {a}, is {b}")) }
	};
	equal("open descriptors", &before.descriptors, &after.descriptors)?;
	equal("signal mask", &before.signal_mask, &after.signal_mask)?;
	equal("RLIMIT_FSIZE", &before.file_size, &after.file_size)?;
	equal("PR_SET_THP_DISABLE", &before.thp_disabled, &after.thp_disabled)?;
	let expected = before.pages as isize + more;
	if leak_allowed && after.pages as isize >= expected {
		return Ok(());
	}
	equal("pages of address space", &expected, &(after.pages as isize))
}
