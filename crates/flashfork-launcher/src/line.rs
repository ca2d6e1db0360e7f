//! What this process was started with, and the command proper, which is started with the same.

use crate::system::{self, Fd, call};
use core::{
	ffi::{CStr, c_char},
	mem::MaybeUninit,
};
use linux_raw_sys::general as sys;
use syscalls::{Errno, Sysno};

/// The command proper, and where `make install` puts it.
const COMMAND: &[u8] = b"flashfork-cli\0";
const INSTALLED: &[u8] = b"../lib/flashfork/flashfork-cli\0";

/// In the auxiliary vector, the name by which this program was executed (`AT_EXECFN`).
const EXECUTED_AS: usize = 31;

/// Longest path looked at; longer ones are nothing that is found.
const PATH: usize = 4096;

/// Arguments and environment, where the kernel has put them.
pub struct Line {
	arguments: &'static [*const c_char],
	variables: &'static [*const c_char],
	/// The auxiliary vector.
	behind: *const [usize; 2],
}

impl Line {
	/// # Safety
	/// The stack is that of a process that begins (`execve(2)`): a count, so many arguments, a zero, the environment, a
	/// zero, the auxiliary vector.
	pub unsafe fn new(stack: *const usize) -> Line {
		// SAFETY: as the caller says.
		unsafe {
			let count = *stack;
			let arguments = stack.add(1).cast::<*const c_char>();
			let variables = arguments.add(count + 1);
			let mut len = 0;
			while !(*variables.add(len)).is_null() {
				len += 1;
			}
			Line {
				arguments: core::slice::from_raw_parts(arguments, count),
				variables: core::slice::from_raw_parts(variables, len),
				behind: variables.add(len + 1).cast(),
			}
		}
	}

	pub fn argument(&self, at: usize) -> Option<&'static [u8]> {
		// SAFETY: a string that the kernel has put there.
		self.arguments.get(at).map(|text| unsafe { CStr::from_ptr(*text) }.to_bytes())
	}

	/// The value of the variable whose name and sign of equality this is.
	pub fn variable(&self, begin: &[u8]) -> Option<&'static [u8]> {
		// SAFETY: strings that the kernel has put there; one is not looked at behind the byte in which it differs.
		let begins = |text: &*const c_char| (0..begin.len()).all(|i| unsafe { *text.cast::<u8>().add(i) } == begin[i]);
		let found = self.variables.iter().find(|text| begins(text))?;
		// SAFETY: as above, and as long as its beginning at least.
		Some(unsafe { CStr::from_ptr(found.add(begin.len())) }.to_bytes())
	}

	/// The strings from an argument on, and the environment.
	pub fn strings(&self, first: usize) -> [&'static [*const c_char]; 2] {
		[self.arguments.get(first..).unwrap_or_default(), self.variables]
	}

	/// Becomes the command proper, with the same command line; or has it go on with a clone asked for.
	pub fn hand_on(&self, asked: Option<Handed>) -> ! {
		let mut words = [core::ptr::null::<c_char>(); 3];
		let mut number = [0; Handed::LEN];
		let mut own = [0; PATH];
		let directory = self.directory(&mut own);
		let mut path = [0; PATH + INSTALLED.len()];
		path[..directory.len()].copy_from_slice(directory);
		if let Some(asked) = &asked {
			asked.write(&mut number);
			words = [self.arguments[0], flashfork_warm::ATTEND.as_ptr(), number.as_ptr().cast()];
		}
		let mut why = Errno::ENOENT;
		for name in [COMMAND, INSTALLED] {
			path[directory.len()..][..name.len()].copy_from_slice(name);
			let failed = self.execute(&path, if asked.is_some() { &words } else { &[] });
			if failed != Errno::ENOENT {
				why = failed;
			}
		}
		complain(directory, why)
	}

	/// Executes a program with the arguments of this one, the first of which is replaced by these words, if any.
	/// Returns where it can't be, with the reason.
	fn execute(&self, path: &[u8], words: &[*const c_char]) -> Errno {
		let kept = &self.arguments[usize::from(!words.is_empty()).min(self.arguments.len())..];
		let variables = self.variables.as_ptr();
		let run = |table: *const *const c_char| {
			let given = [path.as_ptr() as usize, table as usize, variables as usize, 0, 0, 0];
			// SAFETY: the path ends with a NUL, the tables with a null; their strings are as they were given.
			unsafe { flashfork_core::system_call(Sysno::execve, given) }.err().unwrap_or(Errno::ENOENT)
		};
		if words.is_empty() {
			// With its zero.
			return run(self.arguments.as_ptr());
		}
		let len = (words.len() + kept.len() + 1) * size_of::<usize>();
		let (access, kind) = (sys::PROT_READ | sys::PROT_WRITE, sys::MAP_PRIVATE | sys::MAP_ANONYMOUS);
		let given = [0, len, access as usize, kind as usize, usize::MAX, 0];
		// SAFETY: new memory, zeros, with room for all; nobody else has it.
		unsafe {
			let Some(table) = call(Sysno::mmap, given) else { return Errno::ENOMEM };
			let table = table as *mut *const c_char;
			table.copy_from_nonoverlapping(words.as_ptr(), words.len());
			table.add(words.len()).copy_from_nonoverlapping(kept.as_ptr(), kept.len());
			run(table)
		}
	}

	/// Where this program lies, with a slash behind it; as it was named without `/proc`.
	fn directory<'a>(&self, buffer: &'a mut [u8; PATH]) -> &'a [u8] {
		let link = c"/proc/self/exe".as_ptr() as usize;
		// SAFETY: the path ends with a NUL; the buffer is as long as said.
		let read = unsafe { call(Sysno::readlink, [link, buffer.as_mut_ptr() as usize, PATH]) };
		let len = read.unwrap_or_else(|| {
			let name = self.executed_as().to_bytes();
			let len = name.len().min(PATH);
			buffer[..len].copy_from_slice(&name[..len]);
			len
		});
		let path = &buffer[..len];
		&path[..path.iter().rposition(|b| *b == b'/').map_or(0, |slash| slash + 1)]
	}

	fn executed_as(&self) -> &'static CStr {
		let mut next = self.behind;
		// SAFETY: pairs, the last of which is zero; the value of this one is a string.
		unsafe {
			while (*next)[0] != 0 {
				if (*next)[0] == EXECUTED_AS {
					return CStr::from_ptr((*next)[1] as *const c_char);
				}
				next = next.add(1);
			}
		}
		c""
	}
}

