//! The database of the SQLite experiments: four tables with integer and text columns, foreign keys and indexes.
//!
//! The rows are drawn from a fixed seed, so that every process of every run has the same database. It is built with ordinary
//! INSERTs, once, into an image file; the processes that need it copy the image into memory with SQLite's backup API, which
//! is about four times faster than the INSERTs.

mod checksum;
mod fill;
mod random;

use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rusqlite::backup::Backup;
use rusqlite::{Connection, OpenFlags};
use tempfile::{NamedTempFile, TempDir};

use crate::{BenchError, size};
use fill::Rows;

/// Of the schema and the rows. Part of the image's name, so that an image of another version is not taken.
const VERSION: u32 = 1;

/// A database image on disk.
#[derive(Debug)]
pub struct Image {
    /// Where it is.
    pub path: PathBuf,
    /// Its size in bytes.
    pub bytes: u64,
    /// How long building took; `None` when it was there already.
    pub built_in: Option<Duration>,
    /// Removes it again, when nobody said where to keep it.
    _temporary: Option<TempDir>,
}

impl Image {
    /// The image of a database of about `size` bytes, from the directory `keep_in`, or built there. Without a directory it is
    /// built in a temporary one and removed when dropped.
    pub fn obtain(size: u64, keep_in: Option<&Path>) -> Result<Self, BenchError> {
        let temporary = match keep_in {
            Some(_) => None,
            None => Some(tempfile::tempdir().map_err(|error| BenchError::system("make a temporary directory", error))?),
        };
        let dir = match (&temporary, keep_in) {
            (Some(temporary), _) => temporary.path(),
            (None, Some(dir)) => dir,
            (None, None) => unreachable!("a directory was made when none was given"),
        };
        let path = dir.join(format!("sample-{VERSION}-{}-sqlite-{}.db", size::Size(size), rusqlite::version()));
        let mut built_in = None;
        if !is_whole(&path) {
            let begin = Instant::now();
            build(&path, size)?;
            built_in = Some(begin.elapsed());
        }
        let meta =
            std::fs::metadata(&path).map_err(|error| BenchError::system(format!("read {}", path.display()), error))?;
        Ok(Self { path, bytes: meta.len(), built_in, _temporary: temporary })
    }
}

/// Copies the image at `path` into a new database in memory. Foreign keys are enforced there.
pub fn load(path: &Path) -> Result<Connection, BenchError> {
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
pub fn checksum(db: &Connection) -> Result<u64, BenchError> {
    checksum::checksum(db).map_err(|error| failed("read the whole database", error))
}

/// The names of all tables and columns, for a fuzzer's dictionary.
pub fn names(db: &Connection) -> Result<Vec<String>, BenchError> {
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
pub(crate) fn failed(what: impl Into<String>, error: rusqlite::Error) -> BenchError {
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

/// Builds the image beside its place and then moves it there, so that no half-built one is ever taken.
fn build(path: &Path, size: u64) -> Result<(), BenchError> {
    let what = || format!("build the database {}", path.display());
    let dir = path.parent().unwrap_or(Path::new("."));
    std::fs::create_dir_all(dir).map_err(|error| BenchError::system(what(), error))?;
    let file = NamedTempFile::new_in(dir).map_err(|error| BenchError::system(what(), error))?;
    let fill = || {
        let db = Connection::open(file.path())?;
        // Nobody looks at the file before it is whole.
        db.execute_batch(
            "PRAGMA journal_mode = OFF; PRAGMA synchronous = OFF; PRAGMA locking_mode = EXCLUSIVE;
             PRAGMA temp_store = MEMORY; PRAGMA cache_size = -65536",
        )?;
        fill::fill(&db, Rows::for_size(size))?;
        db.execute_batch(&format!("PRAGMA user_version = {VERSION}"))?;
        db.close().map_err(|(_, error)| error)
    };
    fill().map_err(|error| failed(what(), error))?;
    file.persist(path).map_err(|error| BenchError::system(what(), error.error))?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    const SMALL: u64 = 4 << 20;

    #[test]
    fn the_database_has_the_size_asked_for() {
        for size in [SMALL, 16 << 20] {
            let image = Image::obtain(size, None).unwrap();
            let ratio = image.bytes as f64 / size as f64;
            assert!((0.95..=1.05).contains(&ratio), "{} for {size}", image.bytes);
        }
    }

    #[test]
    fn foreign_keys_hold_and_are_enforced() {
        let image = Image::obtain(SMALL, None).unwrap();
        let db = load(&image.path).unwrap();
        let broken: i64 = db.query_row("SELECT count(*) FROM pragma_foreign_key_check", [], |row| row.get(0)).unwrap();
        assert_eq!(broken, 0);
        let sound: String = db.query_row("PRAGMA integrity_check", [], |row| row.get(0)).unwrap();
        assert_eq!(sound, "ok");
        assert!(db.execute("INSERT INTO item VALUES (NULL, 0, 1, 1, 1, '')", []).is_err());
    }

    #[test]
    fn the_same_size_gives_the_same_rows_and_a_change_shows() {
        let sums: Vec<u64> =
            (0..2).map(|_| checksum(&load(&Image::obtain(SMALL, None).unwrap().path).unwrap()).unwrap()).collect();
        assert_eq!(sums[0], sums[1]);
        let db = load(&Image::obtain(SMALL, None).unwrap().path).unwrap();
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
        let dir = tempfile::tempdir().unwrap();
        let first = Image::obtain(SMALL, Some(dir.path())).unwrap();
        assert!(first.built_in.is_some());
        assert!(Image::obtain(SMALL, Some(dir.path())).unwrap().built_in.is_none());
        let file = std::fs::File::options().write(true).open(&first.path).unwrap();
        file.set_len(first.bytes - 4096).unwrap();
        let again = Image::obtain(SMALL, Some(dir.path())).unwrap();
        assert!(again.built_in.is_some() && again.bytes == first.bytes);
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 1);
    }

    #[test]
    fn names_are_those_of_tables_indexes_and_columns() {
        let db = load(&Image::obtain(SMALL, None).unwrap().path).unwrap();
        let names = names(&db).unwrap();
        for name in ["customer", "item", "item_product", "placed", "remark"] {
            assert!(names.iter().any(|known| known == name), "{name} is missing in {names:?}");
        }
    }
}
