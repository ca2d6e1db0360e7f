//! Packs the SQLite source that the fuzzed program is compiled from, so that an installed binary brings its own.

use std::{
	env,
	fs::File,
	io::{self, BufReader},
	path::PathBuf,
};

use flate2::{Compression, write::GzEncoder};

fn main() -> io::Result<()> {
	// Set by libsqlite3-sys with feature "bundled": where the source of the SQLite linked into this crate lies.
	let variable =
		|name| env::var_os(name).map(PathBuf::from).ok_or_else(|| io::Error::other(format!("{name} is not set")));
	let source = variable("DEP_SQLITE3_INCLUDE")?.join("sqlite3.c");
	println!("cargo::rerun-if-changed={}", source.display());
	println!("cargo::rerun-if-changed=build.rs");
	let packed = File::create(variable("OUT_DIR")?.join("sqlite3.c.gz"))?;
	// Level 4: build scripts are not optimised, and better ones take three times as long for a twentieth less.
	let mut packer = GzEncoder::new(packed, Compression::new(4));
	io::copy(&mut BufReader::new(File::open(source)?), &mut packer)?;
	packer.finish()?;
	Ok(())
}
