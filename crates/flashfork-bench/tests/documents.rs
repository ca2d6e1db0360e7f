//! The tables and pictures in documents: what the committed records make, byte for byte. Nothing is measured.
//!
//! A table stands behind a line `<!-- page RECORDS EXPERIMENT -->`, the sentences about a whole run behind
//! `<!-- findings RECORDS -->`; RECORDS is one of docs/records. `make figures`, which is this
//! test with `UPDATE=1` in the environment, makes them anew.

mod committed;

use std::{
	collections::{BTreeMap, BTreeSet},
	path::{Path, PathBuf},
	sync::{LazyLock, Mutex},
};

use flashfork_bench::{experiments, report};
use flashfork_measure::{Document, Record, record::Values};

fn project() -> PathBuf {
	Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

static TEXTS: LazyLock<BTreeMap<String, String>> = LazyLock::new(committed::texts);

/// Read once: the largest takes seconds.
fn records(name: &str) -> &'static Document {
	static READ: Mutex<BTreeMap<String, &'static Document>> = Mutex::new(BTreeMap::new());
	READ.lock().unwrap().entry(name.to_owned()).or_insert_with(|| {
		let file = tempfile::NamedTempFile::new().unwrap().into_temp_path();
		std::fs::write(&file, TEXTS.get(name).unwrap_or_else(|| panic!("no records {name}"))).unwrap();
		Box::leak(Box::new(Document::read(&file).unwrap()))
	})
}

/// Compares a file with what it should be, or writes it.
fn is_or_becomes(path: &Path, wanted: &str) {
	if std::env::var_os("UPDATE").is_some_and(|update| update == "1") {
		std::fs::write(path, wanted).unwrap();
	}
	let found = std::fs::read_to_string(path).unwrap();
	assert!(found == wanted, "{} is not what the records make: make figures", path.display());
}

fn made(words: &[&str]) -> String {
	match words {
		["page", name, experiment] => {
			let entry = experiments::ALL.iter().find(|entry| entry.name == *experiment);
			entry.unwrap_or_else(|| panic!("there is no experiment {experiment}")).page(records(name))
		}
		["findings", name] => {
			let document = records(name);
			let said =
				report::findings(document).iter().map(|finding| textwrap::fill(finding, 100)).collect::<Vec<_>>();
			format!("{}\n\n{}", document.host.line(), said.join("\n\n"))
		}
		_ => panic!("not understood: {words:?}"),
	}
}

/// A sentence below a table, wrapped as the documents are. Rows begin with a space, or have several between columns.
/// A rule is short: at full width, in three bytes a character, they would be an eighth of these files.
fn as_in_documents(line: &str) -> String {
	let line = line.trim_end();
	if line.starts_with('─') {
		"-".repeat(line.chars().count().min(3))
	} else if line.starts_with(' ') || line.contains("  ") {
		with_tabs(line.strip_prefix(' ').unwrap_or(line))
	} else {
		textwrap::fill(line, 100)
	}
}

/// The same to who sees a tab as space up to the next of every eight columns: a third of a table is such space.
fn with_tabs(line: &str) -> String {
	const TAB: usize = 8;
	let (mut made, mut spaces) = (String::new(), 0);
	for (i, character) in line.chars().enumerate() {
		if character != ' ' {
			made.extend(std::iter::repeat_n(' ', std::mem::take(&mut spaces)));
			made.push(character);
			continue;
		}
		spaces += 1;
		if (i + 1) % TAB == 0 && spaces > 1 {
			made.push('\t');
			spaces = 0;
		}
	}
	made
}

#[test]
fn the_tables_in_documents_follow_from_the_committed_records() {
	let entries = |folder| std::fs::read_dir(project().join(folder)).unwrap().map(|entry| entry.unwrap().path());
	let documents = entries("docs")
		.chain(entries("docs/figures"))
		.filter(|path| path.extension().is_some_and(|extension| extension == "md"));
	let mut blocks = 0;
	for path in documents {
		let text = std::fs::read_to_string(&path).unwrap();
		let mut parts = text.split("<!-- ");
		let mut wanted = parts.next().unwrap().to_owned();
		for part in parts {
			// Those of the shim's variables and the like have a test of their own.
			if part.starts_with("table ") {
				wanted += "<!-- ";
				wanted += part;
				continue;
			}
			let place = || format!("{}: {}", path.display(), part.lines().next().unwrap());
			let (words, rest) = part.split_once(" -->\n\n```\n").unwrap_or_else(|| panic!("no block: {}", place()));
			let (_, rest) = rest.split_once("\n```\n").unwrap_or_else(|| panic!("no end: {}", place()));
			let page = made(&words.split_whitespace().collect::<Vec<_>>());
			let page = page.lines().map(as_in_documents).collect::<Vec<_>>().join("\n");
			wanted += &format!("<!-- {words} -->\n\n```\n{page}\n```\n{rest}");
			blocks += 1;
		}
		is_or_becomes(&path, &wanted);
	}
	assert!(blocks > 0);
}

