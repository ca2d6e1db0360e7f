//! The committed records: as this version writes them, and each row told from every other wherever they are shown.

use std::path::{Path, PathBuf};
use std::{collections::HashSet, fs::File, io::Read};

use lzma_rust2::LzipReader;

use flashfork_bench::report;
use flashfork_measure::{Document, Record, compare};

fn committed() -> Vec<(PathBuf, Document)> {
	let records = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/records");
	let files = std::fs::read_dir(records).unwrap().map(|entry| entry.unwrap().path());
	let read: Vec<_> = files.map(|path| (path.clone(), Document::read(&path).unwrap())).collect();
	assert!(!read.is_empty());
	read
}

/// The record as this version makes it of the same samples.
fn made_anew(record: &Record) -> Record {
	let chosen = record.chosen.iter().map(|(name, value)| (name.as_str(), value.clone()));
	let made = Record::new(&record.experiment, &record.method, chosen, &record.unit, record.samples.clone()).unwrap();
	Record { observed: record.observed.clone(), ..made }
}

/// With `UPDATE=1` in the environment (`make figures`) they are written anew: smaller, and of this schema.
#[test]
fn the_committed_records_are_packed_and_of_this_schema() {
	for (path, mut document) in committed() {
		document.records = document.records.iter().map(made_anew).collect();
		if std::env::var_os("UPDATE").is_some() {
			document.write_packed(&path).unwrap();
		}
		let written = tempfile::NamedTempFile::new().unwrap().into_temp_path();
		document.write_packed(&written).unwrap();
		let [found, written] = [&*path, &written].map(|path| {
			let mut text = String::new();
			LzipReader::new(File::open(path).unwrap()).read_to_string(&mut text).unwrap();
			text
		});
		assert!(found == written, "{} is not what this version writes: make figures", path.display());
	}
}

/// Rows without their figures, which might differ by chance alone.
fn assert_apart<'a>(rows: impl Iterator<Item = &'a str>, number: usize, where_: &str) {
	let mut seen = HashSet::new();
	let alike: Vec<&str> = rows.filter(|row| !seen.insert(*row)).collect();
	assert!(alike.is_empty(), "{where_}: nothing tells these rows from others: {alike:#?}");
	assert_eq!(seen.len(), number, "{where_}");
}

#[test]
fn no_two_rows_are_alike() {
	for (path, mut document) in committed() {
		// One equal sample each: all that is left to tell rows apart is what they are called.
		for record in &mut document.records {
			let chosen = record.chosen.iter().map(|(name, value)| (name.as_str(), value.clone()));
			*record = Record::new(&record.experiment, &record.method, chosen, &record.unit, vec![1.0]).unwrap();
		}
		let number = document.records.len();
		let dir = tempfile::tempdir().unwrap();
		report::write(&document, dir.path()).unwrap();
		let [csv, page] =
			["data.csv", "index.html"].map(|name| std::fs::read_to_string(dir.path().join(name)).unwrap());
		let of = |what: &str| format!("{}, {what}", path.display());
		assert_apart(csv.lines().skip(1), number, &of("CSV"));
		// Each experiment has its own table.
		let mut experiment = "";
		let rows: Vec<String> = page
			.lines()
			.filter_map(|line| {
				if let Some(summary) = line.strip_prefix("<summary>") {
					experiment = summary;
				}
				line.starts_with("<tr><td>").then(|| format!("{experiment} {line}"))
			})
			.collect();
		assert_apart(rows.iter().map(String::as_str), number, &of("page"));
		let compared = compare::documents(&document, &document).unwrap();
		assert_apart(compared.cells.iter().map(|cell| cell.cell.as_str()), number, &of("compare"));
	}
}
