//! What nodes say to each other, spoken by the bench: a call that has no HTTP in front of it. It is
//! crates/flashfork-serve/src/cluster/wire.rs, in the words that are needed here.

use std::time::{SystemTime, UNIX_EPOCH};

use async_nats::{Client, HeaderMap, StatusCode};
use futures_util::StreamExt;
use hyper::body::Bytes;
use tokio::time::timeout;

use super::site::name;
use crate::prelude::*;

const HEADER: &str = "Flashfork";
/// Without keys all functions are this owner's.
pub const OWNER: &str = "local";
/// How long a node may be silent that is at work.
const PATIENCE: Duration = Duration::from_millis(1500);

#[derive(Serialize)]
struct Order<'a> {
	id: &'a str,
	owner: &'a str,
	function: &'a str,
	context: Option<&'a str>,
	/// Milliseconds since 1970.
	deadline: u64,
}

#[derive(Debug, Deserialize)]
enum Said {
	Full,
	Late(#[allow(dead_code, reason = "shown")] String),
	Accepted(#[allow(dead_code, reason = "shown")] String),
	Working,
	Ran { failed: bool },
	Done,
	Refused { why: String },
}

/// Where a call of a function is asked for, of any node where it is warm.
pub fn run(function: &str) -> String {
	format!("flashfork.run.{OWNER}.{function}")
}

/// Where one node is asked.
pub fn own(node: usize, what: &str) -> String {
	format!("flashfork.node.{}.{what}", name(node))
}

/// Asks, and gives the answer.
pub async fn ask(client: &Client, subject: String, function: &str, payload: Bytes) -> Result<Bytes> {
	let inbox = client.new_inbox();
	let mut answers = client.subscribe(inbox.clone()).await.map_err(BenchError::unable)?;
	let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
	let deadline = (now + PATIENCE).as_millis() as u64;
	let order = Order { id: &inbox, owner: OWNER, function, context: None, deadline };
	let mut headers = HeaderMap::new();
	headers.insert(HEADER, serde_json::to_string(&order).or_cant("write an order")?.as_str());
	let sent = client.publish_with_reply_and_headers(subject.clone(), inbox, headers, payload).await;
	sent.map_err(BenchError::unable)?;
	loop {
		let Ok(Some(answer)) = timeout(PATIENCE, answers.next()).await else {
			return Err(unable!("{subject}: silence"));
		};
		if answer.status == Some(StatusCode::NO_RESPONDERS) {
			return Err(unable!("{subject}: nobody is there"));
		}
		let said = answer.headers.as_ref().and_then(|headers| headers.get(HEADER));
		let said = said.and_then(|said| serde_json::from_str(said.as_str()).ok());
		match said {
			Some(Said::Accepted(_) | Said::Working) => {}
			Some(Said::Ran { failed: false } | Said::Done) => return Ok(answer.payload),
			Some(Said::Refused { why }) => return Err(unable!("{subject}: {why}")),
			said => return Err(unable!("{subject}: {said:?} {}", String::from_utf8_lossy(&answer.payload))),
		}
	}
}
