//! Files that are open and have no name any more, or never had one (`tmpfile(3)`, `O_TMPFILE`): each clone has a copy,
//! in the same file system.

use super::{
	frozen::{Entry, Files, Kind, NONE},
	open::{place, under_own_mounts},
	raw::{at, call, into, numeric},
	unfit::{Fit, Unfit, What},
};
use crate::{
	proc::text::ProcPath,
	sys::{self, Errno, Result},
};
use core::ffi::CStr;
use linux_raw_sys::general as k;
use syscalls::Sysno;

/// Most bytes of all of them, which each clone copies.
const BYTES: u64 = 64 << 20;

/// `O_TMPFILE` without the flag that directories have, too.
const NAMELESS: u32 = 0o20_000_000;

/// Of an open file (`fstat(2)`): struct stat is 18 words on this architecture.
struct Stat([u64; 18]);

impl Stat {
	fn of(fd: i32) -> Result<Stat> {
		let mut stat = Stat([0; 18]);
		// SAFETY: the kernel writes a local of the right size.
		unsafe { call(Sysno::fstat, [fd as usize, into(&mut stat.0)]) }.map(|_| stat)
	}

	fn links(&self) -> u64 {
		self.0[2]
	}

	fn mode(&self) -> usize {
		(self.0[3] & 0o7777) as usize
	}

	fn owner(&self) -> [u64; 2] {
		[self.0[3] >> 32, self.0[4] & 0xffff_ffff]
	}

	fn size(&self) -> u64 {
		self.0[6]
	}

	fn bytes(&self) -> u64 {
		self.0[8] * 512
	}

	/// When it was read and written last, for `utimensat(2)`.
	fn times(&self) -> [u64; 4] {
		[self.0[9], self.0[10], self.0[11], self.0[12]]
	}
}

/// Whether an open file has no name.
pub fn is_deleted(fd: i32) -> Result<bool> {
	Stat::of(fd).map(|stat| stat.links() == 0)
}

/// Finds the directories in which copies can be made, and tries that. `target`: room for their names.
pub fn look(files: &mut Files, pid: i32, target: &mut [u8]) -> Fit {
	let mut bytes = 0;
	for i in 0..files.count {
		let entry = files.all[i];
		if entry.kind != Kind::Deleted {
			continue;
		}
		let same = |e: &Entry| e.kind == Kind::Deleted && (e.device, e.inode) == (entry.device, entry.inode);
		files.all[i].other = files.all[..i].iter().position(same).unwrap_or(NONE);
		if files.all[i].other != NONE {
			continue;
		}
		bytes += Stat::of(entry.number)?.bytes();
		let len = sys::readlink(ProcPath::of(pid).push(b"/fd/").number(entry.number).as_c(), target)?;
		let unfit = Unfit::named(What::Deleted, entry.number, &target[..len]);
		if bytes > BYTES {
			return Err(unfit);
		}
		files.all[i].first = directory(&mut target[..len], entry.device).map_err(|_| unfit)? as usize;
		let tried = copy_of(&files.all[i]).and_then(|new| {
			let opened = opened(&entry, new);
			sys::close(new);
			opened
		});
		sys::close(tried.map_err(|_| unfit)?);
	}
	Ok(())
}

impl Files {
	/// Whether clones have a copy of the file with this inode.
	pub fn is_copied(&self, inode: u64) -> bool {
		self.all[..self.count].iter().any(|entry| entry.kind == Kind::Deleted && entry.inode == inode)
	}
}

/// A descriptor for the innermost directory above a file that is still there, in the same file system.
fn directory(name: &mut [u8], device: u64) -> Result<i32> {
	let mut end = name.len();
	while let Some(slash) = name[..end].iter().rposition(|b| *b == b'/') {
		end = slash;
		// The root's name is the slash.
		let at = slash.max(1);
		*name.get_mut(at).ok_or(Errno::ENOENT)? = 0;
		let path = CStr::from_bytes_with_nul(&name[..=at]).map_err(|_| Errno::ENOENT)?;
		if let Ok(fd) = sys::open(path, k::O_PATH | k::O_DIRECTORY) {
			if sys::identity(fd).is_ok_and(|(found, _)| found == device) {
				return Ok(fd);
			}
			sys::close(fd);
		}
	}
	Err(Errno::ENOENT)
}

/// A new file of the same owner, to be read and written by this process. An error: there can't be one.
fn new(entry: &Entry) -> Result<i32> {
	let own = under_own_mounts(entry.first as i32);
	let new = new_in(own.unwrap_or(entry.first as i32) as usize, entry);
	if let Ok(own) = own {
		sys::close(own);
	}
	let new = new?;
	owned(entry.number, new).map(|()| new).inspect_err(|_| sys::close(new))
}

