//! `flashfork ls` and `flashfork rm`.

use flashfork_templates::{Error, Listed, Name, ReadyAt, Removed, State, Template};
use flashfork_terminal::{CliError, output::say};
use std::process::ExitCode;

/// One line of the list. What only the template knows is missing of one that doesn't answer.
#[derive(serde::Serialize)]
struct Row {
	name: String,
	pid: Option<i32>,
	state: &'static str,
	ready: Option<&'static str>,
	clones_running: Option<u64>,
	clones_made: Option<u64>,
	max_clones: Option<u64>,
	sealed_bytes: Option<u64>,
	age_seconds: Option<u64>,
	changed_files: Option<u64>,
	command: String,
}

/// Lists the templates that live, also those that don't answer; names of others are removed.
pub fn ls(json: bool) -> Result<ExitCode, CliError> {
	let all = super::names()?.map_or_else(|| Ok(Vec::new()), |names| names.templates())?;
	let rows = all.into_iter().map(row).collect::<Vec<_>>();
	if json {
		let text = serde_json::to_string_pretty(&rows).map_err(|e| CliError::Unable(e.to_string()))?;
		say(&text)?;
	} else {
		say(&table(&rows))?;
	}
	Ok(ExitCode::SUCCESS)
}

/// Removes templates. Each name is gone afterwards, whoever removed it, but for those whose templates can't be asked.
pub fn rm(all: &[Name]) -> Result<ExitCode, CliError> {
	let names = super::names()?;
	let mut failed = None;
	for name in all {
		let removed = match &names {
			Some(names) => Template::named(names, name.clone()).remove(),
			None => Ok(Removed::Nobody),
		};
		match removed {
			Ok(removed) => say(&told(name, removed))?,
			Err(e) => {
				if let Some(before) = failed.replace(not_removed(e)) {
					flashfork_terminal::output::complain(&before);
				}
			}
		}
	}
	failed.map_or(Ok(ExitCode::SUCCESS), Err)
}

fn not_removed(error: Error) -> CliError {
	match error {
		// It finds the request when it goes on.
		Error::Stopped { .. } => CliError::Unable(format!("{error}; it is removed as soon as it goes on")),
		error => CliError::from(error),
	}
}

fn told(name: &Name, removed: Removed) -> String {
	match removed {
		Removed::Gone => format!("removed {name}"),
		Removed::ClonesRun(1) => format!("removed {name}; its last clone runs on"),
		Removed::ClonesRun(running) => format!("removed {name}; its {running} clones run on"),
		Removed::HadEnded => format!("removed {name}, which had ended"),
		Removed::Nobody => format!("there is no template {name}"),
	}
}

fn row(template: Listed) -> Row {
	let (state, facts) = match template.state {
		State::Waiting(facts) => ("waiting", Some(facts)),
		State::Stopped => ("stopped", None),
		State::Silent => ("silent", None),
		State::Strange => ("strange", None),
	};
	Row {
		name: template.name.to_string(),
		pid: template.pid,
		state,
		ready: facts.map(|facts| word(facts.at)),
		clones_running: facts.map(|facts| facts.running),
		clones_made: facts.map(|facts| facts.made),
		max_clones: facts.map(|facts| facts.max).filter(|max| *max > 0),
		sealed_bytes: facts.map(|facts| facts.sealed),
		age_seconds: template.age.map(|age| age.as_secs()),
		changed_files: facts.map(|facts| facts.changed),
		command: template.command,
	}
}

fn table(rows: &[Row]) -> String {
	if rows.is_empty() {
		return "no templates; `flashfork warm NAME -- COMMAND` makes one".into();
	}
	let width = rows.iter().map(|row| row.name.chars().count()).max().unwrap_or(0).max(16);
	let mut lines = vec![format!(
		"{:<width$} {:>8} {:<7} {:>8} {:>8} {:>9} {:>6} {:>7}  COMMAND",
		"NAME", "PROCESS", "READY", "RUNNING", "MADE", "SEALED", "AGE", "CHANGED"
	)];
	lines.extend(rows.iter().map(|r| {
		let or_unknown = |text: Option<String>| text.unwrap_or_else(|| "-".into());
		let made =
			or_unknown(r.clones_made.map(|made| r.max_clones.map_or(made.to_string(), |max| format!("{made}/{max}"))));
		let (sealed, running) =
			(or_unknown(r.sealed_bytes.map(size)), or_unknown(r.clones_running.map(|n| n.to_string())));
		let (pid, ready) = (or_unknown(r.pid.map(|pid| pid.to_string())), r.ready.unwrap_or(r.state));
		let (age, changed) = (or_unknown(r.age_seconds.map(span)), or_unknown(r.changed_files.map(|n| n.to_string())));
		format!(
			"{:<width$} {pid:>8} {ready:<7} {running:>8} {made:>8} {sealed:>9} {age:>6} {changed:>7}  {}",
			r.name, r.command
		)
	}));
	lines.join("\n")
}

/// Of seconds, for people.
fn span(seconds: u64) -> String {
	match seconds {
		0..120 => format!("{seconds} s"),
		120..7200 => format!("{} min", seconds / 60),
		7200..172_800 => format!("{} h", seconds / 3600),
		_ => format!("{} d", seconds / 86_400),
	}
}

/// Of bytes, for people.
pub fn size(bytes: u64) -> String {
	match bytes {
		0..0x10_0000 => format!("{} KB", bytes >> 10),
		0x10_0000..0x4000_0000 => format!("{} MB", bytes >> 20),
		_ => format!("{:.1} GB", bytes as f64 / (1u64 << 30) as f64),
	}
}

fn word(at: ReadyAt) -> &'static str {
	match at {
		ReadyAt::Main => "main",
		ReadyAt::Call => "call",
		ReadyAt::Python => "python",
		ReadyAt::Perl => "perl",
		ReadyAt::Ruby => "ruby",
		ReadyAt::Idle => "idle",
		ReadyAt::Listen => "listen",
		ReadyAt::Line => "line",
		ReadyAt::Node => "node",
		ReadyAt::Runtime => "runtime",
	}
}

/// In a sentence.
pub fn where_ready(at: ReadyAt) -> &'static str {
	match at {
		ReadyAt::Main => "before main",
		ReadyAt::Call => "where it called",
		ReadyAt::Python => "to run Python",
		ReadyAt::Perl => "to run Perl",
		ReadyAt::Ruby => "to run Ruby",
		ReadyAt::Idle => "where it was idle",
		ReadyAt::Listen => "where it listened",
		ReadyAt::Line => "where it had printed the line",
		ReadyAt::Node => "to run JavaScript",
		ReadyAt::Runtime => "where its runtime asked for work",
	}
}

#[cfg(test)]
mod tests {
	use super::*;

	#[test]
	fn columns_are_below_each_other_whatever_the_names_are() {
		let row = |name: &str| Row {
			name: name.into(),
			pid: Some(1),
			state: "silent",
			ready: None,
			clones_running: None,
			clones_made: None,
			max_clones: None,
			sealed_bytes: None,
			age_seconds: None,
			changed_files: None,
			command: "COMMAND".into(),
		};
		let table = table(&[row("short"), row("one-with-a-name-that-is-longer-than-most")]);
		let ends: Vec<_> = table.lines().map(|line| line.find("COMMAND")).collect();
		assert!(ends[0].is_some() && ends.iter().all(|end| *end == ends[0]), "{table}");
	}
}
