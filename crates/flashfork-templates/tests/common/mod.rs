//! Its own directory of names, with the shim.
#![allow(dead_code, unused_imports)] // each test program uses a part

mod process;
pub use process::{kill, state, until};

use flashfork_templates::{Clone, Directory, Name, Run, State, Template, Warm};
use std::{
	fs::File,
	io::Read,
	os::fd::AsFd,
	path::{Path, PathBuf},
	process::Command,
	sync::Once,
};

pub struct Place {
	pub home: tempfile::TempDir,
	pub names: Directory,
}

impl Place {
	pub fn new() -> Place {
		static BUILT: Once = Once::new();
		BUILT.call_once(|| {
			let mut build = Command::new(env!("CARGO"));
			build.args(["build", "--locked", "--quiet", "-p", "flashfork-preload", "--target-dir"]).arg(target());
			assert!(build.status().unwrap().success());
		});
		let home = tempfile::tempdir().unwrap();
		let names = Directory::open(Directory::place(Some(home.path()))).unwrap();
		Place { home, names }
	}

	pub fn path(&self) -> &Path {
		self.home.path()
	}

	pub fn shell(&self, name: &str) -> Template<'_> {
		self.warm(name, "sh").start().unwrap().wait().unwrap();
		Template::find(&self.names, self::name(name)).unwrap()
	}

	/// In this process's environment.
	pub fn warm(&self, name: &str, program: impl AsRef<std::ffi::OsStr>) -> Warm<'_> {
		Template::warm(&self.names, self::name(name), program, shim()).envs(std::env::vars_os())
	}

	pub fn program(&self, name: &str, source: &str) -> PathBuf {
		let (text, program) = (self.path().join(format!("{name}.c")), self.path().join(name));
		std::fs::write(&text, source).unwrap();
		assert!(Command::new("cc").arg("-o").arg(&program).arg(&text).status().unwrap().success());
		program
	}
}

impl Drop for Place {
	fn drop(&mut self) {
		for template in self.names.templates().unwrap() {
			if !matches!(template.state, State::Waiting(_)) {
				kill(template.pid.unwrap(), libc::SIGKILL);
			}
			Template::named(&self.names, template.name).remove().unwrap();
		}
	}
}

pub fn target() -> &'static Path {
	Path::new(env!("CARGO_TARGET_TMPDIR")).parent().unwrap()
}

pub fn shim() -> PathBuf {
	target().join("debug/libflashfork_preload.so")
}

pub fn name(text: &str) -> Name {
	text.parse().unwrap()
}

/// Starts a clone whose output comes here.
pub fn piped(run: Run<'_>) -> (Clone, File) {
	let (read, write) = std::io::pipe().unwrap();
	let null = File::open("/dev/null").unwrap();
	// With no copy of it here, the pipe ends with the clone.
	let clone = run.streams([Some(null.as_fd()), Some(write.as_fd()), Some(write.as_fd())]).start().unwrap();
	(clone, File::from(std::os::fd::OwnedFd::from(read)))
}

pub fn printed(run: Run<'_>) -> String {
	let (clone, mut output) = piped(run);
	let mut text = String::new();
	output.read_to_string(&mut text).unwrap();
	clone.wait().unwrap();
	text
}

pub fn first_line(output: &mut File) -> String {
	let (mut line, mut byte) = (String::new(), [0]);
	while output.read(&mut byte).unwrap() == 1 && byte[0] != b'\n' {
		line.push(char::from(byte[0]));
	}
	line
}
