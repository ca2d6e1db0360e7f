//! The committed records: as this version writes them, and each row told from every other wherever they are shown.

mod committed;

use std::{
	collections::{BTreeMap, HashSet},
	fs::{File, read_to_string, remove_file, write},
	io::Write,
};

use committed::ALL;
use lzma_rust2::{LzipOptions, LzipWriter, LzmaOptions};

use flashfork_bench::report;
use flashfork_measure::{Document, Record, compare};

fn read(text: &str) -> Document {
	let file = tempfile::NamedTempFile::new().unwrap().into_temp_path();
	write(&file, text).unwrap();
	Document::read(&file).unwrap()
}

/// All but `all`, in place of files with one each.
fn write_others(texts: &BTreeMap<String, String>) {
	let mut options = LzipOptions::with_preset(6);
	options.lzma_options.nice_len = LzmaOptions::NICE_LEN_MAX;
	let mut archive = tar::Builder::new(LzipWriter::new(File::create(committed::others()).unwrap(), options));
	for (name, text) in texts.iter().filter(|(name, _)| *name != ALL) {
		let mut header = tar::Header::new_gnu();
		header.set_mode(0o644);
		header.set_size(text.len() as u64);
		archive.append_data(&mut header, format!("{name}.json"), text.as_bytes()).unwrap();
	}
	archive.into_inner().unwrap().finish().unwrap().flush().unwrap();
	committed::files().filter(|(name, _)| name != ALL).for_each(|(_, path)| remove_file(path).unwrap());
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
	let mut texts = committed::texts();
	for (name, text) in &mut texts {
		let mut document = read(text);
		document.records = document.records.iter().map(made_anew).collect();
		let made = document.packed().unwrap();
		if std::env::var_os("UPDATE").is_some() {
			if name == ALL {
				document.write_packed(&committed::place().join("all.json.lz")).unwrap();
			}
			*text = made;
		} else {
			assert!(*text == made, "{name} is not what this version writes: make figures");
		}
	}
	if std::env::var_os("UPDATE").is_some() {
		write_others(&texts);
	}
	let files = std::fs::read_dir(committed::place()).unwrap().count();
	assert_eq!(files, 2, "more than all.json.lz and others.tar.lz: make figures");
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
	for (name, text) in committed::texts() {
		let mut document = read(&text);
		// One equal sample each: all that is left to tell rows apart is what they are called.
		for record in &mut document.records {
			let chosen = record.chosen.iter().map(|(name, value)| (name.as_str(), value.clone()));
			*record = Record::new(&record.experiment, &record.method, chosen, &record.unit, vec![1.0]).unwrap();
		}
		let number = document.records.len();
		let dir = tempfile::tempdir().unwrap();
		report::write(&document, dir.path()).unwrap();
		let [csv, page] = ["data.csv", "index.html"].map(|name| read_to_string(dir.path().join(name)).unwrap());
		let of = |what: &str| format!("{name}, {what}");
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
