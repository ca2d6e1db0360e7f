//! What the program was made of when it was warmed: clones would run what was there then, so there are none once
//! something else is there.
//!
//! That are files that it has read, names that it has looked up in vain, and directories whose names it has read. Each
//! is watched (`inotify(7)`): a look at the queue is one system call, and what was written before a caller came is in
//! it. An event says where to look, and that a file was written. What can't be watched, or changes on another machine,
//! is looked at for each caller.

mod look;
mod watch;

use super::template::Single;
use core::{
	ffi::{CStr, c_char, c_int, c_void},
	mem::{MaybeUninit, size_of},
	ptr::null_mut,
};
use flashfork_warm::{Tell, Why};
pub use look::Path;
use look::{Kept, hash, listing, look};
pub use watch::let_go;

/// Most of them, and bytes of their names.
const MOST: usize = 32 * 1024;
const TEXT: usize = 6 << 20;

/// Most endings of files that are modules, and most directories on the way to what is noted.
const SUFFIXES: usize = 16;
const ON_THE_WAY: usize = 4096;

/// Most looked at for each caller; if there are more, all are.
const LOOKED: usize = 1024;

/// Of the shim itself, which is part of no program.
pub const SHIM: &[u8] = b"/libflashfork_preload.so";

/// How something must be.
#[derive(Clone, Copy, PartialEq)]
pub enum Kind {
	/// A file, as it was.
	File,
	/// Not there.
	Missing,
	/// A name in a directory: no module of that name, whatever its ending.
	Module,
	/// A directory: the modules and packages in it.
	Listing,
	/// A directory: the names in it.
	Names,
}

impl Kind {
	fn why(self) -> Why {
		match self {
			Kind::File => Why::File,
			Kind::Missing | Kind::Module => Why::New,
			Kind::Listing | Kind::Names => Why::Listing,
		}
	}
}

struct Noted {
	kind: Kind,
	/// -1: it is looked at for each caller.
	watch: c_int,
	/// Whether it was so once.
	looked: bool,
	changed: bool,
	was: Kept,
	name: *const c_char,
	/// By which it is found.
	key: u64,
	/// Where in the name that part begins whose appearance in a watched directory is of concern.
	part: usize,
}

/// In their own mapping, so that nothing is allocated in the program.
struct Files {
	queue: c_int,
	/// Whether something on the way to them has changed, or can't be watched: all are looked at for each caller.
	blind: bool,
	count: usize,
	used: usize,
	changed: u64,
	unwatched: u64,
	suffixes: [*const c_char; SUFFIXES],
	suffix_count: usize,
	on_the_way: [u64; ON_THE_WAY],
	on_the_way_count: usize,
	/// Those without a watch.
	looked: [u32; LOOKED],
	looked_count: usize,
	all: [MaybeUninit<Noted>; MOST],
	text: [u8; TEXT],
}

static FILES: Single<*mut Files> = Single::new(null_mut());

/// The template's; none before something was noted.
unsafe fn files() -> Option<&'static mut Files> {
	// SAFETY: mapped for good, and used by one thread that keeps no other reference.
	unsafe { FILES.get().as_mut() }
}

/// What tells of changes; -1 for none.
///
/// # Safety
/// In the program's only thread.
pub unsafe fn queue() -> c_int {
	// SAFETY: as the caller says.
	unsafe { files() }.map_or(-1, |files| files.queue)
}

/// As [`files`], made if there are none yet.
unsafe fn make() -> Option<&'static mut Files> {
	// SAFETY: one thread; the mapping has the size of what it is taken for, in which zeros are valid.
	unsafe {
		if FILES.get().is_null() {
			let (prot, flags) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
			let at = libc::mmap(null_mut(), size_of::<Files>(), prot, flags | libc::MAP_NORESERVE, -1, 0);
			if at == libc::MAP_FAILED {
				return None;
			}
			*FILES.get() = at.cast();
			(**FILES.get()).queue = libc::inotify_init1(libc::IN_NONBLOCK | libc::IN_CLOEXEC);
		}
		files()
	}
}

/// Notes something, by a name from the root. A file or a directory that is not there changes nothing.
///
/// # Safety
/// In the program's only thread.
pub unsafe fn note(kind: Kind, name: &CStr) {
	// SAFETY: as the caller says.
	let Some(files) = (unsafe { make() }) else { return };
	if name.to_bytes().first() == Some(&b'/') {
		files.add(kind, name);
	}
}

/// Notes an ending that files of modules have.
///
/// # Safety
/// As [`note`].
pub unsafe fn note_suffix(suffix: &CStr) {
	// SAFETY: as the caller says.
	let Some(files) = (unsafe { make() }) else { return };
	if let Some(text) = files.keep(suffix)
		&& let Some(place) = files.suffixes.get_mut(files.suffix_count)
	{
		*place = text;
		files.suffix_count += 1;
	}
}

/// A file that was noted is not any more what the program has read.
///
/// # Safety
/// As [`note`].
pub unsafe fn mark(name: &CStr) {
	// SAFETY: as the caller says.
	unsafe {
		let Some(files) = files() else { return };
		let key = hash(name.to_bytes()) ^ Kind::File as u64;
		if let Some(at) = files.noted().iter().position(|noted| noted.key == key) {
			files.set(at, true);
		}
	}
}

