//! The programs of a target: its library compiled once with AFL's instrumentation, and linked for each way.

use std::{
	fs,
	hash::{DefaultHasher, Hash, Hasher},
	io,
};

use super::{
	super::target::{COMPILER, compiler_version},
	found::Build,
	way::Way,
};
use crate::{prelude::*, subjects::command::compile};

/// What makes a loop go back.
const HEADER: &str = include_str!("../../../../../flashfork-afl/include/flashfork_afl_loop.h");
const LIBRARY: &str = "libflashfork_afl.a";

/// What compiles programs, and where they are kept.
pub struct Builder {
	cache: PathBuf,
	library: PathBuf,
	compiler: String,
}

/// The programs of one build of a target.
pub struct Built(PathBuf);

impl Built {
	/// The program for a way to fuzz.
	pub fn program(&self, way: Way) -> PathBuf {
		self.0.join(match way {
			Way::ForkServer | Way::Shim => "once",
			Way::Rollback => "rollback",
			Way::Persistent => "persistent",
		})
	}
}

impl Builder {
	/// Finds the compiler, and the library where it lies beside the shim, as cargo builds them or `make install` puts
	/// them.
	pub fn new(cache: &Path, shim: &Path) -> Result<Self> {
		let compiler = compiler_version()?;
		let beside = shim.ancestors().skip(1).take(2).map(|dir| dir.join(LIBRARY)).find(|path| path.exists());
		let library =
			beside.ok_or_else(|| unable!("there is no {LIBRARY} near {}; make build makes it", shim.display()))?;
		// Where it is compiled is another directory.
		let library = library.canonicalize().or_cant("find the library")?;
		Ok(Self { cache: cache.to_path_buf(), library, compiler })
	}

	/// The programs of a build: kept ones, or new ones, compiled in `scratch`, which lies on the same file system.
	pub fn build(&self, build: Build, source: &Path, scratch: &Path, run: &mut Run) -> Result<Built> {
		let doing = format!("build {}", build.name());
		let kept = self.cache.join(format!("fuzz-{}-{:016x}", build.name(), self.fingerprint(build).or_cant(&doing)?));
		if !kept.exists() {
			run.begin(&format!("compiling {} with AFL's instrumentation", build.name()), 1);
			let dir = scratch.join(build.name());
			self.compile(build, source, &dir)?;
			let programs = dir.join("programs");
			self.remove_older(build).or_cant(&doing)?;
			fs::rename(&programs, &kept).or_cant(&doing)?;
			fs::remove_dir_all(&dir).or_cant(&doing)?;
			run.step();
		}
		Ok(Built(kept))
	}

	/// Removes what was built of this before: a later library, or compiler, makes other programs.
	fn remove_older(&self, build: Build) -> io::Result<()> {
		let before = format!("fuzz-{}-", build.name());
		for entry in fs::read_dir(&self.cache)? {
			let path = entry?.path();
			// Behind the name there is a number only: the other build's name goes on.
			let number = path.file_name().and_then(|name| name.to_str()?.strip_prefix(&before));
			if number.is_some_and(|number| !number.contains('-')) {
				fs::remove_dir_all(&path)?;
			}
		}
		Ok(())
	}

	/// What the programs depend on.
	fn fingerprint(&self, build: Build) -> io::Result<u64> {
		let mut hasher = DefaultHasher::new();
		(build.target.harness(), build.target.commands(), HEADER, &self.compiler).hash(&mut hasher);
		fs::read(&self.library)?.hash(&mut hasher);
		Ok(hasher.finish())
	}

	fn compile(&self, build: Build, source: &Path, dir: &Path) -> Result {
		let doing = format!("build {}", build.name());
		// With their times, by which make knows what is made already.
		compile(Command::new("cp").arg("-a").arg(source).arg(dir))?;
		for (name, text) in build.target.harness() {
			fs::write(dir.join(name), text).or_cant(&doing)?;
		}
		fs::write(dir.join("flashfork_afl_loop.h"), HEADER).or_cant(&doing)?;
		fs::create_dir(dir.join("programs")).or_cant(&doing)?;
		self.shell(build, build.target.commands(), dir)?;
		let libraries = build.target.libraries().join(" ");
		let library = self.library.display();
		for (name, options, more) in [
			("once", "", String::new()),
			("persistent", "-DLOOP", String::new()),
			("rollback", "-DLOOP -include flashfork_afl_loop.h", format!("'{library}'")),
		] {
			let command = format!("$CC -O2 {options} main.c target.o library.a {more} {libraries} -o programs/{name}");
			self.shell(build, &command, dir)?;
		}
		Ok(())
	}

	fn shell(&self, build: Build, commands: &str, dir: &Path) -> Result {
		let mut bash = Command::new("bash");
		bash.args(["-euc", commands]).current_dir(dir).env("CC", COMPILER).env("AFL_QUIET", "1");
		// configure finds out nothing else than without the sanitizer, whose leaks would look like failures.
		bash.env("ASAN_OPTIONS", "detect_leaks=0");
		if build.sanitized {
			bash.env("AFL_USE_ASAN", "1");
		}
		compile(&mut bash).map_err(|error| match build.sanitized {
			true => unable!("{error} (AddressSanitizer needs Debian's package libclang-rt-dev)"),
			false => error,
		})
	}
}
