//! One virtual memory area as `/proc/self/smaps` describes it (`proc_pid_smaps(5)`).

use super::text::{Lines, decimal, number, words};
use crate::{
	range::Range,
	sys::{self, Errno, PROT_EXEC, PROT_READ, PROT_WRITE, Result},
};
use core::ffi::CStr;

/// Every memfd of the engine is named with this prefix and [`NUMBER`] digits, so that maps explain themselves and a
/// sealed VMA is recognised wherever it was moved, split or inherited.
pub const MEMFD_PREFIX: &[u8] = b"/memfd:flashfork:";

/// Digits of a generation's number in the name of its memfd.
pub const NUMBER: usize = 10;

/// Whether a path in maps is that of a memfd of the engine. A program may name its own whatever it likes; not like this
/// by chance.
fn is_ours(path: &[u8]) -> bool {
	let name = path.strip_prefix(MEMFD_PREFIX).unwrap_or(b"");
	let end = name.iter().position(|c| !c.is_ascii_digit()).unwrap_or(name.len());
	end == NUMBER && [&b""[..], b" (deleted)"].contains(&&name[end..])
}

/// What lies behind a VMA.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
	/// Private anonymous memory, the brk heap and named anonymous memory among it.
	Anonymous,
	/// Memory this engine has sealed: a private mapping of one of its memfds.
	Sealed,
	/// The main thread's stack.
	Stack,
	/// Areas the kernel made: vdso, vvar, vsyscall, uprobes.
	Kernel,
	/// The ring of an asynchronous I/O context (`io_setup(2)`).
	AioRing,
	/// Anything else: files, devices, shared memory.
	File,
}

/// The flags of the `VmFlags` line, two letters each.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Flags {
	letters: [[u8; 2]; 24],
	count: usize,
}

impl Flags {
	pub(crate) fn push(&mut self, letters: [u8; 2]) {
		if self.count < self.letters.len() {
			self.letters[self.count] = letters;
			self.count += 1;
		} else {
			// More flags than there is room for: what isn't known stops a seal.
			self.letters[self.count - 1] = *b"??";
		}
	}

	/// The flags in the kernel's order.
	pub fn iter(&self) -> impl Iterator<Item = [u8; 2]> {
		self.letters[..self.count].iter().copied()
	}

	/// Whether a flag is set.
	pub fn has(&self, letters: &[u8; 2]) -> bool {
		self.iter().any(|l| l == *letters)
	}
}

/// One VMA.
#[derive(Clone, Copy, Debug)]
pub struct Vma {
	/// Addresses covered.
	pub range: Range,
	/// `PROT_READ`, `PROT_WRITE`, `PROT_EXEC`.
	pub prot: u32,
	/// `MAP_SHARED`.
	pub shared: bool,
	/// Offset into the file, for a file mapping.
	pub offset: u64,
	/// Inode number of the file; 0 for anonymous memory.
	pub inode: u64,
	/// Number of the file's device, major and minor.
	pub device: [u32; 2],
	/// What lies behind it.
	pub kind: Kind,
	/// Whether the file has no name any more, or never had one.
	pub deleted: bool,
	/// Flags.
	pub flags: Flags,
	/// Memory protection key.
	pub pkey: u32,
	/// Bytes of resident anonymous pages, and of pages swapped out. The zero page counts in neither.
	pub anonymous: u64,
	/// See `anonymous`.
	pub swapped: u64,
	name: [u8; 32],
}

impl Vma {
	/// Device and inode number of its file, as [`sys::identity`] has them.
	pub fn identity(&self) -> (u64, u64) {
		(sys::device(self.device), self.inode)
	}

	/// Whether it is private memory to write to, of the host's pool of huge pages.
	pub fn has_private_huge_pages(&self) -> bool {
		!self.shared && self.prot & PROT_WRITE != 0 && self.flags.has(b"ht")
	}

	/// The number of the generation that sealed memory belongs to; 0 for other memory.
	pub fn generation(&self) -> u64 {
		let number = self.name().strip_prefix(MEMFD_PREFIX).and_then(|rest| rest.get(..NUMBER)).unwrap_or(b"");
		number.iter().filter(|c| c.is_ascii_digit()).fold(0, |sum, c| sum * 10 + u64::from(c - b'0'))
	}

	/// The name the kernel gives it, cut at 32 bytes; empty for plain anonymous memory.
	pub fn name(&self) -> &[u8] {
		let end = self.name.iter().position(|&b| b == 0).unwrap_or(self.name.len());
		&self.name[..end]
	}

	/// Parses the header line that `maps` and `smaps` share.
	fn parse(line: &[u8]) -> Option<Vma> {
		Vma::parse_with_path(line).map(|(vma, _)| vma)
	}

