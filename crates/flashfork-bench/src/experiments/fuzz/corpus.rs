//! What a campaign starts from: the seeds and the dictionary, the same for all methods.

use std::{fs, io};

use crate::prelude::*;
use rusqlite::ffi;

/// A few statements over the database's tables, one kind of SQL each.
const SEEDS: [(&str, &str); 9] = [
	("aggregate", include_str!("../../../fuzz-target/seeds/aggregate.sql")),
	("delete", include_str!("../../../fuzz-target/seeds/delete.sql")),
	("insert", include_str!("../../../fuzz-target/seeds/insert.sql")),
	("select", include_str!("../../../fuzz-target/seeds/select.sql")),
	("text", include_str!("../../../fuzz-target/seeds/text.sql")),
	("trigger", include_str!("../../../fuzz-target/seeds/trigger.sql")),
	("update", include_str!("../../../fuzz-target/seeds/update.sql")),
	("window", include_str!("../../../fuzz-target/seeds/window.sql")),
	("with", include_str!("../../../fuzz-target/seeds/with.sql")),
];

/// Functions worth calling; SQLite's keywords come from the library itself.
const FUNCTIONS: &str = "abs avg changes coalesce count group_concat hex ifnull instr json json_each length max min \
						 nullif printf quote random replace round substr sum typeof upper";

/// Writes the seeds into the directory `dir`, which is made.
pub fn write_seeds(dir: &Path) -> Result {
	let write = || -> io::Result<()> {
		fs::create_dir_all(dir)?;
		SEEDS.iter().try_for_each(|(name, sql)| fs::write(dir.join(name), sql))
	};
	write().or_cant(format_args!("write the seeds to {}", dir.display()))
}

/// Writes a dictionary in AFL's format: SQLite's keywords, functions, and `names`, those of the tables and columns.
pub fn write_dictionary(path: &Path, names: &[String]) -> Result {
	let words =
		keywords().into_iter().chain(FUNCTIONS.split_whitespace().map(str::to_owned)).chain(names.iter().cloned());
	// AFL takes each word alone; the blank in front keeps it from running into the word before.
	let text: String = words.map(|word| format!("\" {word}\"\n")).collect();
	fs::write(path, text).or_cant(format_args!("write {}", path.display()))
}

/// `sqlite3_keyword_name`: all keywords of the linked SQLite.
fn keywords() -> Vec<String> {
	// SAFETY: takes no arguments and touches no state.
	let count = unsafe { ffi::sqlite3_keyword_count() };
	let keyword = |index| {
		let (mut name, mut length) = (std::ptr::null(), 0);
		// SAFETY: both places are valid for writing; the index is below the count.
		let found = unsafe { ffi::sqlite3_keyword_name(index, &mut name, &mut length) } == ffi::SQLITE_OK;
		// SAFETY: on success the name points to `length` bytes that live as long as the program.
		found.then(|| unsafe { std::slice::from_raw_parts(name.cast::<u8>(), length as usize) })
	};
	(0..count).filter_map(keyword).map(|name| String::from_utf8_lossy(name).into_owned()).collect()
}

#[cfg(test)]
mod tests {
	use super::*;
	use crate::subjects::database::{in_memory, names};

	#[test]
	fn the_dictionary_holds_keywords_tables_and_columns_in_afl_s_format() {
		let db = in_memory(1 << 20);
		let path = tempfile::NamedTempFile::new().unwrap().into_temp_path();
		write_dictionary(&path, &names(&db).unwrap()).unwrap();
		let text = fs::read_to_string(&path).unwrap();
		assert!(text.lines().all(|line| line.len() > 3 && line.starts_with("\" ") && line.ends_with('"')), "{text}");
		for word in ["SELECT", "WINDOW", "substr", "purchase", "quantity", "item_product"] {
			assert!(text.contains(&format!("\" {word}\"\n")), "{word} is missing");
		}
	}

	#[test]
	fn every_seed_is_sql_that_the_database_understands() {
		let db = in_memory(1 << 20);
		for (name, sql) in SEEDS {
			assert!(sql.len() < 1024, "{name}");
			db.execute_batch(sql).unwrap_or_else(|error| panic!("{name}: {error}"));
		}
	}
}
