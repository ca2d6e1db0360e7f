//! Which VMAs lie in a range, asked of the kernel: memory moves without our knowing.
//!
//! `PROCMAP_QUERY` (Linux 6.11, an ioctl of `/proc/PID/maps`) finds the next VMA of a file in one call. Older kernels:
//! the whole list as text, up to the end of the range.

use super::{
	text,
	vma::{self, Vma},
};
use crate::{
	arena::Arena,
	range::Range,
	sys::{self, Errno, PROT_EXEC, Result},
};

/// `struct procmap_query` of linux/fs.h.
#[repr(C)]
#[derive(Default)]
struct Query {
	size: u64,
	query_flags: u64,
	query_addr: u64,
	vma_start: u64,
	vma_end: u64,
	vma_flags: u64,
	vma_page_size: u64,
	vma_offset: u64,
	inode: u64,
	dev_major: u32,
	dev_minor: u32,
	vma_name_size: u32,
	build_id_size: u32,
	vma_name_addr: u64,
	build_id_addr: u64,
}

const PROCMAP_QUERY: usize = 0xc068_6611; // _IOWR('f', 17, struct procmap_query)
const COVERING_OR_NEXT_VMA: u64 = 0x10;
const FILE_BACKED_VMA: u64 = 0x20;
const EXECUTABLE_VMA: u64 = 4;
/// `PROCMAP_QUERY_VMA_*`: the first three are `PROT_READ`, `PROT_WRITE` and `PROT_EXEC`.
const PROTECTION: u64 = 7;
const SHARED: u64 = 8;

/// Which VMAs are wanted.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Wanted {
	All,
	/// Those that a file backs, sealed memory among them.
	Files,
	/// Those that may be executed.
	Executable,
}

/// Calls `each` with the VMAs in `range`, wholly or in part, in order of address, stopping at the first error. Their
/// flags are not known.
pub fn for_each(range: Range, wanted: Wanted, mut each: impl FnMut(&Vma) -> Result<()>) -> Result<()> {
	// Longer than any name that means something here.
	let mut name = [0; 128];
	match ask(range, wanted, &mut name, None, &mut |v, _| each(v))? {
		Some(()) => Ok(()),
		None => list_each(range, wanted, each),
	}
}

/// Says of a mapping whose name isn't known whether that is enough, and from where to go on then.
pub type Told<'a> = &'a mut dyn FnMut(&Vma) -> Option<usize>;

/// The same with whole names, for which `name` is scratch; one that is longer becomes `/too/long`. Mappings of which
/// `told` says that they need no name are left out: names take the kernel longest. `None`, with nothing told, where the
/// kernel must be asked for the list.
pub fn ask(
	range: Range,
	wanted: Wanted,
	name: &mut [u8],
	told: Option<Told>,
	each: &mut impl FnMut(&Vma, &[u8]) -> Result<()>,
) -> Result<Option<()>> {
	let fd = text::open(c"/proc/thread-self/maps", sys::O_RDONLY)?;
	let done = query_each(fd, range, wanted, name, told, each);
	sys::close(fd);
	done.transpose()
}

/// The first mapping that ends behind an address, without its name, by an open `/proc/PID/maps`.
pub fn next(maps: i32, at: usize) -> Result<Vma> {
	query(maps, at, Wanted::All, &mut []).map(|(v, _)| v)
}

/// None when the kernel doesn't answer such questions.
fn query_each(
	fd: i32,
	range: Range,
	wanted: Wanted,
	name: &mut [u8],
	mut told: Option<Told>,
	each: &mut impl FnMut(&Vma, &[u8]) -> Result<()>,
) -> Option<Result<()>> {
	let mut at = range.start;
	while at < range.end {
		if let Some(told) = &mut told {
			match query(fd, at, wanted, &mut []) {
				Ok((v, _)) if v.range.start >= range.end => break,
				Ok((v, _)) => {
					if let Some(next) = told(&v) {
						at = next.max(v.range.end);
						continue;
					}
				}
				Err(Errno::ENOENT) => break,
				// The same is asked again.
				Err(_) => {}
			}
		}
		match query(fd, at, wanted, name) {
			Ok((v, _)) if v.range.start >= range.end => break,
			Ok((v, name)) => {
				at = v.range.end;
				if let Err(e) = each(&v, name) {
					return Some(Err(e));
				}
			}
			// Nothing behind this address.
			Err(Errno::ENOENT) => break,
			Err(Errno::EINTR) => {}
			Err(_) if at == range.start => return None,
			Err(e) => return Some(Err(e)),
		}
	}
	Some(Ok(()))
}

