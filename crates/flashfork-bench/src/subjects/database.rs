//! The database of the SQLite experiments: four tables with integer and text columns, foreign keys and indexes.
//!
//! The rows are drawn from a fixed seed, so that every process of every run has the same database. It is built with
//! ordinary INSERTs, once, into an image file; the processes that need it copy the image into memory with SQLite's
//! backup API, which is about four times faster than the INSERTs.

mod checksum;
mod fill;
mod random;

use std::io;

use rusqlite::{Connection, OpenFlags, backup::Backup};

use crate::prelude::*;
use fill::Rows;
use flashfork_terminal::size;

/// Of the schema and the rows. Part of the image's name, so that an image of another version is not taken.
const VERSION: u32 = 1;

/// A database image on disk.
pub struct Image {
	/// Where it is.
	pub path: PathBuf,
	/// Its size in bytes.
	pub bytes: u64,
	/// How long building took; `None` when it was there already.
	pub built_in: Option<Duration>,
}

impl Image {
	/// The image of a database of about `size` bytes: from the directory `keep_in`, or built in `scratch` and then
	/// moved there. Both must be on the same file system.
	pub fn obtain(size: u64, keep_in: &Path, scratch: &Path) -> Result<Self> {
		let name = format!("sample-{VERSION}-{}-sqlite-{}.db", size::Size(size), rusqlite::version());
		let path = keep_in.join(&name);
		let mut built_in = None;
		if !is_whole(&path) {
			let begin = Instant::now();
			let made = scratch.join(name + ".part");
			build(&made, size)?;
			std::fs::rename(made, &path).or_cant(format_args!("make {}", path.display()))?;
			built_in = Some(begin.elapsed());
		}
		let meta = std::fs::metadata(&path).or_cant(format_args!("read {}", path.display()))?;
		Ok(Self { path, bytes: meta.len(), built_in })
	}
}

/// Opens the image at `path` for reading, as a file.
pub fn open(path: &Path) -> Result<Connection> {
	Connection::open_with_flags(path, OpenFlags::SQLITE_OPEN_READ_ONLY)
		.map_err(|error| failed(format!("open the database {}", path.display()), error))
}

/// Copies the image at `path` into a new database in memory. Foreign keys are enforced there.
pub fn load(path: &Path) -> Result<Connection> {
	let copy = || {
		let file = Connection::open_with_flags(path, OpenFlags::SQLITE_OPEN_READ_ONLY)?;
		let mut memory = Connection::open_in_memory()?;
		Backup::new(&file, &mut memory)?.step(-1)?;
		memory.execute_batch("PRAGMA foreign_keys = ON")?;
		Ok(memory)
	};
	copy().map_err(|error| failed(format!("load the database {}", path.display()), error))
}

/// One number for everything in the database, tables and indexes; the same in all processes of this program.
pub fn checksum(db: &Connection) -> Result<u64> {
	checksum::checksum(db).map_err(|error| failed("read the whole database", error))
}

/// The names of all tables and columns, for a fuzzer's dictionary.
pub fn names(db: &Connection) -> Result<Vec<String>> {
	let list = || -> rusqlite::Result<Vec<String>> {
		db.prepare(
			"SELECT name FROM sqlite_schema WHERE type IN ('table', 'index')
             UNION SELECT column.name FROM sqlite_schema AS tbl, pragma_table_info(tbl.name) AS column WHERE tbl.type = 'table'
             ORDER BY 1",
		)?
		.query_map([], |row| row.get(0))?
		.collect()
	};
	list().map_err(|error| failed("list the names in the database", error))
}

/// An SQLite error as this crate's.
pub fn failed(what: impl Into<String>, error: rusqlite::Error) -> BenchError {
	BenchError::system(what, io::Error::other(error))
}

