//! The tables of `docs/NEVER_SEAL.md`, `docs/FORK_SAFETY.md` and `docs/ENVIRONMENT.md`, made from those in the sources
//! and from the programs. Each stands behind a line `<!-- table NAME -->`; how a reason is found, its last column, is
//! the document's own.

use crate::program::programs_of;
use flashfork_core::{
	environment,
	never_seal::{Scope, TABLE},
};
use libtest_mimic::Failed;
use std::{fmt::Write, path::Path};

const DOCUMENTS: [(&str, &[&str]); 3] = [
	("NEVER_SEAL.md", &["memory", "processes"]),
	("FORK_SAFETY.md", &["shares", "renew", "missing", "own"]),
	("ENVIRONMENT.md", &["variables"]),
];

/// Compares the tables with what they should be; with `UPDATE=1` writes them.
pub fn are_up_to_date() -> Result<(), Failed> {
	let docs = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs");
	for (name, tables) in DOCUMENTS {
		let path = docs.join(name);
		let text = std::fs::read_to_string(&path)?;
		let mut parts = text.split("<!-- table ");
		let (mut wanted, mut found) = (parts.next().unwrap_or_default().to_owned(), Vec::new());
		for part in parts {
			let (table, rest) = part.split_once(" -->\n\n").ok_or(format!("docs/{name}: {part}"))?;
			let (old, rest) = rest.split_once("\n\n").unwrap_or((rest.trim_end(), ""));
			let end = if rest.is_empty() { "\n" } else { "\n\n" };
			write!(wanted, "<!-- table {table} -->\n\n{}{end}{rest}", made(table, old)?.trim_end())?;
			found.push(table);
		}
		if found != tables {
			return Err(format!("docs/{name} has the tables {found:?} instead of {tables:?}").into());
		}
		if std::env::var_os("UPDATE").is_some_and(|v| v == "1") {
			std::fs::write(&path, wanted)?;
		} else if text != wanted {
			return Err(format!(
				"docs/{name} is not what the tables and the programs say: UPDATE=1 cargo test -p flashfork-tests --test behaviour document"
			)
			.into());
		}
	}
	Ok(())
}

/// A table by its name; `old` is what stands there.
fn made(table: &str, old: &str) -> Result<String, Failed> {
	Ok(match table {
		"memory" => never_seal(Scope::Vma, old)?,
		"processes" => never_seal(Scope::Process, old)?,
		"variables" => variables(),
		kind => fork_safety(kind),
	})
}

fn never_seal(scope: Scope, old: &str) -> Result<String, Failed> {
	let mut text = String::from("| name | what | why | found by |\n|---|---|---|---|\n");
	for row in TABLE.iter().filter(|row| row.scope == scope) {
		let name = row.name;
		let [what, why] = [row.what, row.why].map(escaped);
		let known = old.lines().find(|line| line.starts_with(&format!("| {name} | ")));
		let found_by = known.and_then(|line| line.strip_suffix(" |")?.rsplit_once(" | ")).map_or("", |(_, last)| last);
		if found_by.is_empty() || found_by == why {
			return Err(format!("docs/NEVER_SEAL.md doesn't say how {name} is found: add its row").into());
		}
		writeln!(text, "| {name} | {what} | {why} | {found_by} |")?;
	}
	Ok(text)
}

fn variables() -> String {
	let mut text = String::from("| variable | values | meaning | without it |\n|---|---|---|---|\n");
	for variable in &environment::TABLE {
		let (mut name, mut without) = (format!("`{}`", variable.name()), variable.without);
		for value in variable.values {
			let more = value.more.map_or(String::new(), |more| format!(" ([{more}]({more}))"));
			writeln!(text, "| {name} | {} | {}{more} | {without} |", value.value, value.meaning)
				.expect("writes to a string");
			(name, without) = (String::new(), "");
		}
	}
	text.replace("|  |", "| |")
}

/// The programs of `fork_safety/` with this word in their line `clone:`.
fn fork_safety(kind: &str) -> String {
	let mut text = String::from("| what | what happens | what to do |\n|---|---|---|\n");
	let programs = programs_of("fork_safety");
	for program in programs.iter().filter(|program| program.directive("clone").as_deref() == Some(kind)) {
		let comment = program.comment();
		let (about, to_do) = (comment.split("clone:").next().unwrap_or(""), comment.split("do:").nth(1).unwrap_or(""));
		let sentence = first_sentence(about);
		let (what, happens) = sentence.split_once(": ").expect("a program of fork_safety says `what: what happens`");
		let to_do = to_do.split_whitespace().collect::<Vec<_>>().join(" ");
		let cells = [happens, to_do.as_str()].map(escaped).join(" | ");
		writeln!(text, "| {what} (`{}`) | {cells} |", program.name).expect("writes to a string");
	}
	text
}

pub fn every_program_has_a_kind() -> Result<(), Failed> {
	let known = |kind: Option<String>| kind.is_some_and(|kind| DOCUMENTS[1].1.contains(&&*kind));
	match programs_of("fork_safety").into_iter().find(|p| !known(p.directive("clone")) || p.directive("do").is_none()) {
		Some(p) => Err(format!(
			"fork_safety/{}.c: its comment has no line `clone: shares|renew|missing|own`, or no `do:`",
			p.name
		)
		.into()),
		None => Ok(()),
	}
}

fn first_sentence(comment: &str) -> String {
	let text = comment.split_whitespace().collect::<Vec<_>>().join(" ");
	let end = text.find(". ").map_or(text.len(), |i| i + 1);
	text[..end].to_string()
}

fn escaped(text: &str) -> String {
	text.replace('*', "\\*").replace('|', "\\|")
}