/// Notes the program and its libraries.
///
/// # Safety
/// As [`note`].
pub unsafe fn note_objects() {
	unsafe extern "C" fn each(object: *mut libc::dl_phdr_info, _: usize, _: *mut c_void) -> c_int {
		// SAFETY: the loader's own text; the program's name is empty, and so is that of the kernel's object in some
		// versions.
		unsafe {
			let name = CStr::from_ptr((*object).dlpi_name);
			if !name.to_bytes().ends_with(SHIM) {
				note(Kind::File, name);
			}
		}
		0
	}
	let mut path = [0u8; 4096];
	// SAFETY: the buffer is longer than said, so the path ends with a NUL.
	unsafe {
		let len = libc::readlink(c"/proc/self/exe".as_ptr(), path.as_mut_ptr().cast(), path.len() - 1);
		if len > 0
			&& let Ok(path) = CStr::from_bytes_until_nul(&path)
		{
			note(Kind::File, path);
		}
		libc::dl_iterate_phdr(Some(each), null_mut());
	}
}

/// Device and number of a regular file.
pub fn file(name: *const c_char) -> Option<(u64, u64)> {
	look(name).map(|kept| kept.file())
}

/// How many have changed so far, and of how many that would not be seen.
pub fn counts() -> (u64, u64) {
	// SAFETY: one thread.
	unsafe {
		let Some(files) = files() else { return (0, 0) };
		files.look_at_queue();
		files.look_at_unwatched();
		(files.changed, files.unwatched)
	}
}

/// What a caller is told in place of a clone, if any has changed. `renews`: whether he is to make the template anew.
pub fn told(renews: bool) -> Option<Tell> {
	let (count, _) = counts();
	// SAFETY: one thread; names end with a NUL.
	unsafe {
		let files = files().filter(|_| count > 0)?;
		let first = files.noted().iter().find(|noted| noted.changed)?;
		let path = CStr::from_ptr(first.name).to_bytes();
		Some(Tell::stale(first.kind.why(), renews, count, path))
	}
}

impl Files {
	fn noted(&mut self) -> &mut [Noted] {
		// SAFETY: so many have been written.
		unsafe { core::slice::from_raw_parts_mut(self.all.as_mut_ptr().cast(), self.count) }
	}

	fn keep(&mut self, text: &CStr) -> Option<*const c_char> {
		let bytes = text.to_bytes_with_nul();
		let place = self.text.get_mut(self.used..self.used + bytes.len())?;
		place.copy_from_slice(bytes);
		self.used += bytes.len();
		Some(place.as_ptr().cast())
	}

	fn add(&mut self, kind: Kind, name: &CStr) {
		let there = match kind {
			Kind::File => look(name.as_ptr()).is_some(),
			Kind::Listing | Kind::Names => self.list(kind, name.as_ptr()).is_some(),
			Kind::Missing | Kind::Module => true,
		};
		// Interpreters name some twice.
		let key = hash(name.to_bytes()) ^ kind as u64;
		if !there || self.noted().iter().any(|noted| noted.key == key) {
			return;
		}
		let Some(text) = (if self.count < MOST { self.keep(name) } else { None }) else {
			self.unwatched += 1;
			return;
		};
		let noted =
			Noted { kind, watch: -1, looked: false, changed: false, was: Kept::default(), name: text, key, part: 0 };
		let at = self.count;
		self.all[at].write(noted);
		self.count += 1;
		// Whatever happens from here on is in the queue.
		self.watch(at);
		self.look_for_each_caller(at);
		let was = match kind {
			Kind::File => look(text),
			Kind::Listing | Kind::Names => self.list(kind, text),
			Kind::Missing | Kind::Module => Some(Kept::default()),
		};
		self.noted()[at].was = was.unwrap_or_default();
		self.look_at(at);
	}

	/// The names in a directory, or those of modules and packages.
	fn list(&self, kind: Kind, name: *const c_char) -> Option<Kept> {
		listing(name, (kind == Kind::Listing).then_some(&self.suffixes[..self.suffix_count]))
	}

	/// Compares with what was.
	fn look_at(&mut self, at: usize) {
		let Noted { kind, watch, was, name, changed, .. } = self.noted()[at];
		let now = match kind {
			// What was written stays so, whatever is put in its place.
			Kind::File => changed || look(name).is_none_or(|now| !now.is(&was, watch >= 0)),
			Kind::Missing => look::is_there(name),
			Kind::Module => look::is_module(name, &self.suffixes[..self.suffix_count]),
			Kind::Listing | Kind::Names => self.list(kind, name) != Some(was),
		};
		self.set(at, now);
	}

	fn set(&mut self, at: usize, changed: bool) {
		let before = core::mem::replace(&mut self.noted()[at].changed, changed);
		self.changed = self.changed + u64::from(changed) - u64::from(before);
	}

	/// Whether these bytes were given before; notes them.
	fn is_on_the_way(&mut self, path: &[u8]) -> bool {
		let key = hash(path);
		if self.on_the_way[..self.on_the_way_count].contains(&key) {
			return true;
		}
		if let Some(place) = self.on_the_way.get_mut(self.on_the_way_count) {
			*place = key;
			self.on_the_way_count += 1;
		} else {
			self.blind = true;
		}
		false
	}
}
