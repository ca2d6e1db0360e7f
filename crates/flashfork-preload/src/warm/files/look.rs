//! How things are now.

use core::{
	ffi::{CStr, c_char, c_int},
	mem::{MaybeUninit, size_of},
};

/// What tells one content of a file, or of a directory, from another.
#[derive(Clone, Copy, Default, PartialEq)]
pub struct Kept {
	file: (u64, u64),
	len: i64,
	written: (i64, i64),
	/// Rights and links change it, too; but it can't be set by anybody.
	changed: (i64, i64),
}

impl Kept {
	pub fn file(&self) -> (u64, u64) {
		self.file
	}

	/// Whether it is the same. `watched`: all that was written since is known otherwise.
	pub fn is(&self, was: &Kept, watched: bool) -> bool {
		(self.file, self.len, self.written) == (was.file, was.len, was.written)
			&& (watched || self.changed == was.changed)
	}
}

fn stat(name: *const c_char) -> Option<libc::stat> {
	// SAFETY: a name that ends with a NUL, and a local of which all zeros are a value.
	unsafe {
		let mut stat = MaybeUninit::<libc::stat>::zeroed().assume_init();
		(libc::stat(name, &raw mut stat) == 0).then_some(stat)
	}
}

fn is(stat: &libc::stat, kind: libc::mode_t) -> bool {
	stat.st_mode & libc::S_IFMT == kind
}

/// None of what is no regular file.
pub fn look(name: *const c_char) -> Option<Kept> {
	let stat = stat(name).filter(|stat| is(stat, libc::S_IFREG))?;
	Some(Kept {
		file: (stat.st_dev, stat.st_ino),
		len: stat.st_size,
		written: (stat.st_mtime, stat.st_mtime_nsec),
		changed: (stat.st_ctime, stat.st_ctime_nsec),
	})
}

/// Whether there is anything of that name.
pub fn is_there(name: *const c_char) -> bool {
	stat(name).is_some()
}

/// Whether it is a symbolic link.
pub fn is_link(name: *const c_char) -> bool {
	// SAFETY: as above.
	unsafe {
		let mut stat = MaybeUninit::<libc::stat>::zeroed().assume_init();
		libc::lstat(name, &raw mut stat) == 0 && is(&stat, libc::S_IFLNK)
	}
}

/// A path put together.
pub struct Path {
	bytes: [u8; libc::PATH_MAX as usize],
	len: usize,
}

impl Path {
	pub fn of(parts: &[&[u8]]) -> Option<Path> {
		let mut path = Path { bytes: [0; libc::PATH_MAX as usize], len: 0 };
		for part in parts {
			path.bytes.get_mut(path.len..path.len + part.len())?.copy_from_slice(part);
			path.len += part.len();
		}
		// The NUL behind it.
		(path.len < path.bytes.len()).then_some(path)
	}

	pub fn as_ptr(&self) -> *const c_char {
		self.bytes.as_ptr().cast()
	}
}

/// Whether there is a module of that name, a file or a package.
pub fn is_module(name: *const c_char, suffixes: &[*const c_char]) -> bool {
	// SAFETY: texts that end with a NUL.
	let text = |at: *const c_char| unsafe { CStr::from_ptr(at) }.to_bytes();
	suffixes.iter().any(|suffix| {
		[&b""[..], b"/__init__"]
			.into_iter()
			.filter_map(|middle| Path::of(&[text(name), middle, text(*suffix)]))
			.any(|path| look(path.as_ptr()).is_some())
	})
}

/// FNV-1a: names are told apart by it.
pub fn hash(bytes: &[u8]) -> u64 {
	bytes.iter().fold(0xcbf2_9ce4_8422_2325, |hash, b| (hash ^ u64::from(*b)).wrapping_mul(0x0100_0000_01b3))
}

/// The names in a directory, whatever their order; of modules and packages only where their endings are given. None of
/// what is no directory.
pub fn listing(name: *const c_char, suffixes: Option<&[*const c_char]>) -> Option<Kept> {
	/// As the kernel wants it aligned.
	#[repr(C, align(8))]
	struct Entries([u8; 8192]);
	/// `struct linux_dirent64`: inode, offset, length, kind, name.
	const LEN: usize = 16;
	const KIND: usize = 18;
	const NAME: usize = 19;
	let mut entries = Entries([0; 8192]);
	let flags = libc::O_RDONLY | libc::O_DIRECTORY | libc::O_CLOEXEC;
	// SAFETY: a name that ends with a NUL; the descriptor is closed below.
	let directory = unsafe { libc::open(name, flags) };
	if directory < 0 {
		return None;
	}
	let (mut count, mut sum) = (0i64, 0u64);
	loop {
		// SAFETY: the buffer is as long as said.
		let len =
			unsafe { libc::syscall(libc::SYS_getdents64, directory, entries.0.as_mut_ptr(), size_of::<Entries>()) };
		let Some(mut rest) = usize::try_from(len).ok().filter(|len| *len > 0).and_then(|len| entries.0.get(..len))
		else {
			break;
		};
		while let (Some(len), Some(kind)) = (rest.get(LEN..LEN + 2), rest.get(KIND)) {
			let len = usize::from(u16::from_ne_bytes([len[0], len[1]]));
			let name = rest.get(NAME..len).unwrap_or_default();
			let name = name.split(|b| *b == 0).next().unwrap_or_default();
			if name != b"__pycache__" && suffixes.is_none_or(|suffixes| is_of_concern(name, *kind, suffixes)) {
				count += 1;
				sum = sum.wrapping_add(hash(name));
			}
			rest = rest.get(len..).unwrap_or_default();
		}
	}
	close(directory);
	Some(Kept { file: (sum, 0), len: count, ..Kept::default() })
}

/// Whether an entry is a module or may be a package: by its ending, or a directory without one.
fn is_of_concern(name: &[u8], kind: u8, suffixes: &[*const c_char]) -> bool {
	// SAFETY: texts that end with a NUL.
	let ends = |suffix: &*const c_char| name.ends_with(unsafe { CStr::from_ptr(*suffix) }.to_bytes());
	let directory = [libc::DT_DIR, libc::DT_LNK, libc::DT_UNKNOWN].contains(&kind);
	suffixes.iter().any(ends) || directory && !name.contains(&b'.')
}

/// File systems that other machines, or a program, may change without the kernel's knowing (`statfs(2)`): nfs, smb,
/// cifs, smb2, coda, afs (two), ceph, fuse, 9p, gfs2, ocfs2, lustre, vboxsf.
const REMOTE: [u32; 14] = [
	0x6969,
	0x517b,
	0xff53_4d42,
	0xfe53_4d42,
	0x7375_7245,
	0x5346_414f,
	0x6b41_4653,
	0x00c3_6400,
	0x6573_5546,
	0x0102_1997,
	0x0116_1970,
	0x7461_636f,
	0x0bd0_0bd0,
	0x786f_4256,
];

/// Whether what lies there may change unseen.
pub fn is_remote(name: *const c_char) -> bool {
	// SAFETY: a name that ends with a NUL, and a local of which all zeros are a value.
	unsafe {
		let mut about = MaybeUninit::<libc::statfs>::zeroed().assume_init();
		libc::statfs(name, &raw mut about) == 0 && REMOTE.contains(&(about.f_type as u32))
	}
}

fn close(fd: c_int) {
	// SAFETY: opened above.
	unsafe { libc::close(fd) };
}
