//! How the cluster is, by what NATS tells of it.

use async_nats::{Client, ConnectOptions};
use futures_util::StreamExt;
use hyper::body::Bytes;
use tokio::time::{sleep, timeout};

use super::{site::url, wire};
use crate::prelude::*;

/// How long the cluster may take to become as it should be.
const PATIENCE: Duration = Duration::from_secs(60);
/// How often NATS is asked whether it is there, as nodes ask.
const PING: Duration = Duration::from_secs(2);
const EVENTS: &str = "flashfork_events";

/// A connection from a node's machine, on which this thread is.
pub async fn connect(node: usize) -> Result<Client> {
	let options = ConnectOptions::new().ping_interval(PING).connection_timeout(PING);
	options.connect(url(node)).await.map_err(|error| unable!("can't connect to NATS: {error}"))
}

/// Waits until something is so.
pub async fn until(not: &str, mut is: impl AsyncFnMut() -> Result<bool>) -> Result {
	let begin = Instant::now();
	while !is().await? {
		if begin.elapsed() > PATIENCE {
			return Err(unable!("{not}"));
		}
		sleep(Duration::from_millis(20)).await;
	}
	Ok(())
}

/// Has a node warm a function, when it hears of that.
pub async fn warm(client: &Client, node: usize, function: &str) -> Result {
	let mut why = String::new();
	let ask = async || match wire::ask(client, wire::own(node, "warm"), function, Bytes::new()).await {
		Ok(_) => Ok(true),
		Err(error) => {
			why = error.to_string();
			Ok(false)
		}
	};
	let done = until("a node does not warm a function", ask).await;
	done.map_err(|error| unable!("{error}: {why}"))
}

/// The nodes where a function is warm.
pub async fn warm_at(client: &Client, function: &str) -> Result<Vec<String>> {
	let inbox = client.new_inbox();
	let mut answers = client.subscribe(inbox.clone()).await.map_err(BenchError::unable)?;
	let asked = client.publish_with_reply("$SRV.STATS.flashfork", inbox, Bytes::new()).await;
	asked.map_err(BenchError::unable)?;
	let function = json!(format!("{}:{}", wire::OWNER, function));
	let mut nodes = Vec::new();
	while let Ok(Some(answer)) = timeout(Duration::from_millis(500), answers.next()).await {
		let stats: Value = serde_json::from_slice(&answer.payload).unwrap_or_default();
		for endpoint in stats["endpoints"].as_array().into_iter().flatten() {
			let data = &endpoint["data"];
			if let (Some(node), Some(warm)) = (data["node"].as_str(), data["warm"].as_array()) {
				nodes.extend(warm.contains(&function).then(|| node.to_owned()));
			}
		}
	}
	nodes.sort_unstable();
	nodes.dedup();
	Ok(nodes)
}

/// What JetStream tells of the servers that have a stream; nothing while it elects somebody.
async fn group(client: &Client, stream: &str) -> Value {
	let asked = client.request(format!("$JS.API.STREAM.INFO.{stream}"), Bytes::new());
	let told = timeout(PING, asked).await.ok().and_then(Result::ok);
	let told = told.and_then(|told| serde_json::from_slice::<Value>(&told.payload).ok()).unwrap_or_default();
	told["cluster"].clone()
}

/// The server that leads the stream of events.
pub async fn leader(client: &Client) -> Result<String> {
	let mut leader = String::new();
	let ask = async || {
		leader = group(client, EVENTS).await["leader"].as_str().unwrap_or_default().to_owned();
		Ok(!leader.is_empty())
	};
	until("nobody leads the events", ask).await.map(|()| leader)
}

/// Waits until all servers have all that any has.
pub async fn settled(client: &Client) -> Result {
	until("not all servers of NATS have what the others have", async || {
		for stream in [EVENTS, "KV_flashfork_results", "KV_flashfork_functions", "OBJ_flashfork_packages"] {
			let group = group(client, stream).await;
			let replicas = group["replicas"].as_array().map(Vec::as_slice).unwrap_or_default();
			if replicas.len() + 1 < super::site::SERVERS || replicas.iter().any(|replica| replica["current"] != true) {
				return Ok(false);
			}
		}
		Ok(true)
	})
	.await
}
