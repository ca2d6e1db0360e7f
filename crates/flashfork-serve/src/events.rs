//! Events: calls that nobody waits for. An accepted one is on disk before that is said, and so is its one result.
//!
//! A file of lines, to which is only added: events, and results. It is written anew, without what is over, at each
//! start, and when that is most of it.

use crate::{
	error::{ApiError, Result},
	locked,
	store::write,
};
use serde::{Deserialize, Serialize};
use std::{
	collections::{BTreeMap, VecDeque},
	fs::File,
	io::Write,
	path::{Path, PathBuf},
	sync::Mutex,
};
use tracing::error;

/// Most that wait, and most results that are kept; and how many bytes all of either may have.
const MOST_WAITING: usize = 10_000;
const MOST_RESULTS: usize = 10_000;
const MOST_BYTES: usize = 128 << 20;
/// How often an event is tried.
pub const ATTEMPTS: u32 = 3;

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

#[derive(Deserialize)]
enum Line {
	Event(Event),
	Ended(Ended),
}

/// The same, to be written.
#[derive(Serialize)]
enum Said<'a> {
	Event(&'a Event),
	Ended(&'a Ended),
}

/// Bytes of a payload as it is written: of a control character six.
fn written_bytes(payload: &str) -> usize {
	serde_json::json!(payload).to_string().len()
}

/// What waits, or what is kept.
#[derive(Default)]
struct Sum {
	bytes: usize,
	/// Of each owner, an event counting as many bytes as are there for it.
	of: BTreeMap<String, usize>,
}

impl Sum {
	fn add(&mut self, owner: &str, bytes: usize, each: usize) {
		self.bytes += bytes;
		*self.of.entry(owner.to_owned()).or_default() += bytes + each;
	}

	fn take(&mut self, owner: &str, bytes: usize, each: usize) {
		self.bytes -= bytes;
		let Some(of) = self.of.get_mut(owner) else { return };
		*of -= bytes + each;
		if *of == 0 {
			self.of.remove(owner);
		}
	}
}

struct Known {
	/// How many bytes waiting events may have, and results.
	most: usize,
	/// Whether there may be several owners, of whom none takes more than half of the room of what waits.
	shared: bool,
	waiting: BTreeMap<String, Event>,
	waiting_sum: Sum,
	ended: VecDeque<Ended>,
	ended_sum: Sum,
}

impl Known {
	/// Bytes that are there for an event.
	fn each(&self) -> usize {
		self.most / MOST_WAITING
	}

	/// Whether it may wait, too.
	fn has_room(&self, event: &Event) -> bool {
		let bytes = written_bytes(&event.payload);
		let of = self.waiting_sum.of.get(&event.owner).copied().unwrap_or_default();
		self.waiting.len() < MOST_WAITING
			&& self.waiting_sum.bytes + bytes <= self.most
			&& !(self.shared && of + bytes + self.each() > self.most)
	}

	fn take(&mut self, line: Line) {
		let each = self.each();
		match line {
			Line::Event(event) => {
				self.waiting_sum.add(&event.owner, written_bytes(&event.payload), each);
				self.waiting.insert(event.id.clone(), event);
			}
			Line::Ended(ended) => {
				if let Some(event) = self.waiting.remove(&ended.id) {
					self.waiting_sum.take(&event.owner, written_bytes(&event.payload), each);
				}
				self.ended_sum.add(&ended.owner, written_bytes(&ended.payload), each);
				self.ended.push_back(ended);
				while self.ended.len() > MOST_RESULTS || self.ended_sum.bytes > self.most {
					// No owner's events push out another's.
					let Some((owner, _)) = self.ended_sum.of.iter().max_by_key(|(_, has)| **has) else { break };
					let at = self.ended.iter().position(|ended| ended.owner == *owner);
					let Some(old) = at.and_then(|at| self.ended.remove(at)) else { break };
					self.ended_sum.take(&old.owner, written_bytes(&old.payload), each);
				}
			}
		}
	}

	/// The lines of all there is.
	fn text(&self) -> Result<Vec<u8>> {
		let ended = self.ended.iter().map(Said::Ended);
		let mut text = Vec::new();
		for line in ended.chain(self.waiting.values().map(Said::Event)) {
			serde_json::to_writer(&mut text, &line).map_err(ApiError::service)?;
			text.push(b'\n');
		}
		Ok(text)
	}
}

/// All events.
pub struct Events {
	path: PathBuf,
	known: Mutex<Known>,
	/// Who writes has this, and the other one for moments: nobody waits for a disk who only asks.
	written: Mutex<Written>,
}

struct Written {
	file: File,
	/// Bytes of whole lines.
	length: u64,
	/// Bytes that it had when it was last written anew.
	begun_with: u64,
}

impl Events {
	/// Reads what there is, and tells what waits. What was being written when the last server ended was not promised to
	/// anybody: it is the only line that may be broken.
	/// `shared`: there may be several owners.
	pub fn open(state: &Path, shared: bool) -> std::io::Result<(Events, Vec<Event>)> {
		Events::open_up_to(MOST_BYTES, state, shared)
	}

	fn open_up_to(most: usize, state: &Path, shared: bool) -> std::io::Result<(Events, Vec<Event>)> {
		let path = state.join("events");
		let text = match std::fs::read(&path) {
			Err(e) if e.kind() == std::io::ErrorKind::NotFound => Vec::new(),
			text => text?,
		};
		let (waiting, waiting_sum) = Default::default();
		let (ended, ended_sum) = Default::default();
		let mut known = Known { most, shared, waiting, waiting_sum, ended, ended_sum };
		for line in text.split_inclusive(|b| *b == b'\n').filter(|line| line.ends_with(b"\n")) {
			known.take(
				serde_json::from_slice(line).map_err(|e| std::io::Error::other(format!("{}: {e}", path.display())))?,
			);
		}
		let waiting = known.waiting.values().cloned().collect();
		let written = begin(&path, &known.text().map_err(std::io::Error::other)?).or_else(|e| {
			// The disk may be full: what there is stays.
			let file = File::options().append(true).open(&path)?;
			error!("{} can't be written anew: {e}", path.display());
			let length = text.iter().rposition(|b| *b == b'\n').map_or(0, |at| at as u64 + 1);
			Ok::<_, std::io::Error>(Written { file, length, begun_with: length })
		})?;
		Ok((Events { path, known: Mutex::new(known), written: Mutex::new(written) }, waiting))
	}

	/// Whether there are any without a result.
	pub fn any_waits(&self) -> bool {
		self.waiting() > 0
	}

	/// Returns when it is on disk.
	pub fn accept(&self, event: Event) -> Result<()> {
		let mut written = locked(&self.written);
		{
			let known = locked(&self.known);
			if !known.has_room(&event) {
				return Err(ApiError::too_many("too many events wait; try again later"));
			}
		}
		self.add(&mut written, Line::Event(event))
	}

	/// Records what has come of it. The first result stays.
	pub fn end(&self, ended: Ended) -> Result<()> {
		let mut written = locked(&self.written);
		let waits = locked(&self.known).waiting.contains_key(&ended.id);
		if waits { self.add(&mut written, Line::Ended(ended)) } else { Ok(()) }
	}

	/// How many wait.
	pub fn waiting(&self) -> usize {
		locked(&self.known).waiting.len()
	}

	/// What has come of it, if anything has; `None` if there is no such event of this owner's.
	pub fn result(&self, owner: &str, id: &str) -> Option<Option<Ended>> {
		let Known { waiting, ended, .. } = &*locked(&self.known);
		let ended = ended.iter().rfind(|ended| ended.id == id && ended.owner == owner).cloned();
		let waits = waiting.get(id).is_some_and(|event| event.owner == owner);
		(ended.is_some() || waits).then_some(ended)
	}

	fn add(&self, written: &mut Written, line: Line) -> Result<()> {
		let said = match &line {
			Line::Event(event) => Said::Event(event),
			Line::Ended(ended) => Said::Ended(ended),
		};
		let mut text = serde_json::to_vec(&said).map_err(ApiError::service)?;
		text.push(b'\n');
		let Written { file, length, begun_with } = written;
		// Half a line, of an addition that failed, would break the next one.
		if file.metadata()?.len() != *length {
			file.set_len(*length)?;
		}
		file.write_all(&text).and_then(|()| file.sync_data())?;
		let before = *length;
		*length += text.len() as u64;
		let most = {
			let mut known = locked(&self.known);
			known.take(line);
			known.most as u64
		};
		// Not for a few bytes.
		if before > 2 * *begun_with + most / 8 {
			let text = locked(&self.known).text()?;
			match begin(&self.path, &text) {
				Ok(begun) => *written = begun,
				// All of it is there still.
				Err(e) => error!("{} can't be written anew: {e}", self.path.display()),
			}
		}
		Ok(())
	}
}

/// Writes the file anew.
fn begin(path: &Path, text: &[u8]) -> std::io::Result<Written> {
	write(path, text)?;
	let length = text.len() as u64;
	Ok(Written { file: File::options().append(true).open(path)?, length, begun_with: length })
}

#[cfg(test)]
mod tests {
	use super::*;

	#[test]
	fn what_was_accepted_comes_back_once_and_half_a_line_is_nothing() {
		let state = tempfile::tempdir().unwrap();
		let (events, waiting) = Events::open(state.path(), false).unwrap();
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
			let (events, waiting) = Events::open(state.path(), false).unwrap();
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

	#[test]
	fn half_a_line_that_could_not_be_taken_back_breaks_no_other() {
		let state = tempfile::tempdir().unwrap();
		let (events, _) = Events::open(state.path(), false).unwrap();
		let event = |id: &str| Event { id: id.into(), owner: "o".into(), function: "f".into(), payload: "{}".into() };
		events.accept(event("a")).unwrap();
		locked(&events.written).file.write_all(b"{\"Event\":{\"id\":\"b\"").unwrap();
		events.accept(event("c")).unwrap();
		drop(events);
		let (_, waiting) = Events::open(state.path(), false).unwrap();
		assert_eq!(waiting.iter().map(|event| event.id.as_str()).collect::<Vec<_>>(), ["a", "c"]);
	}

	#[test]
	fn events_have_limits_in_bytes_and_their_file_is_of_what_there_is() {
		let state = tempfile::tempdir().unwrap();
		const MOST: usize = 1 << 20;
		let (events, _) = Events::open_up_to(MOST, state.path(), false).unwrap();
		// Written, a byte is six, and there are quotation marks.
		let payload = "\u{1}".repeat(MOST / 128 / 6);
		let event =
			|id: usize| Event { id: id.to_string(), owner: "o".into(), function: "f".into(), payload: payload.clone() };
		let most = MOST / (payload.len() * 6 + 2);
		for id in 0..most {
			events.accept(event(id)).unwrap();
		}
		assert_eq!(events.accept(event(most)).unwrap_err().kind, "TooManyRequestsException");
		for id in 0..most {
			let (status, attempts) = ("Succeeded".into(), 1);
			events
				.end(Ended { id: id.to_string(), owner: "o".into(), status, attempts, payload: payload.repeat(4) })
				.unwrap();
		}
		// The latest are there, of as many bytes as all may have; the file has been written anew since.
		assert!(events.result("o", "0").is_none());
		assert_eq!(events.result("o", &(most - 1).to_string()).unwrap().unwrap().payload.len(), 4 * payload.len());
		let len = |events: &Events| locked(&events.written).file.metadata().unwrap().len();
		assert!(len(&events) < 5 * MOST as u64);
		events.accept(event(most)).unwrap();
		drop(events);
		let (events, waiting) = Events::open_up_to(MOST, state.path(), false).unwrap();
		assert_eq!(waiting.len(), 1);
		let kept = locked(&events.known).ended_sum.bytes;
		assert!((MOST * 15 / 16..=MOST).contains(&kept), "{kept}");
		assert!(len(&events) < (MOST + MOST / 16) as u64);
	}

	#[test]
	fn no_owner_s_events_push_out_another_s() {
		let state = tempfile::tempdir().unwrap();
		const MOST: usize = 1 << 20;
		let (events, _) = Events::open_up_to(MOST, state.path(), true).unwrap();
		let event = |owner: &str, id: usize, payload: String| Event {
			id: format!("{owner}{id}"),
			owner: owner.into(),
			function: "f".into(),
			payload,
		};
		let end = |Event { id, owner, payload, .. }| {
			events.end(Ended { id, owner, status: "Succeeded".into(), attempts: 1, payload })
		};
		events.accept(event("small", 0, "1".into())).unwrap();
		end(event("small", 0, "1".into())).unwrap();
		let large = |id| event("large", id, "x".repeat(MOST / 4));
		for id in 0..8 {
			events.accept(large(id)).unwrap();
			end(large(id)).unwrap();
		}
		assert!(events.result("small", "small0").is_some() && events.result("large", "large0").is_none());
		// Of what waits one has half.
		(8..11).for_each(|id| events.accept(large(id)).unwrap());
		assert_eq!(events.accept(large(11)).unwrap_err().kind, "TooManyRequestsException");
		events.accept(event("small", 1, "1".into())).unwrap();
	}

	#[test]
	fn events_can_be_read_where_they_can_not_be_written_anew() {
		let state = tempfile::tempdir().unwrap();
		let event = |id: &str| Event { id: id.into(), owner: "o".into(), function: "f".into(), payload: "{}".into() };
		let (events, _) = Events::open(state.path(), false).unwrap();
		events.accept(event("a")).unwrap();
		locked(&events.written).file.write_all(b"{\"Event\":{\"id\":\"b\"").unwrap();
		drop(events);
		// As on a full disk.
		std::fs::create_dir(state.path().join("events.new~")).unwrap();
		let (events, waiting) = Events::open(state.path(), false).unwrap();
		assert_eq!(waiting.len(), 1);
		events.accept(event("c")).unwrap();
		drop(events);
		assert_eq!(Events::open(state.path(), false).unwrap().1.len(), 2);
	}
}
