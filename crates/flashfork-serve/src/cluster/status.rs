//! What nodes tell of themselves, as NATS services do (ADR-32): whoever knows that can ask for it.

use super::{SERVICE, streams};
use async_nats::{Client, StatusCode, service::Stats};
use flashfork_terminal::CliError;
use futures_util::StreamExt;
use serde::{Deserialize, Serialize};
use std::time::Duration;
use tokio::time::timeout;

/// How long nodes may take to answer; and how long after one the next may take.
const FIRST: Duration = Duration::from_secs(2);
const NEXT: Duration = Duration::from_millis(500);

/// A node.
#[derive(Debug, Serialize, Deserialize)]
pub struct Node {
	pub node: String,
	/// A number of its own, by which two of one name differ.
	#[serde(default)]
	pub id: String,
	/// `starting`, `ready`, `draining` or `drained`.
	pub state: String,
	/// Full names of functions.
	pub warm: Vec<String>,
	pub free: usize,
	pub slots: u32,
	/// That have begun there since its start.
	pub calls: u64,
	/// Megabytes that are free.
	pub memory: u64,
}

/// All nodes that answer, by their names.
pub async fn all(client: &Client) -> Result<Vec<Node>, CliError> {
	let inbox = client.new_inbox();
	let mut answers = client.subscribe(inbox.clone()).await.map_err(streams::unable)?;
	let asked = client.publish_with_reply(format!("$SRV.STATS.{SERVICE}"), inbox, "".into()).await;
	asked.map_err(streams::unable)?;
	let (mut nodes, mut patience) = (Vec::new(), FIRST);
	while let Ok(Some(answer)) = timeout(patience, answers.next()).await {
		if answer.status == Some(StatusCode::NO_RESPONDERS) {
			break;
		}
		patience = NEXT;
		let stats = serde_json::from_slice::<Stats>(&answer.payload);
		let told = stats.ok().and_then(|stats| stats.endpoints.into_iter().find_map(|endpoint| endpoint.data));
		nodes.extend(told.and_then(|told| serde_json::from_value::<Node>(told).ok()));
	}
	nodes.sort_by(|a, b| a.node.cmp(&b.node));
	Ok(nodes)
}

/// Megabytes that this machine has free.
pub fn free_memory() -> u64 {
	let text = std::fs::read_to_string("/proc/meminfo").unwrap_or_default();
	let kilobytes = text.lines().find_map(|line| line.strip_prefix("MemAvailable:")?.split_whitespace().next());
	kilobytes.and_then(|number| number.parse::<u64>().ok()).unwrap_or_default() >> 10
}