fn new_in(directory: usize, entry: &Entry) -> Result<i32> {
	const PRIVATE: usize = 0o600;
	let create = |name: &CStr, flags: u32| {
		let flags = (flags | k::O_RDWR | k::O_CLOEXEC) as usize;
		// SAFETY: a string with its NUL.
		unsafe { call(Sysno::openat, [directory, name.as_ptr() as usize, flags, PRIVATE]) }.map(|fd| fd as i32)
	};
	// One that had a name gets none again.
	let once = if entry.info.flags & NAMELESS == 0 { k::O_EXCL } else { 0 };
	match create(c".", NAMELESS | k::O_DIRECTORY | once) {
		// Not every file system knows how to.
		Err(Errno::EOPNOTSUPP) if once != 0 => {
			let name = name()?;
			let name = CStr::from_bytes_with_nul(&name).map_err(|_| Errno::EINVAL)?;
			let new = create(name, k::O_CREAT | k::O_EXCL)?;
			// SAFETY: as above.
			let gone = unsafe { call(Sysno::unlinkat, [directory, name.as_ptr() as usize, 0]) };
			gone.map(|_| new).inspect_err(|_| sys::close(new))
		}
		made => made,
	}
}

/// A name that no other file has, with its NUL.
fn name() -> Result<[u8; 28]> {
	let mut random = [0u8; 8];
	// SAFETY: the kernel writes a local.
	unsafe { call(Sysno::getrandom, [into(&mut random), size_of_val(&random), 0]) }?;
	let mut name = *b".flashfork-0000000000000000\0";
	for (i, byte) in random.iter().enumerate() {
		name[11 + 2 * i..][..2].copy_from_slice(&[b'a' + (byte >> 4), b'a' + (byte & 15)]);
	}
	Ok(name)
}

fn owned(old: i32, new: i32) -> Result<()> {
	let [user, group] = Stat::of(old)?.owner();
	if Stat::of(new)?.owner() == [user, group] {
		return Ok(());
	}
	numeric(Sysno::fchown, [new as usize, user as usize, group as usize]).map(drop)
}

/// Opens it as the program has opened the old one.
fn opened(entry: &Entry, file: i32) -> Result<i32> {
	const ONCE: u32 = k::O_CREAT | k::O_EXCL | k::O_TRUNC | k::O_NOFOLLOW | k::O_DIRECTORY | NAMELESS;
	let path = ProcPath::of_this_thread().push(b"/fd/").number(file);
	let fd = sys::open(path.as_c(), entry.info.flags & !ONCE)?;
	sys::set_file_offset(fd, entry.info.position).map(|()| fd).inspect_err(|_| sys::close(fd))
}

/// A copy that this process can read and write.
fn copy_of(entry: &Entry) -> Result<i32> {
	let path = ProcPath::of_this_thread().push(b"/fd/").number(entry.number);
	// For the program it may be open to be written only. Only its owner may leave its time of access as it is.
	let own = sys::open(path.as_c(), k::O_RDONLY | k::O_NOATIME).or_else(|_| sys::open(path.as_c(), k::O_RDONLY));
	let new = new(entry)?;
	let copied = copy(own.unwrap_or(entry.number), new);
	if let Ok(own) = own {
		sys::close(own);
	}
	copied.map(|()| new).inspect_err(|_| sys::close(new))
}

/// Copies the bytes of a file to an empty one in the same file system, and leaves out holes.
fn copy(from: i32, to: i32) -> Result<()> {
	let size = Stat::of(from)?.size();
	sys::ftruncate(to, size)?;
	let next = |which: u32, offset: u64| {
		numeric(Sysno::lseek, [from as usize, offset as usize, which as usize]).map(|offset| offset as u64)
	};
	let mut end = 0;
	loop {
		let mut start = match next(k::SEEK_DATA, end) {
			Ok(start) => start,
			Err(Errno::ENXIO) => return Ok(()),
			Err(e) => return Err(e),
		};
		end = next(k::SEEK_HOLE, start)?;
		while start < end {
			let (mut offset, mut same) = (start, start);
			let [from, to] = [from as usize, to as usize];
			let len = (end - start) as usize;
			// SAFETY: the offsets are locals.
			let copied =
				unsafe { call(Sysno::copy_file_range, [from, into(&mut offset), to, into(&mut same), len, 0]) }?;
			if copied == 0 {
				return Err(Errno::EIO);
			}
			start += copied as u64;
		}
	}
}

/// In a clone: makes its own of one, and opens it as often as the program has.
pub fn renew(all: &[Entry], which: usize) -> Result<()> {
	let entry = &all[which];
	if entry.other != NONE {
		return Ok(());
	}
	let stat = Stat::of(entry.number)?;
	let new = copy_of(entry)?;
	let also = |e: &&Entry| e.kind == Kind::Deleted && e.other == which;
	let done = place_opened(entry, new)
		.and_then(|()| all.iter().filter(also).try_for_each(|entry| place_opened(entry, new)))
		.and_then(|()| attributes(&stat, new));
	sys::close(new);
	done
}

fn place_opened(entry: &Entry, file: i32) -> Result<()> {
	place(opened(entry, file)?, entry)
}

/// At last: it may be one that can't be opened.
fn attributes(old: &Stat, new: i32) -> Result<()> {
	let times = old.times();
	// SAFETY: the kernel reads a local; no path is the open file itself.
	unsafe {
		call(Sysno::fchmod, [new as usize, old.mode()])?;
		call(Sysno::utimensat, [new as usize, 0, at(&times), 0])?;
	}
	Ok(())
}
