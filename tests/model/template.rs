//! Files with known contents, mapped and read by the tests.

use crate::{
	content::{HEADER, PAGE, Tag, WORDS, fill},
	world::memory::bytes,
};
use flashfork_tests::header::DATA_PAGES;
use std::{
	fs::File,
	io::{ErrorKind, Write},
	os::fd::{AsRawFd, FromRawFd},
	path::Path,
};

/// Pages in the file (4 MB).
pub const TEMPLATE_PAGES: usize = 1024;

pub struct Template(File);

/// A library's file, its header before its data. It has a name: else what is mapped of it would not be sealed.
pub struct Library(File);

/// Tags of its data begin here: no page that a program writes has one, nor one of the template's.
const LIBRARY: Tag = 1 << 20;

impl Library {
	/// The file of that name, made where there is none.
	pub fn open(path: &Path) -> std::io::Result<Library> {
		let made = File::options().read(true).write(true).create_new(true).open(path);
		let mut file = match made {
			Err(e) if e.kind() == ErrorKind::AlreadyExists => return File::open(path).map(Library),
			other => other?,
		};
		let mut words = [0; WORDS];
		for page in 0..=DATA_PAGES {
			fill(&mut words, 0, Library::tag(page));
			file.write_all(bytes(&words))?;
		}
		Ok(Library(file))
	}

	pub fn fd(&self) -> i32 {
		self.0.as_raw_fd()
	}

	pub fn tag(page: usize) -> Tag {
		if page == 0 { HEADER } else { LIBRARY + page as Tag }
	}

	pub fn is_data(file: Tag) -> bool {
		(LIBRARY..=LIBRARY + DATA_PAGES as Tag).contains(&file)
	}
}

impl Template {
	pub fn new() -> std::io::Result<Template> {
		// SAFETY: a plain call with a constant name.
		let fd = unsafe { libc::memfd_create(c"template".as_ptr(), libc::MFD_CLOEXEC) };
		if fd < 0 {
			return Err(std::io::Error::last_os_error());
		}
		// SAFETY: the descriptor was just made and is nobody else's.
		let mut file = unsafe { File::from_raw_fd(fd) };
		write(&mut file)?;
		Ok(Template(file))
	}

	pub fn fd(&self) -> i32 {
		self.0.as_raw_fd()
	}

	pub fn offset(page: usize) -> i64 {
		(page * PAGE) as i64
	}
}

/// Writes the template's contents to a file, or to a disk.
pub fn write(file: &mut File) -> std::io::Result<()> {
	let mut words = [0; WORDS];
	for page in 0..TEMPLATE_PAGES {
		fill(&mut words, 0, tag(page));
		file.write_all(bytes(&words))?;
	}
	Ok(())
}

pub fn tag(page: usize) -> Tag {
	1 + page as Tag
}
