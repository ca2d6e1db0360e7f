//! What is fuzzed: where its source lies, how it is compiled, and what AFL begins with.

use std::{fs, io};

use super::super::corpus;
use crate::prelude::*;

/// A library that is fuzzed.
#[derive(Clone, Copy, PartialEq, Eq, Hash, clap::ValueEnum, strum::AsRefStr)]
#[strum(serialize_all = "lowercase")]
pub enum Target {
	/// Images.
	Libpng,
	/// Documents.
	Libxml2,
	/// Statements on a small database in memory.
	Sqlite,
	/// A JSON parser.
	Cjson,
}

/// Files of this repository that a target's program is made of.
const MAIN: &str = include_str!("../../../../fuzz-target/targets/main.c");
const SCHEMA: &str = include_str!("../../../subjects/database/schema.sql");

/// Seeds that no packaged source has: the rest of them comes with the sources.
const DOCUMENTS: [(&str, &str); 3] = [
	("dtd", include_str!("../../../../fuzz-target/targets/seeds/dtd.xml")),
	("page", include_str!("../../../../fuzz-target/targets/seeds/page.xml")),
	("plain", include_str!("../../../../fuzz-target/targets/seeds/plain.xml")),
];

impl Target {
	/// Debian's source package; SQLite's source is in this program.
	pub fn package(self) -> Option<&'static str> {
		match self {
			Target::Libpng => Some("libpng1.6"),
			Target::Libxml2 => Some("libxml2"),
			Target::Sqlite => None,
			Target::Cjson => Some("cjson"),
		}
	}

	/// The harness: what is the same for all, and its own part.
	pub fn harness(self) -> [(&'static str, String); 2] {
		let own = match self {
			Target::Libpng => include_str!("../../../../fuzz-target/targets/libpng.c"),
			Target::Libxml2 => include_str!("../../../../fuzz-target/targets/libxml2.c"),
			Target::Sqlite => include_str!("../../../../fuzz-target/targets/sqlite.c"),
			Target::Cjson => include_str!("../../../../fuzz-target/targets/cjson.c"),
		};
		[("main.c", MAIN.to_owned()), ("target.c", own.to_owned())]
	}

	/// The shell's commands that compile the library, in the directory of its source, and the harness's own part, into
	/// `target.o` and `library.a`. The compiler is in `CC`.
	pub fn commands(self) -> &'static str {
		match self {
			Target::Libpng => {
				"cp scripts/pnglibconf.h.prebuilt pnglibconf.h
                 for file in png*.c; do
                     [ $file = pngtest.c ] || $CC -O2 -w -DPNG_INTEL_SSE_OPT=0 -c $file
                 done
                 $CC -O2 -w -I. -c target.c && ar rcs library.a png*.o"
			}
			// Without what it would link, and without threads.
			Target::Libxml2 => {
				"CFLAGS='-O2 -w' ./configure --disable-shared --without-{c14n,debug,ftp,http,iconv,icu,lzma,modules,python,threads,zlib} >configure.log 2>&1
                 make libxml2.la >make.log
                 $CC -O2 -w -Iinclude -c target.c && cp .libs/libxml2.a library.a"
			}
			Target::Sqlite => {
				"$CC -O2 -w -DSQLITE_THREADSAFE=0 -DSQLITE_OMIT_LOAD_EXTENSION -DSQLITE_TEMP_STORE=3 -c target.c
                 ar rcs library.a"
			}
			Target::Cjson => "$CC -O2 -w -c cJSON.c && $CC -O2 -w -I. -c target.c && ar rcs library.a cJSON.o",
		}
	}

	/// What is linked besides.
	pub fn libraries(self) -> &'static [&'static str] {
		match self {
			Target::Libpng => &["-lz", "-lm"],
			Target::Libxml2 | Target::Sqlite | Target::Cjson => &["-lm"],
		}
	}

	/// Writes what AFL begins with into the new directory `dir`.
	pub fn write_seeds(self, source: &Path, dir: &Path) -> Result {
		let packaged = |folder: &str, take: fn(&Path) -> bool| copy(&source.join(folder), dir, take);
		let written = match self {
			Target::Sqlite => return corpus::write_seeds(dir),
			Target::Libpng => packaged("contrib/pngsuite", |path| path.extension().is_some_and(|end| end == "png")),
			Target::Cjson => packaged("fuzzing/inputs", |path| path.extension().is_none()),
			Target::Libxml2 => fs::create_dir_all(dir)
				.and_then(|()| DOCUMENTS.iter().try_for_each(|(name, text)| fs::write(dir.join(name), text))),
		};
		written.or_cant(format_args!("write seeds for {}", self.as_ref()))
	}
}

/// SQLite's tables as a string of C.
pub fn schema() -> String {
	SCHEMA.lines().map(|line| format!("{line:?}\n")).collect()
}

/// Copies small files: AFL takes long for large ones.
fn copy(from: &Path, to: &Path, take: fn(&Path) -> bool) -> io::Result<()> {
	const SMALL: u64 = 4096;
	fs::create_dir_all(to)?;
	let paths: Vec<PathBuf> = fs::read_dir(from)?.map(|entry| Ok(entry?.path())).collect::<io::Result<_>>()?;
	for path in paths.iter().filter(|path| take(path)) {
		if let Some(name) = path.file_name()
			&& path.metadata()?.len() <= SMALL
		{
			fs::copy(path, to.join(name))?;
		}
	}
	Ok(())
}