	/// The same, and the whole name.
	fn parse_with_path(line: &[u8]) -> Option<(Vma, &[u8])> {
		let mut w = words(line);
		let addresses = w.next()?;
		let perms = w.next()?;
		let offset = number(w.next()?, 16)?;
		let device = w.next()?;
		let inode = number(w.next()?, 10)?;
		let dash = addresses.iter().position(|&b| b == b'-')?;
		let start = number(&addresses[..dash], 16)? as usize;
		let end = number(&addresses[dash + 1..], 16)? as usize;
		let colon = device.iter().position(|&b| b == b':')?;
		let device = [number(&device[..colon], 16)? as u32, number(&device[colon + 1..], 16)? as u32];
		let [r, wr, x, s] = perms.try_into().ok()?;
		let mut prot = 0;
		for (letter, wanted, bit) in [(r, b'r', PROT_READ), (wr, b'w', PROT_WRITE), (x, b'x', PROT_EXEC)] {
			if letter == wanted {
				prot |= bit;
			}
		}
		// The name may hold blanks: it is everything from the sixth word on.
		let path =
			w.next().map_or(&line[line.len()..], |first| &line[first.as_ptr() as usize - line.as_ptr() as usize..]);
		let mut v = Vma::new(Range::new(start, end), inode, path, s == b's');
		(v.prot, v.offset, v.device) = (prot, offset, device);
		Some((v, path))
	}

	/// A VMA of which the rest is still to be said. `path`: its name.
	pub fn new(range: Range, inode: u64, path: &[u8], shared: bool) -> Vma {
		let mut name = [0; 32];
		let n = path.len().min(name.len());
		name[..n].copy_from_slice(&path[..n]);
		let kind = match path {
			_ if is_ours(path) && !shared => Kind::Sealed,
			b"[stack]" => Kind::Stack,
			b"" | b"[heap]" if inode == 0 => Kind::Anonymous,
			_ if path.starts_with(b"[anon:") && inode == 0 => Kind::Anonymous,
			_ if path.starts_with(b"/[aio]") => Kind::AioRing,
			_ if path.starts_with(b"[") => Kind::Kernel,
			_ => Kind::File,
		};
		let (flags, device, deleted) = (Flags::default(), [0; 2], path.ends_with(b" (deleted)"));
		let (prot, offset, pkey, anonymous, swapped) = (0, 0, 0, 0, 0);
		Vma { range, prot, shared, offset, inode, device, kind, deleted, flags, pkey, anonymous, swapped, name }
	}

	fn field(&mut self, line: &[u8]) {
		let kilobytes = |rest: &[u8]| decimal(rest).unwrap_or(0) * 1024;
		if let Some(rest) = line.strip_prefix(b"Anonymous:") {
			self.anonymous = kilobytes(rest);
		} else if let Some(rest) = line.strip_prefix(b"Swap:") {
			self.swapped = kilobytes(rest);
		} else if let Some(rest) = line.strip_prefix(b"ProtectionKey:") {
			self.pkey = decimal(rest).unwrap_or(0) as u32;
		} else if let Some(rest) = line.strip_prefix(b"VmFlags:") {
			for letters in words(rest).filter_map(|w| w.try_into().ok()) {
				self.flags.push(letters);
			}
		}
	}
}

/// Calls `each` with every VMA of this process in order of address, stopping at the first error.
///
/// `path` is `/proc/thread-self/smaps`, or `/proc/thread-self/maps` where address, protection and name are enough:
/// smaps walks the page tables, maps doesn't. An empty list is an error (`ESRCH`).
pub fn for_each(path: &CStr, buf: &mut [u8], mut each: impl FnMut(&Vma) -> Result<()>) -> Result<()> {
	let mut lines = Lines::open(path, buf)?;
	let mut current: Option<Vma> = None;
	while let Some(line) = lines.next()? {
		if line.first().is_some_and(u8::is_ascii_uppercase) {
			if let Some(vma) = &mut current {
				vma.field(line);
			}
		} else if let Some(vma) = Vma::parse(line)
			&& let Some(done) = current.replace(vma)
		{
			each(&done)?;
		}
	}
	// Nobody can ask who has no memory: the list is another's, that of a thread which has ended (`/proc/self`).
	current.map_or(Err(Errno::ESRCH), |last| each(&last))
}

/// Calls `each` with every VMA of this process in order of address, and with its whole path as the kernel gives it. Of
/// a VMA only what maps says is known.
pub fn for_each_mapping(buf: &mut [u8], mut each: impl FnMut(&Vma, &[u8]) -> Result<()>) -> Result<()> {
	let mut lines = Lines::open(c"/proc/thread-self/maps", buf)?;
	while let Some(line) = lines.next()? {
		if let Some((vma, path)) = Vma::parse_with_path(line) {
			each(&vma, path)?;
		}
	}
	Ok(())
}

#[cfg(test)]
mod tests;