/// Whether there is an image that was finished and hasn't been cut short since.
fn is_whole(path: &Path) -> bool {
	let pages = || -> rusqlite::Result<(u32, u64)> {
		let db = Connection::open_with_flags(path, OpenFlags::SQLITE_OPEN_READ_ONLY)?;
		let version = db.query_row("PRAGMA user_version", [], |row| row.get(0))?;
		let bytes =
			db.query_row("SELECT page_count * page_size FROM pragma_page_count, pragma_page_size", [], |row| {
				row.get(0)
			})?;
		Ok((version, bytes))
	};
	match (pages(), std::fs::metadata(path)) {
		(Ok((version, bytes)), Ok(meta)) => version == VERSION && bytes == meta.len(),
		_ => false,
	}
}

fn build(path: &Path, size: u64) -> Result {
	let fill = || {
		let db = Connection::open(path)?;
		// Nobody looks at the file before it is whole.
		db.execute_batch(
			"PRAGMA journal_mode = OFF; PRAGMA synchronous = OFF; PRAGMA locking_mode = EXCLUSIVE;
             PRAGMA temp_store = MEMORY; PRAGMA cache_size = -65536",
		)?;
		fill::fill(&db, Rows::for_size(size))?;
		db.execute_batch(&format!("PRAGMA user_version = {VERSION}"))?;
		db.close().map_err(|(_, error)| error)
	};
	fill().map_err(|error| failed(format!("build the database {}", path.display()), error))
}

/// A database in memory, for tests.
#[cfg(test)]
pub fn in_memory(size: u64) -> Connection {
	let dir = tempfile::tempdir().unwrap();
	load(&Image::obtain(size, dir.path(), dir.path()).unwrap().path).unwrap()
}

#[cfg(test)]
mod tests {
	use super::*;

	const SMALL: u64 = 4 << 20;

	#[test]
	fn the_database_has_the_size_asked_for() {
		let dir = tempfile::tempdir().unwrap();
		for size in [SMALL, 16 << 20] {
			let image = Image::obtain(size, dir.path(), dir.path()).unwrap();
			let ratio = image.bytes as f64 / size as f64;
			assert!((0.95..=1.05).contains(&ratio), "{} for {size}", image.bytes);
		}
	}

	#[test]
	fn foreign_keys_hold_and_are_enforced() {
		let db = in_memory(SMALL);
		let broken: i64 = db.query_row("SELECT count(*) FROM pragma_foreign_key_check", [], |row| row.get(0)).unwrap();
		assert_eq!(broken, 0);
		let sound: String = db.query_row("PRAGMA integrity_check", [], |row| row.get(0)).unwrap();
		assert_eq!(sound, "ok");
		assert!(db.execute("INSERT INTO item VALUES (NULL, 0, 1, 1, 1, '')", []).is_err());
	}

	#[test]
	fn the_same_size_gives_the_same_rows_and_a_change_shows() {
		let db = in_memory(SMALL);
		assert_eq!(checksum(&db).unwrap(), checksum(&in_memory(SMALL)).unwrap());
		for change in [
			"UPDATE item SET quantity = quantity + 1 WHERE id = 77",
			"DELETE FROM purchase WHERE id = 100",
			"INSERT INTO customer VALUES (NULL, 'x', 'Oslo', 0)",
		] {
			let before = checksum(&db).unwrap();
			db.execute(change, []).unwrap();
			assert_ne!(checksum(&db).unwrap(), before, "{change}");
		}
	}

	#[test]
	fn an_image_is_kept_and_taken_again_unless_it_was_cut() {
		let (keep, scratch) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
		let obtain = || Image::obtain(SMALL, keep.path(), scratch.path()).unwrap();
		let first = obtain();
		assert!(first.built_in.is_some());
		assert!(obtain().built_in.is_none());
		let file = std::fs::File::options().write(true).open(&first.path).unwrap();
		file.set_len(first.bytes - 4096).unwrap();
		let again = obtain();
		assert!(again.built_in.is_some() && again.bytes == first.bytes);
		let files = |dir: &Path| std::fs::read_dir(dir).unwrap().count();
		assert_eq!((files(keep.path()), files(scratch.path())), (1, 0));
	}

	#[test]
	fn names_are_those_of_tables_indexes_and_columns() {
		let names = names(&in_memory(SMALL)).unwrap();
		for name in ["customer", "item", "item_product", "placed", "remark"] {
			assert!(names.iter().any(|known| known == name), "{name} is missing in {names:?}");
		}
	}
}
