//! Where in this process code makes system calls for others.

use super::{
	object::{Object, Reader},
	stub,
};
use crate::{
	proc::vma::{self, Kind, Vma},
	range::Range,
	sys::{self, Errno, PAGE, PROT_EXEC, PROT_READ, Result},
};
use core::sync::atomic::{AtomicUsize, Ordering::SeqCst};

/// Where a statically linked program's `syscall` is; 0: not known.
static LINKED: AtomicUsize = AtomicUsize::new(0);

/// Tells the address of the C library's `syscall` function, as the caller was linked with it. Needed where the C
/// library is part of the program: there are no symbols to find it by.
pub fn know_libc(syscall: usize) {
	LINKED.store(syscall, SeqCst);
}

/// Most C libraries and loaders of one process that are rewritten: one each, and those of namespaces of their own
/// (`dlmopen(3)`).
const MAX_LIBRARIES: usize = 16;
/// Most pages of stubs known again.
const MAX_PAGES: usize = 2 * MAX_LIBRARIES;

/// A piece of code that makes system calls for others.
#[derive(Clone, Copy)]
pub struct Library {
	pub code: Range,
	/// Where its file begins in memory.
	pub base: usize,
	pub kind: Part,
}

impl Library {
	/// Its function `syscall`.
	pub fn by_number(&self, reader: &Reader) -> Option<usize> {
		match self.kind {
			Part::Loader | Part::Runtime => None,
			Part::Static => Some(LINKED.load(SeqCst)),
			Part::Libc => Object::at(reader, self.base)?.function(c"syscall"),
		}
	}
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Part {
	Libc,
	/// The loader; or the library for threads that glibc had before 2.34.
	Loader,
	/// The program, with a C library in it.
	Static,
	/// The runtime of a sanitizer, which makes its system calls itself; it may be part of the program.
	Runtime,
}

impl Part {
	/// Which of them an object of its own is.
	pub fn of(object: &Object) -> Option<Part> {
		let has = |name| object.function(name).is_some();
		match () {
			() if has(c"__libc_start_main") && has(c"madvise") => Some(Part::Libc),
			// Before the loader, whose function it intercepts.
			() if has(c"__sanitizer_print_stack_trace") || has(c"__sanitizer_set_death_callback") => {
				Some(Part::Runtime)
			}
			() if has(c"__tls_get_addr") || has(c"__pthread_initialize_minimal") => Some(Part::Loader),
			() => None,
		}
	}
}

/// What is executable in this process, as far as it matters here.
pub struct Found {
	pub libraries: [Library; MAX_LIBRARIES],
	pub library_count: usize,
	/// Pages of stubs, by this copy of the engine or another.
	pub pages: [usize; MAX_PAGES],
	pub page_count: usize,
	/// Mappings of nothing but such pages.
	pub stubs: [Range; MAX_PAGES],
	pub stub_count: usize,
	pub reader: Reader,
}

impl Default for Found {
	fn default() -> Found {
		let none = Library { code: Range::default(), base: 0, kind: Part::Libc };
		Found {
			libraries: [none; MAX_LIBRARIES],
			library_count: 0,
			pages: [0; MAX_PAGES],
			page_count: 0,
			stubs: [Range::default(); MAX_PAGES],
			stub_count: 0,
			reader: Reader::default(),
		}
	}
}

impl Found {
	/// Looks. `own`: an address in this copy of the engine.
	pub fn look(&mut self, own: usize, buf: &mut [u8]) -> Result<()> {
		let (mut file, mut own_code) = (None::<Vma>, None);
		vma::for_each(c"/proc/thread-self/maps", buf, |v| {
			if v.kind == Kind::File && v.inode != 0 && v.offset == 0 {
				file = Some(*v);
			}
			if v.prot & (PROT_READ | PROT_EXEC) != PROT_READ | PROT_EXEC || v.kind == Kind::Kernel {
				return Ok(());
			}
			if v.kind != Kind::File {
				return self.look_for_stubs(v);
			}
			let base = file.filter(|f| (f.inode, f.device) == (v.inode, v.device) && f.prot & PROT_READ != 0);
			if v.range.start <= own && own < v.range.end {
				own_code = Some(Library { code: v.range, base: 0, kind: Part::Static });
				return Ok(());
			}
			match base {
				Some(base) => self.look_at(base.range.start, v),
				None => Ok(()),
			}
		})?;
		if self.libraries().iter().all(|l| l.kind != Part::Libc) {
			// Where the C library isn't an object of its own it is part of the program, as this code is.
			let linked = LINKED.load(SeqCst);
			let program = own_code.filter(|l| l.code.start <= linked && linked < l.code.end).ok_or(Errno::ENOSYS)?;
			self.push(program)?;
		}
		Ok(())
	}

	fn look_for_stubs(&mut self, v: &Vma) -> Result<()> {
		// The kernel makes one mapping of pages that touch.
		if v.range.len() > MAX_PAGES * PAGE {
			return Ok(());
		}
		let mut found = 0;
		for at in (v.range.start..v.range.end).step_by(PAGE) {
			let mut head = [0; stub::HEAD];
			match sys::read_own(at, &mut head) {
				// A page of the program's own that is a guard, or has nothing behind it.
				Err(Errno::EFAULT) => continue,
				other => other?,
			}
			if stub::is_page(&head) {
				*self.pages.get_mut(self.page_count).ok_or(Errno::E2BIG)? = at;
				self.page_count += 1;
				found += 1;
			}
		}
		if found * PAGE == v.range.len() {
			*self.stubs.get_mut(self.stub_count).ok_or(Errno::E2BIG)? = v.range;
			self.stub_count += 1;
		}
		Ok(())
	}

	/// Looks at a mapping of code, of the file mapped from its start at `base`.
	fn look_at(&mut self, base: usize, v: &Vma) -> Result<()> {
		if let Some(last) = self.libraries[..self.library_count].last_mut()
			&& last.base == base
			&& last.code.end == v.range.start
		{
			last.code.end = v.range.end;
			return Ok(());
		}
		let Some(object) = Object::at(&self.reader, base) else { return Ok(()) };
		let Some(kind) = Part::of(&object) else { return Ok(()) };
		self.push(Library { code: v.range, base, kind })
	}

	fn push(&mut self, library: Library) -> Result<()> {
		*self.libraries.get_mut(self.library_count).ok_or(Errno::E2BIG)? = library;
		self.library_count += 1;
		Ok(())
	}

	/// The C libraries, and what is like them.
	pub fn libraries(&self) -> &[Library] {
		&self.libraries[..self.library_count]
	}

	/// Mappings of nothing but the pages of stubs.
	pub fn stubs(&self) -> &[Range] {
		&self.stubs[..self.stub_count]
	}

	/// The page of stubs that holds an address.
	pub fn page_of(&self, at: usize) -> Option<&'static [u8; PAGE]> {
		let page = self.pages[..self.page_count].iter().find(|page| **page == at & !(PAGE - 1))?;
		// SAFETY: mapped by an engine, which never unmaps or changes it.
		Some(unsafe { &*(*page as *const [u8; PAGE]) })
	}
}

/// The bytes of a piece of code.
///
/// # Safety
/// It is mapped and readable, and nobody writes to it while the slice is used.
pub unsafe fn code_of<'a>(range: Range) -> &'a [u8] {
	// SAFETY: as the caller says.
	unsafe { core::slice::from_raw_parts(range.start as *const u8, range.len()) }
}
