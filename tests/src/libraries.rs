//! Libraries whose data is sealed: enough of them, each from its own file.

use crate::{Result, content::PAGE};
use std::{
	ffi::CString,
	os::unix::ffi::OsStrExt,
	path::{Path, PathBuf},
	process::Command,
};

/// How many there are.
pub const COUNT: usize = 20;
/// Pages of data that each has.
pub const PAGES: usize = 4;
/// What every word of it is in the file; when it is loaded each is another.
pub const IN_FILE: u64 = 1;

fn file(dir: &Path, i: usize) -> PathBuf {
	dir.join(format!("library{i}.so"))
}

/// Compiles them into a directory.
pub fn build(dir: &Path) -> Result {
	let source = dir.join("library.c");
	std::fs::write(&source, include_str!("libraries/library.c")).map_err(|e| format!("{}: {e}", source.display()))?;
	for i in 0..COUNT {
		let mut compile = Command::new(std::env::var_os("CC").unwrap_or_else(|| "cc".into()));
		compile.args(["-Wall", "-Wextra", "-O1", "-shared", "-fPIC", "-o"]).arg(file(dir, i)).arg(&source);
		let output = compile.output().map_err(|e| format!("the C compiler doesn't run: {e}"))?;
		if !output.status.success() {
			return Err(format!("the C compiler says:\n{}", String::from_utf8_lossy(&output.stderr)));
		}
	}
	Ok(())
}

/// Loads them from there; gives the addresses of their data, [`PAGES`] each.
pub fn load(dir: &Path) -> Result<Vec<usize>> {
	let data = |i| {
		let path = CString::new(file(dir, i).as_os_str().as_bytes()).map_err(|e| e.to_string())?;
		// SAFETY: a library made for this, whose constructor does what it says.
		let at = unsafe {
			let handle = libc::dlopen(path.as_ptr(), libc::RTLD_NOW);
			if handle.is_null() {
				return Err(format!("{} can't be loaded", file(dir, i).display()));
			}
			libc::dlsym(handle, c"data".as_ptr()) as usize
		};
		if at == 0 || !at.is_multiple_of(PAGE) { Err("a library without data".into()) } else { Ok(at) }
	};
	(0..COUNT).map(data).collect()
}
