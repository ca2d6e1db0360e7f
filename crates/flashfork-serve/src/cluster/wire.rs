//! What nodes say to each other. The head of a message is a line of JSON in one header of NATS's; behind it are the
//! bytes that it is about, a call's payload or its answer.

use crate::error::{ApiError, Result};
use async_nats::{Client, HeaderMap, Message, Subject, client::PublishErrorKind};
use axum::body::Bytes;
use serde::{Deserialize, Serialize, de::DeserializeOwned};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

const HEADER: &str = "Flashfork";

/// Where all nodes are told that one is about to take no more calls of functions.
pub const PART: &str = "flashfork.part";

/// How often a node says that it is at work.
pub const SIGN: Duration = Duration::from_millis(500);
/// How long whoever has asked waits for the next sign.
pub const PATIENCE: Duration = Duration::from_millis(1500);

/// Where calls of a function are asked for: a queue group of nodes where it is warm.
pub fn run(owner: &str, function: &str) -> String {
	format!("flashfork.run.{owner}.{function}")
}

/// Where all nodes are asked whether they would take a function.
pub fn bid(owner: &str, function: &str) -> String {
	format!("flashfork.bid.{owner}.{function}")
}

/// Where one node alone is asked.
pub fn own(node: &str, what: &str) -> String {
	format!("flashfork.node.{node}.{what}")
}

/// What a node is to do.
#[derive(Debug, Default, Serialize, Deserialize)]
pub struct Order {
	/// The call's id.
	pub id: String,
	pub owner: String,
	pub function: String,
	/// The client context, in base64.
	pub context: Option<String>,
	/// When it is too late, in milliseconds since 1970: whoever has asked has gone.
	pub deadline: u64,
}

impl Order {
	/// One that is to be taken now.
	pub fn new(id: String, owner: &str, function: &str) -> Order {
		let deadline = now() + PATIENCE.as_millis() as u64;
		Order { id, owner: owner.into(), function: function.into(), context: None, deadline }
	}

	/// Whether it has come too late.
	pub fn is_late(&self) -> bool {
		now() > self.deadline
	}
}

fn now() -> u64 {
	SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_millis() as u64
}

/// What a node answers. The first is `Full`, `Late` or `Accepted`; after that `Working` comes every [`SIGN`], and what
/// has come of it in the end.
#[derive(Debug, Serialize, Deserialize)]
pub enum Said {
	/// The last slot has gone; nothing has run.
	Full,
	/// The order has come after its deadline to this node; nothing has run.
	Late(String),
	/// By this node. From now on something may run.
	Accepted(String),
	Working,
	/// The call's answer is behind it. With the end of its log, in base64.
	Ran {
		failed: bool,
		tail: String,
	},
	/// What is no call is done.
	Done,
	/// An `ApiError`.
	Refused {
		status: u16,
		kind: String,
		why: String,
	},
}

impl From<ApiError> for Said {
	fn from(e: ApiError) -> Said {
		Said::Refused { status: e.status.as_u16(), kind: e.kind.into(), why: e.why }
	}
}

/// What a node would give a function.
#[derive(Debug, Serialize, Deserialize)]
pub struct Bid {
	pub node: String,
	/// Whether it could not be warmed there lately.
	#[serde(default)]
	pub failed: bool,
	/// 2 where it is warm, 1 where it is being warmed.
	pub warmth: u8,
	/// Megabytes that are free.
	pub memory: u64,
	pub slots: usize,
}

impl Bid {
	pub fn is_warm(&self) -> bool {
		self.warmth == 2
	}
}

/// Sends a message; `reply` is where an answer to it would go.
pub async fn send(
	client: &Client,
	subject: impl Into<Subject>,
	reply: Option<Subject>,
	head: &impl Serialize,
	bytes: Bytes,
) -> Result<()> {
	let mut headers = HeaderMap::new();
	headers.insert(HEADER, serde_json::to_string(head).map_err(ApiError::service)?.as_str());
	let subject: Subject = subject.into();
	let sent = match reply {
		Some(reply) => client.publish_with_reply_and_headers(subject, reply, headers, bytes).await,
		None => client.publish_with_headers(subject, headers, bytes).await,
	};
	sent.map_err(|e| if e.kind() == PublishErrorKind::MaxPayloadExceeded { too_large(client) } else { away(e) })
}

/// What a message says, if this program understands it.
pub fn read<T: DeserializeOwned>(message: &Message) -> Option<T> {
	let head = message.headers.as_ref()?.get(HEADER)?;
	serde_json::from_str(head.as_str()).ok()
}

/// NATS can't be asked, or has not answered.
pub fn away(why: impl std::fmt::Display) -> ApiError {
	ApiError::unavailable(format!("NATS: {why}"))
}

/// Of what is longer than a message may be.
pub fn too_large(client: &Client) -> ApiError {
	let most = client.max_payload();
	ApiError::too_large(format!(
		"between nodes a call, an event and their answers have {most} bytes at most, with all that is said about them, \
		 which is max_payload of nats-server: set max_payload: 16MB in its configuration"
	))
}
