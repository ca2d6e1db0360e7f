//! The watches, and what comes of them.

use super::{
	Files, Kind, Noted, files,
	look::{Path, is_link, is_remote, is_there},
};
use core::{
	ffi::{CStr, c_char, c_int},
	mem::size_of,
};

const OF_FILE: u32 = libc::IN_MODIFY | libc::IN_ATTRIB | OF_ITSELF;
/// Of a directory in which names come and go.
const OF_NAMES: u32 = libc::IN_CREATE | libc::IN_DELETE | libc::IN_MOVED_FROM | libc::IN_MOVED_TO | OF_ITSELF;
/// Of whatever lies on the way.
const OF_ITSELF: u32 = libc::IN_MOVE_SELF | libc::IN_DELETE_SELF;

/// In clones, which don't need it: closes the descriptor, once.
pub fn let_go() {
	// SAFETY: one thread; nobody uses the descriptor any more, and -1 is none.
	unsafe {
		if let Some(files) = files() {
			libc::close(core::mem::replace(&mut files.queue, -1));
		}
	}
}

impl Files {
	fn add_watch(&self, name: *const c_char, events: u32) -> c_int {
		// SAFETY: the name ends with a NUL. Without a queue it fails.
		unsafe { libc::inotify_add_watch(self.queue, name, events | libc::IN_MASK_ADD) }
	}

	pub(super) fn watch(&mut self, at: usize) {
		let Noted { kind, name, .. } = self.noted()[at];
		// SAFETY: names end with a NUL.
		let path = unsafe { CStr::from_ptr(name) }.to_bytes();
		match kind {
			Kind::File => {
				self.noted()[at].watch = if is_remote(name) { -1 } else { self.add_watch(name, OF_FILE) };
				self.watch_way(path);
			}
			Kind::Listing | Kind::Names => {
				self.noted()[at].watch = if is_remote(name) { -1 } else { self.add_watch(name, OF_NAMES) };
				self.watch_way(path);
			}
			Kind::Missing | Kind::Module => self.watch_for(at, path),
		}
	}

	/// Something that is not there: the last directory on the way that is there is watched for the next one.
	fn watch_for(&mut self, at: usize, path: &[u8]) {
		// Between two looks another directory may come.
		for _ in 0..16 {
			let Some((directory, part)) = last_there(path) else { return };
			let watch = if is_remote(directory.as_ptr()) { -1 } else { self.add_watch(directory.as_ptr(), OF_NAMES) };
			let noted = &mut self.noted()[at];
			(noted.watch, noted.part) = (watch, part);
			if last_there(path).is_none_or(|(_, now)| now == part) {
				self.watch_way(path.get(..part - 1).unwrap_or_default());
				let Noted { kind, name, .. } = self.noted()[at];
				// A directory that is no package may become one.
				if kind == Kind::Module && is_there(name) {
					self.noted()[at].watch = -1;
				}
				return;
			}
		}
		self.noted()[at].watch = -1;
	}

	/// Directories and links on the way to something, as it is named and as it is found.
	fn watch_way(&mut self, path: &[u8]) {
		let Some(whole) = Path::of(&[path]) else { return };
		if is_link(whole.as_ptr()) {
			self.watch_part(path);
		}
		self.watch_each(path);
		let mut found = [0u8; libc::PATH_MAX as usize];
		// SAFETY: a name that ends with a NUL, and a buffer as long as is asked for.
		let resolved = unsafe { libc::realpath(whole.as_ptr(), found.as_mut_ptr().cast()) };
		if let (false, Ok(found)) = (resolved.is_null(), CStr::from_bytes_until_nul(&found)) {
			self.watch_each(found.to_bytes());
		}
	}

	fn watch_each(&mut self, path: &[u8]) {
		// From the end: where one is known, so are those above it.
		for (end, _) in path.iter().enumerate().rev().filter(|(at, b)| **b == b'/' && *at > 0) {
			if !self.watch_part(&path[..end]) {
				return;
			}
		}
	}

	/// False if it is watched already.
	fn watch_part(&mut self, path: &[u8]) -> bool {
		if self.is_on_the_way(path) {
			return false;
		}
		if let Some(part) = Path::of(&[path]) {
			let watch = self.add_watch(part.as_ptr(), OF_ITSELF | libc::IN_ATTRIB | libc::IN_DONT_FOLLOW);
			self.blind |= watch < 0;
		}
		true
	}

