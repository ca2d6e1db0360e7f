//! Events: calls that nobody waits for. An accepted one is on disk before that is said, and so is its one result.
//!
//! A file of lines, to which is only added: events, and results. It is written anew, without what is over, at each
//! start.

use crate::error::{ApiError, Result};
use crate::locked;
use crate::store::write;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, VecDeque};
use std::fs::File;
use std::io::Write;
use std::path::Path;
use std::sync::Mutex;

/// Most that wait, and most results that are kept.
const MOST_WAITING: usize = 10_000;
const MOST_RESULTS: usize = 10_000;

/// An event, as it was accepted.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Event {
	pub id: String,
	pub owner: String,
	pub function: String,
	pub payload: String,
}

/// What has come of it.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub struct Ended {
	pub id: String,
	pub owner: String,
	/// `Succeeded`, or `Failed`: a dead letter, after all attempts.
	pub status: String,
	pub attempts: u32,
	/// The answer, or the last error.
	pub payload: String,
}

#[derive(Serialize, Deserialize)]
enum Line {
	Event(Event),
	Ended(Ended),
}

#[derive(Default)]
struct Known {
	waiting: BTreeMap<String, Event>,
	ended: VecDeque<Ended>,
}

impl Known {
	fn take(&mut self, line: Line) {
		match line {
			Line::Event(event) => drop(self.waiting.insert(event.id.clone(), event)),
			Line::Ended(ended) => {
				self.waiting.remove(&ended.id);
				self.ended.push_back(ended);
				if self.ended.len() > MOST_RESULTS {
					self.ended.pop_front();
				}
			}
		}
	}
}

/// All events.
pub struct Events {
	inner: Mutex<(Known, File)>,
}

impl Events {
	/// Reads what there is, and tells what waits. What was being written when the last server ended was not promised to
	/// anybody: it is the only line that may be broken.
	pub fn open(state: &Path) -> std::io::Result<(Events, Vec<Event>)> {
		let path = state.join("events");
		let text = match std::fs::read(&path) {
			Err(e) if e.kind() == std::io::ErrorKind::NotFound => Vec::new(),
			text => text?,
		};
		let mut known = Known::default();
		for line in text.split_inclusive(|b| *b == b'\n').filter(|line| line.ends_with(b"\n")) {
			known.take(
				serde_json::from_slice(line).map_err(|e| std::io::Error::other(format!("{}: {e}", path.display())))?,
			);
		}
		let ended = known.ended.iter().cloned().map(Line::Ended);
		let mut kept = Vec::new();
		for line in ended.chain(known.waiting.values().cloned().map(Line::Event)) {
			kept.extend(serde_json::to_vec(&line)?);
			kept.push(b'\n');
		}
		write(&path, &kept)?;
		let waiting = known.waiting.values().cloned().collect();
		let file = File::options().append(true).open(&path)?;
		Ok((Events { inner: Mutex::new((known, file)) }, waiting))
	}

	/// Returns when it is on disk.
	pub fn accept(&self, event: Event) -> Result<()> {
		let mut inner = locked(&self.inner);
		if inner.0.waiting.len() >= MOST_WAITING {
			return Err(ApiError::too_many("too many events wait; try again later"));
		}
		add(&mut inner, Line::Event(event))
	}

	/// Records what has come of it. The first result stays.
	pub fn end(&self, ended: Ended) -> Result<()> {
		let mut inner = locked(&self.inner);
		if inner.0.waiting.contains_key(&ended.id) { add(&mut inner, Line::Ended(ended)) } else { Ok(()) }
	}

	/// What has come of it, if anything has; `None` if there is no such event of this owner's.
	pub fn result(&self, owner: &str, id: &str) -> Option<Option<Ended>> {
		let inner = locked(&self.inner);
		let ended = inner.0.ended.iter().rfind(|ended| ended.id == id && ended.owner == owner).cloned();
		let waits = inner.0.waiting.get(id).is_some_and(|event| event.owner == owner);
		(ended.is_some() || waits).then_some(ended)
	}
}

fn add((known, file): &mut (Known, File), line: Line) -> Result<()> {
	let mut text = serde_json::to_vec(&line).map_err(ApiError::service)?;
	text.push(b'\n');
	let before = file.metadata()?.len();
	if let Err(e) = file.write_all(&text).and_then(|()| file.sync_data()) {
		// Half a line would break the next one.
		file.set_len(before)?;
		return Err(e.into());
	}
	known.take(line);
	Ok(())
}

#[cfg(test)]
mod tests {
	use super::*;

	#[test]
	fn what_was_accepted_comes_back_once_and_half_a_line_is_nothing() {
		let state = tempfile::tempdir().unwrap();
		let (events, waiting) = Events::open(state.path()).unwrap();
		assert!(waiting.is_empty());
		for id in ["a", "b"] {
			events
				.accept(Event { id: id.into(), owner: "o".into(), function: "f".into(), payload: "{}".into() })
				.unwrap();
		}
		let ended = |status: &str| Ended {
			id: "a".into(),
			owner: "o".into(),
			status: status.into(),
			attempts: 1,
			payload: "1".into(),
		};
		events.end(ended("Succeeded")).unwrap();
		events.end(ended("Failed")).unwrap();
		drop(events);
		let mut file = File::options().append(true).open(state.path().join("events")).unwrap();
		file.write_all(b"{\"Event\":{\"id\":\"c\"").unwrap();
		for _ in 0..2 {
			let (events, waiting) = Events::open(state.path()).unwrap();
			assert_eq!(
				waiting.iter().map(|event| (event.id.as_str(), event.payload.as_str())).collect::<Vec<_>>(),
				[("b", "{}")]
			);
			assert_eq!(events.result("o", "a").unwrap().unwrap().status, "Succeeded");
			assert!(events.result("o", "b").unwrap().is_none());
			assert!(events.result("o", "c").is_none());
			assert!(events.result("p", "a").or(events.result("p", "b")).is_none());
		}
	}
}