/// The first VMA that ends behind `at`, and its name if there is room for one in `name`.
fn query(fd: i32, at: usize, wanted: Wanted, name: &mut [u8]) -> Result<(Vma, &[u8])> {
	const TOO_LONG: &[u8] = b"/too/long";
	let only = match wanted {
		Wanted::All => 0,
		Wanted::Files => FILE_BACKED_VMA,
		Wanted::Executable => EXECUTABLE_VMA,
	};
	let mut q = Query {
		size: size_of::<Query>() as u64,
		query_flags: COVERING_OR_NEXT_VMA | only,
		query_addr: at as u64,
		vma_name_size: name.len() as u32,
		vma_name_addr: if name.is_empty() { 0 } else { name.as_mut_ptr() as u64 },
		..Query::default()
	};
	// SAFETY: the kernel's struct, and a buffer of as many bytes as it says.
	let ask = |q: &mut Query| unsafe { sys::ioctl(fd, PROCMAP_QUERY, &raw mut *q as usize) };
	let is_too_long = match ask(&mut q) {
		Err(Errno::ENAMETOOLONG) => {
			(q.vma_name_size, q.vma_name_addr) = (0, 0);
			ask(&mut q)?;
			true
		}
		other => other.map(|_| false)?,
	};
	// A filter may have answered in the kernel's place (seccomp(2)).
	if q.vma_end as usize <= at {
		return Err(Errno::ENOTTY);
	}
	// It counts the zero at the end.
	let name = if is_too_long { TOO_LONG } else { &name[..(q.vma_name_size as usize).saturating_sub(1)] };
	let range = Range::new(q.vma_start as usize, q.vma_end as usize);
	let mut v = Vma::new(range, q.inode, name, q.vma_flags & SHARED != 0);
	v.prot = (q.vma_flags & PROTECTION) as u32;
	v.offset = q.vma_offset;
	v.device = [q.dev_major, q.dev_minor];
	Ok((v, name))
}

fn list_each(range: Range, wanted: Wanted, mut each: impl FnMut(&Vma) -> Result<()>) -> Result<()> {
	let Ok(arena) = Arena::map() else { return list_in_little_room(range, wanted, &mut each) };
	let listed = list_by(&mut arena.text, range, wanted, &mut each);
	arena.unmap();
	listed
}

/// Where nothing more may be mapped (`RLIMIT_AS`).
#[inline(never)]
fn list_in_little_room(range: Range, wanted: Wanted, each: &mut impl FnMut(&Vma) -> Result<()>) -> Result<()> {
	// More than a line with the longest path.
	list_by(&mut [0; 8192], range, wanted, each)
}

fn list_by(text: &mut [u8], range: Range, wanted: Wanted, each: &mut impl FnMut(&Vma) -> Result<()>) -> Result<()> {
	let mut told = Ok(());
	let listed = vma::for_each(c"/proc/thread-self/maps", text, |v| {
		if v.range.start >= range.end {
			return Err(Errno::ECANCELED);
		}
		let is_wanted = match wanted {
			Wanted::All => true,
			Wanted::Files => v.inode != 0,
			Wanted::Executable => v.prot & PROT_EXEC != 0,
		};
		if is_wanted && !v.range.intersect(range).is_empty() {
			told = each(v);
		}
		told.map_err(|_| Errno::ECANCELED)
	});
	match listed {
		Err(Errno::ECANCELED) => told,
		other => other,
	}
}

#[cfg(test)]
mod tests;