	pub(super) fn look_at_queue(&mut self) {
		/// As the kernel wants it aligned.
		#[repr(C, align(8))]
		struct Events([u8; 4096]);
		let mut events = Events([0; 4096]);
		loop {
			// SAFETY: the buffer is as long as said.
			let len = unsafe { libc::read(self.queue, events.0.as_mut_ptr().cast(), events.0.len()) };
			let Some(mut rest) = usize::try_from(len).ok().filter(|len| *len > 0).and_then(|len| events.0.get(..len))
			else {
				return;
			};
			const HEAD: usize = size_of::<libc::inotify_event>();
			while rest.len() >= HEAD {
				// SAFETY: the kernel writes whole events.
				let event = unsafe { rest.as_ptr().cast::<libc::inotify_event>().read_unaligned() };
				let end = HEAD + event.len as usize;
				let name = rest.get(HEAD..end).unwrap_or_default();
				let name = name.split(|b| *b == 0).next().unwrap_or_default();
				self.event(event.wd, event.mask, name);
				rest = rest.get(end..).unwrap_or_default();
			}
		}
	}

	fn event(&mut self, watch: c_int, mask: u32, name: &[u8]) {
		if mask & libc::IN_Q_OVERFLOW != 0 {
			return self.look_at_all();
		}
		// In a directory.
		if !name.is_empty() {
			for at in 0..self.count {
				if is_meant(&self.noted()[at], watch, name) {
					self.settle(at);
				}
			}
			return;
		}
		let mut is_file = false;
		for at in 0..self.count {
			let noted = &self.noted()[at];
			if noted.kind == Kind::File && noted.watch == watch {
				is_file = true;
				// What writes may put back the times.
				if mask & libc::IN_MODIFY != 0 {
					self.set(at, true);
				} else {
					self.look_at(at);
				}
			}
		}
		// The way is another from here on.
		if !is_file && mask & (OF_ITSELF | libc::IN_UNMOUNT) != 0 {
			self.blind = true;
		} else if !is_file && mask & libc::IN_ATTRIB != 0 {
			self.look_at_all();
		}
	}

	/// What was not there may be, or the next directory on the way to it.
	fn settle(&mut self, at: usize) {
		let Noted { kind, name, .. } = self.noted()[at];
		if matches!(kind, Kind::Missing | Kind::Module) {
			// SAFETY: names end with a NUL.
			self.watch_for(at, unsafe { CStr::from_ptr(name) }.to_bytes());
			self.look_for_each_caller(at);
		}
		self.look_at(at);
	}

	fn look_at_all(&mut self) {
		for at in 0..self.count {
			self.settle_or_look(at);
		}
	}

	fn settle_or_look(&mut self, at: usize) {
		match self.noted()[at].kind {
			Kind::Missing | Kind::Module => self.settle(at),
			Kind::File | Kind::Listing | Kind::Names => self.look_at(at),
		}
	}

	/// For each caller.
	pub(super) fn look_at_unwatched(&mut self) {
		if self.blind {
			return (0..self.count).for_each(|at| self.look_at(at));
		}
		for which in 0..self.looked_count {
			self.look_at(self.looked[which] as usize);
		}
	}

	/// If it has no watch.
	pub(super) fn look_for_each_caller(&mut self, at: usize) {
		let noted = &mut self.noted()[at];
		if noted.watch >= 0 || core::mem::replace(&mut noted.looked, true) {
			return;
		}
		match self.looked.get_mut(self.looked_count) {
			Some(place) => {
				*place = at as u32;
				self.looked_count += 1;
			}
			None => self.blind = true,
		}
	}
}

/// The last directory on the way to something that is there, and where in the path the next part begins.
fn last_there(path: &[u8]) -> Option<(Path, usize)> {
	let mut ends = path.iter().enumerate().rev().filter(|(_, b)| **b == b'/').map(|(at, _)| at);
	ends.find_map(|end| {
		let directory = Path::of(&[&path[..end.max(1)]])?;
		is_there(directory.as_ptr()).then_some((directory, end + 1))
	})
}

/// Whether an entry of a watched directory is of concern to this one.
fn is_meant(noted: &Noted, watch: c_int, name: &[u8]) -> bool {
	if noted.watch != watch || noted.kind == Kind::File {
		return false;
	}
	if matches!(noted.kind, Kind::Listing | Kind::Names) {
		return true;
	}
	// SAFETY: names end with a NUL.
	let path = unsafe { CStr::from_ptr(noted.name) }.to_bytes();
	let rest = path.get(noted.part..).unwrap_or_default();
	let next = rest.split(|b| *b == b'/').next().unwrap_or_default();
	// Of a module the ending is missing.
	let last = next.len() == rest.len() && noted.kind == Kind::Module;
	name.strip_prefix(next).is_some_and(|rest| rest.is_empty() || last && rest.first() == Some(&b'.'))
}
