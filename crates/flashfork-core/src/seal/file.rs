//! The files that the memory of a generation lies in.
//!
//! A memfd always; and where much is sealed, beside it a file of a tmpfs mounted for it with `huge=always`, attached
//! nowhere. There the kernel puts 2 MB pages under what is written 2 MB at a time, and doesn't fill them with zeros
//! first, as it does for a memfd before they are collapsed. What is smaller than 2 MB would take as much, and lies in
//! the memfd, at the offset that it would have in the other.
//!
//! A file of a tmpfs takes no seals (`F_ADD_SEALS`). So the mount is made read-only when the file is filled, by whom
//! nothing is open for writing any more: then nobody gets hold of the file to write to it, not through
//! `/proc/PID/map_files` either. Where somebody has got hold of it meanwhile (`/proc/PID/fd`, for who may do anything
//! to this process) all that lies in it is sealed once more, into a memfd.
//!
//! Only for who may mount. In a namespace of users everybody may, but it takes children, which the program could see
//! (this was tried): in `RUSAGE_CHILDREN`, by a `SIGCHLD`, by standing still in a stop of the whole process group, in
//! the number of namespaces that it may have; who kills the program finds one adopted.

use super::offset;
use crate::{
	apart::Apart,
	arena::Run,
	filter,
	proc::vma,
	range::Range,
	sys::{self, Errno, HUGE, PROT_EXEC, PROT_READ, PROT_WRITE, Result},
};
use core::{
	ffi::CStr,
	sync::atomic::{AtomicBool, Ordering::SeqCst},
};

/// Least bytes in blocks of 2 MB for which a mount is worth it, which takes as long as sealing some hundred KB.
const LEAST: usize = 16 << 20;

/// The first Linux that writes a 2 MB page of a tmpfs in one go (`generic_perform_write` in mm/filemap.c).
const FIRST: (u32, u32) = (6, 12);

/// Whether it is known that this process gets no such mount. Under a filter of system calls it isn't tried: that might
/// end the program.
pub(crate) static REFUSED: Apart<AtomicBool> = Apart::new(AtomicBool::new(false));

/// The name of a generation's files, by which sealed memory is known.
struct Name([u8; 21]);

impl Name {
	fn of(generation: u32) -> Name {
		const PREFIX: &[u8] = b"flashfork:";
		let mut name = *b"flashfork:0000000000\0";
		let mut n = generation;
		for digit in name[PREFIX.len()..][..vma::NUMBER].iter_mut().rev() {
			*digit = b'0' + (n % 10) as u8;
			n /= 10;
		}
		Name(name)
	}

	fn as_c(&self) -> &CStr {
		CStr::from_bytes_until_nul(&self.0).unwrap_or_default()
	}

	/// As the list of mappings has it of a memfd.
	fn with_prefix(&self) -> [u8; 27] {
		let mut name = [0; 27];
		name[..6].copy_from_slice(b"memfd:");
		name[6..].copy_from_slice(&self.0);
		name
	}
}

/// The memfd of a generation, while any can be.
pub fn make_memfd(generation: u32) -> Result<i32> {
	let fd = sys::memfd_create(Name::of(generation).as_c())?;
	sys::ftruncate(fd, offset::FILE_LEN).inspect_err(|_| sys::close(fd))?;
	Ok(fd)
}

/// A file with what was sealed into it: its descriptor is whoever's it is given to.
#[derive(Clone, Copy)]
pub struct Filled {
	pub fd: i32,
	pub bytes: u64,
	/// Whether nobody can write to it any more.
	pub protected: bool,
}

/// A file in its own tmpfs; see the module.
pub struct Mounted {
	mount: i32,
	/// To write it by, until it is full.
	pub write: i32,
	/// To map it by.
	pub read: i32,
}

impl Mounted {
	/// Makes one where these runs are worth it and the host lets it be made.
	pub fn make(generation: u32, runs: &[Run]) -> Option<Mounted> {
		let blocks = runs.iter().filter(|run| takes(run)).map(|run| whole_blocks(run.range).len()).sum::<usize>();
		if blocks < LEAST || REFUSED.load(SeqCst) || filter::is_filtered() != Ok(false) {
			return None;
		}
		match Mounted::mount(generation) {
			Ok(made) => Some(made),
			// It may be there next time.
			Err(Errno::EMFILE | Errno::ENFILE | Errno::ENOMEM | Errno::EAGAIN | Errno::EINTR) => None,
			Err(_) => {
				Mounted::give_up();
				None
			}
		}
	}

	/// Makes none any more in this process.
	pub fn give_up() {
		REFUSED.store(true, SeqCst);
	}

	/// Whether this host lets this process make one; `EACCES` where it isn't even tried.
	pub fn try_to_make() -> Result<()> {
		if filter::is_filtered() != Ok(false) {
			return Err(Errno::EACCES);
		}
		let (fd, protected) = Mounted::mount(0)?.protect();
		sys::close(fd);
		protected
	}

	fn mount(generation: u32) -> Result<Mounted> {
		if sys::kernel_version()? < FIRST {
			return Err(Errno::ENOSYS);
		}
		let name = Name::of(generation).with_prefix();
		let name = CStr::from_bytes_until_nul(&name).map_err(|_| Errno::EINVAL)?;
		// Not half of the machine's memory, as by default: what there is, is known otherwise.
		let mount = sys::mount_tmpfs(&[(c"size", c"0"), (c"huge", c"always"), (c"mode", c"0700")])?;
		let [write, read] = sys::make_file(mount, name).inspect_err(|_| sys::close(mount))?;
		let made = Mounted { mount, write, read };
		made.try_it().inspect_err(|_| [write, read, mount].into_iter().for_each(sys::close))?;
		Ok(made)
	}

	/// Whether the file can be what it is for. A security module may forbid to map it; an administrator, 2 MB pages.
	/// And a seal must be able to open something beside it.
	fn try_it(&self) -> Result<()> {
		if sys::block_size(self.write)? < HUGE as u64 {
			return Err(Errno::EOPNOTSUPP);
		}
		sys::ftruncate(self.write, offset::FILE_LEN)?;
		let one = sys::duplicate_above(self.read, 0)?;
		let other = sys::duplicate_above(self.read, 0).inspect_err(|_| sys::close(one))?;
		[one, other].into_iter().for_each(sys::close);
		let flags = sys::MAP_PRIVATE | sys::MAP_NORESERVE;
		// SAFETY: a fresh mapping, which is taken away again.
		unsafe {
			let at = sys::mmap(0, sys::PAGE, PROT_READ | PROT_WRITE, flags, self.read, 0)?;
			sys::munmap(at, sys::PAGE)
		}
	}

	/// Whether this part of a run lies in it.
	pub fn takes(&self, run: &Run, chunk: Range) -> bool {
		takes(run) && chunk.len() >= HUGE
	}

	/// Keeps everybody from writing to it any more; `EBUSY` where somebody has it open for that. Gives the descriptor
	/// that it is mapped by, too.
	pub fn protect(self) -> (i32, Result<()>) {
		sys::close(self.write);
		let done = sys::make_read_only(self.mount);
		sys::close(self.mount);
		(self.read, done)
	}
}

/// Whether a run's blocks may lie in such a file: files to be executed may be forbidden where memory isn't.
fn takes(run: &Run) -> bool {
	run.prot & PROT_EXEC == 0
}

fn whole_blocks(range: Range) -> Range {
	let (start, end) = (range.start.next_multiple_of(HUGE), range.end & !(HUGE - 1));
	Range::new(start, end.max(start))
}