#[test]
fn the_pictures_follow_from_the_committed_records() {
	let docs = project().join("docs");
	let all = records("all");
	let figures = report::figures(all).unwrap();
	for (figure, picture) in [("ladder-1.svg", "ladder.svg"), ("model-1.svg", "model.svg")] {
		let mut files = figures.iter().flat_map(|found| found.files(&all.host));
		is_or_becomes(&docs.join(picture), &files.find(|(name, _)| name == figure).unwrap().1);
	}
	for (name, picture) in [("all", "fork.svg"), ("policy", "policy.svg")] {
		is_or_becomes(&docs.join(picture), &experiments::figure(records(name)).unwrap());
	}
}

/// Every experiment without records, and in the smallest file of records that has it, without those of each method, and
/// without one value of each choice that is a word: a measure, a pass, a kind of job.
#[test]
fn what_was_not_measured_has_no_row_and_keeps_no_promise() {
	let empty = Document::here(Vec::new()).unwrap();
	let mut pages = 0;
	for entry in experiments::ALL {
		let page = entry.page(&empty);
		assert!(!page.lines().any(|line| line.ends_with(" yes") || line.ends_with(" no")), "{}: {page}", entry.name);
		let count =
			|document: &&Document| document.records.iter().filter(|record| record.experiment == entry.name).count();
		let files = TEXTS.keys().map(|name| records(name));
		let Some(whole) = files.filter(|file| count(file) > 0).min_by_key(count) else { continue };
		let records = whole.records.iter().filter(|record| record.experiment == entry.name).cloned().collect();
		let own = Document { records, ..whole.clone() };
		let methods: BTreeSet<&str> = own.records.iter().map(|record| record.method.as_str()).collect();
		let chosen: BTreeMap<&str, &str> = own.records.iter().flat_map(|record| words(&record.chosen)).collect();
		let mut without = |is_gone: &dyn Fn(&Record) -> bool| {
			let mut part = own.clone();
			part.records.retain(|record| !is_gone(record));
			pages += 1;
			let page = entry.page(&part);
			assert!(!page.contains("NaN") && !page.contains("inf "), "{page}");
			page
		};
		for (name, value) in chosen {
			without(&|record| record.chosen.get(name).is_some_and(|found| found == value));
		}
		for method in methods {
			let page = without(&|record| record.method == method);
			let lines: Vec<_> = page.lines().chain([""]).collect();
			// Headers stand above a rule, and may be called so; so may a place that memory comes from or goes to.
			let rows = lines.windows(2).filter(|pair| pair[0].starts_with(' ') && !pair[1].starts_with('─'));
			let mut firsts =
				rows.map(|pair| pair[0].split("  ").map(str::trim).filter(|cell| !cell.is_empty()).take(2));
			assert!(!firsts.any(|mut cells| cells.any(|cell| cell == method)), "without {method}: {page}");
		}
	}
	assert!(pages > 100, "{pages}");
}

fn words(chosen: &Values) -> impl Iterator<Item = (&str, &str)> {
	chosen.iter().filter_map(|(name, value)| Some((name.as_str(), value.as_str()?)))
}

#[test]
fn a_fork_of_a_machine_whose_writes_were_not_seen_says_so() {
	let mut document = records("vm-fork").clone();
	let entry = experiments::ALL.iter().find(|entry| entry.name == "vm-fork").unwrap();
	assert!(!entry.page(&document).contains("before Linux 6.7"));
	for record in &mut document.records {
		if let Some(tracked) = record.observed.get_mut("tracked") {
			*tracked = false.into();
		}
	}
	assert!(entry.page(&document).contains("before Linux 6.7"));
}

#[test]
fn a_picture_says_on_which_host_whatever_that_is_called() {
	let mut document = records("all").clone();
	document.host.cpu = "<R&D> \"chip\"".into();
	let svg = experiments::figure(&document).unwrap();
	let tree = roxmltree::Document::parse(&svg).unwrap();
	assert!(tree.descendants().any(|node| node.text().is_some_and(|text| text.contains(&document.host.line()))));
}
