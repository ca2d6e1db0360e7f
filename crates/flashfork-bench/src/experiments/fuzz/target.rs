//! The fuzzed program: SQLite and a small harness, compiled once by AFL's compiler.

use std::{
	fs::{self, File},
	hash::{DefaultHasher, Hash, Hasher},
	io::{self, BufWriter},
};

use flate2::read::GzDecoder;

use crate::{prelude::*, subjects::command};
use flashfork_measure::error::is_missing;

/// The harness, and the source of the SQLite linked into this program.
const HARNESS: &str = include_str!("../../../fuzz-target/harness.c");
pub const SQLITE: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/sqlite3.c.gz"));

pub const COMPILER: &str = "afl-clang-fast";
/// One thread, no files; what else SQLite can do stays in, for there to be something to find.
const FLAGS: [&str; 7] = [
	"-O2",
	"-w",
	"-DSQLITE_THREADSAFE=0",
	"-DSQLITE_OMIT_LOAD_EXTENSION",
	"-DSQLITE_TEMP_STORE=3",
	"-DSQLITE_ENABLE_RTREE",
	"-DSQLITE_ENABLE_FTS5",
];

const INSTALL: &str = "AFL++ is not installed, which bench fuzz needs; install Debian's package afl++ (apt-get install afl++); \
					   the other experiments work without it";

/// The compiled fuzz target: from the directory `keep_in`, or compiled in `scratch` and then moved there. Both must be
/// on the same file system. Takes about a minute of one CPU.
pub fn obtain(keep_in: &Path, scratch: &Path, run: &mut Run) -> Result<PathBuf> {
	let compiler = compiler_version()?;
	let path = keep_in.join(format!("fuzz-target-{:016x}", fingerprint(&compiler)));
	if path.exists() {
		return Ok(path);
	}
	run.begin("compiling SQLite with AFL's instrumentation, about a minute", 1);
	let doing = format!("make the fuzz target {}", path.display());
	let dir = scratch.join("fuzz-target");
	fs::create_dir_all(&dir).or_cant(&doing)?;
	let made = compile(&dir)?;
	fs::rename(made, &path).or_cant(&doing)?;
	run.step();
	Ok(path)
}

/// Also finds out whether AFL++ is there at all.
pub fn compiler_version() -> Result<String> {
	let output = Command::new(COMPILER).arg("--version").stdin(Stdio::null()).output();
	let output = output.map_err(|error| match is_missing(&error) {
		true => BenchError::Unable(INSTALL.into()),
		false => BenchError::system(format!("run {COMPILER}"), error),
	})?;
	Ok(String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned())
}

fn fingerprint(compiler: &str) -> u64 {
	let mut hasher = DefaultHasher::new();
	(HARNESS, SQLITE, FLAGS, compiler).hash(&mut hasher);
	hasher.finish()
}

fn compile(dir: &Path) -> Result<PathBuf> {
	let failed = |error: io::Error| BenchError::system("unpack the source of the fuzz target", error);
	fs::write(dir.join("harness.c"), HARNESS).map_err(failed)?;
	let mut sqlite = BufWriter::new(File::create(dir.join("sqlite3.c")).map_err(failed)?);
	io::copy(&mut GzDecoder::new(SQLITE), &mut sqlite).map_err(failed)?;
	sqlite.into_inner().map_err(|error| failed(error.into_error()))?;
	let mut compiler = Command::new(COMPILER);
	command::compile(compiler.args(FLAGS).args(["-o", "harness", "harness.c", "-lm"]).current_dir(dir))?;
	Ok(dir.join("harness"))
}

#[cfg(test)]
mod tests {
	use super::*;
	use std::io::Read;

	#[test]
	fn the_packed_source_is_that_of_the_linked_sqlite() {
		let mut source = String::new();
		GzDecoder::new(SQLITE).read_to_string(&mut source).unwrap();
		let version = format!("#define SQLITE_VERSION        \"{}\"", rusqlite::version());
		assert!(source.contains(&version), "{version} is not in the packed source");
	}

	#[test]
	fn another_compiler_makes_another_target() {
		assert_eq!(fingerprint("afl-cc++4.04c"), fingerprint("afl-cc++4.04c"));
		assert_ne!(fingerprint("afl-cc++4.04c"), fingerprint("afl-cc++4.21c"));
	}
}
