//! `flashfork ls` and `flashfork rm`.

use super::link::{Found, Link};
use super::names::{Name, Names};
use crate::error::CliError;
use crate::output::say;
use flashfork_warm::{Ask, Facts, ReadyAt, Tell};
use std::process::ExitCode;

/// One line of the list.
#[derive(serde::Serialize)]
struct Row {
    name: String,
    pid: i32,
    ready: &'static str,
    clones_running: u64,
    clones_made: u64,
    max_clones: Option<u64>,
    sealed_bytes: u64,
    command: String,
}

/// Lists the templates that live; names of others are removed.
pub fn ls(json: bool) -> Result<ExitCode, CliError> {
    let names = Names::open()?;
    let mut rows = Vec::new();
    for name in names.all()? {
        match Link::find(&names, &name)? {
            Found::Alive(link) => rows.extend(facts(&link, Ask::Status).map(|facts| row(&name, &facts))),
            Found::Dead => names.remove(&name)?,
            Found::Nobody => {}
        }
    }
    if json {
        let text = serde_json::to_string_pretty(&rows).map_err(|e| CliError::Unable(e.to_string()))?;
        say(&text)?;
    } else {
        say(&table(&rows))?;
    }
    Ok(ExitCode::SUCCESS)
}

/// Removes templates. Each name is gone afterwards, whoever removed it.
pub fn rm(all: &[Name]) -> Result<ExitCode, CliError> {
    let names = Names::open()?;
    for name in all {
        let gone = match Link::find(&names, name)? {
            Found::Alive(link) => match facts(&link, Ask::Retire) {
                Some(Facts { running: 0, .. }) | None => format!("removed {name}"),
                Some(Facts { running: 1, .. }) => format!("removed {name}; its last clone runs on"),
                Some(facts) => format!("removed {name}; its {} clones run on", facts.running),
            },
            Found::Dead => {
                names.remove(name)?;
                format!("removed {name}, which had ended")
            }
            Found::Nobody => format!("there is no template {name}"),
        };
        say(&gone)?;
    }
    Ok(ExitCode::SUCCESS)
}

/// What a template answers; `None` from one that has just ended.
fn facts(link: &Link, ask: Ask) -> Option<Facts> {
    link.ask(ask, &[]).ok()?;
    match link.hear()? {
        Tell::Facts(facts) => Some(facts),
        _ => None,
    }
}

fn row(name: &Name, facts: &Facts) -> Row {
    let command = std::fs::read(format!("/proc/{}/cmdline", facts.pid)).unwrap_or_default();
    let words = command.split(|b| *b == 0).map(String::from_utf8_lossy);
    Row {
        name: name.to_string(),
        pid: facts.pid,
        ready: word(facts.at),
        clones_running: facts.running,
        clones_made: facts.made,
        max_clones: (facts.max > 0).then_some(facts.max),
        sealed_bytes: facts.sealed,
        command: words.collect::<Vec<_>>().join(" ").trim_end().replace(char::is_control, " "),
    }
}

fn table(rows: &[Row]) -> String {
    if rows.is_empty() {
        return "no templates; `flashfork warm NAME -- COMMAND` makes one".into();
    }
    let mut lines = vec![format!(
        "{:<16} {:>8} {:<7} {:>8} {:>8} {:>9}  COMMAND",
        "NAME", "PROCESS", "READY", "RUNNING", "MADE", "SEALED"
    )];
    lines.extend(rows.iter().map(|r| {
        let made = r.max_clones.map_or(r.clones_made.to_string(), |max| format!("{}/{max}", r.clones_made));
        let (sealed, running) = (size(r.sealed_bytes), r.clones_running);
        format!("{:<16} {:>8} {:<7} {running:>8} {made:>8} {sealed:>9}  {}", r.name, r.pid, r.ready, r.command)
    }));
    lines.join("\n")
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
    }
}