/// Says that there is no command proper, or with which error of the system's it can't be run.
fn complain(directory: &[u8], why: Errno) -> ! {
	let directory = directory.strip_suffix(b"/").unwrap_or(directory);
	let number = Decimal::new(why.into_raw().unsigned_abs());
	let parts = if why == Errno::ENOENT {
		let cure = &b" nor where `make install` puts it; build it with `cargo build --release -p flashfork-cli` or install with `make install`\n"[..];
		[b"flashfork: flashfork-cli is neither in ", directory, cure]
	} else {
		[&b"flashfork: can't run flashfork-cli: os error "[..], number.as_bytes(), b"\n"]
	};
	let vector = parts.map(|part| [part.as_ptr() as usize, part.len()]);
	// SAFETY: the parts are as long as they say.
	unsafe { call(Sysno::writev, [2, vector.as_ptr() as usize, vector.len()]) };
	system::exit(1)
}

/// A clone asked for: the connection, and the clone's process, or 0.
pub struct Handed {
	pub socket: Fd,
	pub clone: i32,
}

impl Handed {
	/// Two numbers of at most ten digits, a comma and a NUL.
	const LEN: usize = 2 * 11;

	/// `SOCKET,CLONE`. The descriptor stays open.
	fn write(&self, into: &mut [u8; Handed::LEN]) {
		system::ask(Sysno::fcntl, [self.socket as usize, sys::F_SETFD as usize, 0]);
		let [socket, clone] = [self.socket, self.clone].map(|number| Decimal::new(number.unsigned_abs()));
		let mut rest = &mut into[..];
		for part in [socket.as_bytes(), b",", clone.as_bytes()] {
			let (here, behind) = rest.split_at_mut(part.len());
			here.copy_from_slice(part);
			rest = behind;
		}
	}
}

/// A number in digits.
pub struct Decimal([u8; 10], usize);

impl Decimal {
	pub fn new(mut number: u32) -> Decimal {
		let mut digits = Decimal([0; 10], 10);
		loop {
			digits.1 -= 1;
			digits.0[digits.1] = b'0' + (number % 10) as u8;
			number /= 10;
			if number == 0 {
				return digits;
			}
		}
	}

	pub fn as_bytes(&self) -> &[u8] {
		&self.0[self.1..]
	}
}

/// A path put together.
pub struct Path<const N: usize> {
	bytes: MaybeUninit<[u8; N]>,
	len: usize,
}

impl<const N: usize> Path<N> {
	/// Of parts; none if it would be too long.
	pub fn of(parts: &[&[u8]]) -> Option<Path<N>> {
		let mut path = Path { bytes: MaybeUninit::uninit(), len: 0 };
		let base = path.bytes.as_mut_ptr().cast::<u8>();
		for part in parts.iter().copied().chain([&b"\0"[..]]) {
			if part.len() > N - path.len {
				return None;
			}
			// SAFETY: there is room.
			unsafe { base.add(path.len).copy_from_nonoverlapping(part.as_ptr(), part.len()) };
			path.len += part.len();
		}
		Some(path)
	}

	pub fn as_c(&self) -> &CStr {
		// SAFETY: so many bytes are there, and the last is a NUL; none before it, because the parts have none.
		unsafe {
			CStr::from_bytes_with_nul_unchecked(core::slice::from_raw_parts(self.bytes.as_ptr().cast(), self.len))
		}
	}
}
