//! What JetStream keeps for a cluster: made by the first node, on three servers where there are as many.

use async_nats::jetstream::{
	Context, ErrorCode,
	context::{
		CreateStreamErrorKind::{self, JetStream},
		GetStreamErrorKind,
	},
	kv, object_store,
	stream::{Config, DiscardPolicy, StorageType, Stream},
};
use flashfork_terminal::CliError;
use std::time::Duration;
use tracing::error;

const REPLICAS: usize = 3;
/// How often, and how many seconds apart, a stream is asked for at a node's start while JetStream elects somebody.
const TRIES: u32 = 30;

/// A bucket of keys and values. `kept`: the last so many bytes, for so long; without, all for ever.
pub async fn bucket(jetstream: &Context, name: &str, kept: Option<(i64, Duration)>) -> Result<kv::Store, CliError> {
	let (max_bytes, max_age) = kept.unwrap_or_default();
	let config = Config {
		max_messages_per_subject: 1,
		allow_rollup: true,
		deny_delete: true,
		discard: if kept.is_some() { DiscardPolicy::Old } else { DiscardPolicy::New },
		max_bytes,
		max_age,
		..plain(format!("KV_{name}"), vec![format!("$KV.{name}.>")])
	};
	stream(jetstream, config).await?;
	jetstream.get_key_value(name).await.map_err(unable)
}

/// A bucket of packages.
pub async fn objects(jetstream: &Context, name: &str) -> Result<object_store::ObjectStore, CliError> {
	let config = Config {
		allow_rollup: true,
		discard: DiscardPolicy::New,
		..plain(format!("OBJ_{name}"), ["C", "M"].map(|kind| format!("$O.{name}.{kind}.>")).into())
	};
	stream(jetstream, config).await?;
	jetstream.get_object_store(name).await.map_err(unable)
}

/// One in files. Unlike those that the client makes it is read where it is written (no `allow_direct`): what was put
/// into it is there for whoever asks next.
pub fn plain(name: String, subjects: Vec<String>) -> Config {
	Config { name, subjects, storage: StorageType::File, num_replicas: REPLICAS, ..Config::default() }
}

/// Makes it unless it is there; one that was made before there were three servers is on three from now on, and one
/// without a bound has it.
pub async fn stream(jetstream: &Context, config: Config) -> Result<Stream, CliError> {
	let mut why = String::new();
	for _ in 0..TRIES {
		match jetstream.get_stream(&config.name).await {
			Ok(stream) => {
				let there = &stream.cached_info().config;
				let mut wanted = there.clone();
				// A server alone takes any number, and keeps one.
				if there.num_replicas < REPLICAS && jetstream.client().server_info().cluster.is_some() {
					wanted.num_replicas = REPLICAS;
				}
				if there.max_bytes <= 0 && config.max_bytes > 0 {
					(wanted.max_bytes, wanted.discard) = (config.max_bytes, config.discard);
				}
				if wanted != *there
					&& let Err(e) = jetstream.update_stream(&wanted).await
				{
					error!(
						"{} has still {} servers and {} bytes: {e}",
						config.name, there.num_replicas, there.max_bytes
					);
				}
				return Ok(stream);
			}
			Err(e) => match e.kind() {
				GetStreamErrorKind::JetStream(e) if e.error_code() == ErrorCode::STREAM_NOT_FOUND => {
					match create(jetstream, &config).await {
						Ok(()) => continue,
						Err(kind) => why = kind.to_string(),
					}
				}
				_ => why = e.to_string(),
			},
		}
		tokio::time::sleep(Duration::from_secs(1)).await;
	}
	let need = "nodes need JetStream, switched on in the servers' configuration, with 5 GB";
	Err(unable(format!("{why}; {need} (max_file_store there; without it, three quarters of what the disk has free)")))
}

async fn create(jetstream: &Context, config: &Config) -> Result<(), CreateStreamErrorKind> {
	let few =
		[ErrorCode::STREAM_REPLICAS_NOT_SUPPORTED, ErrorCode::CLUSTER_NO_PEERS, ErrorCode::INSUFFICIENT_RESOURCES];
	for num_replicas in [REPLICAS, 1] {
		match jetstream.create_stream(Config { num_replicas, ..config.clone() }).await.map_err(|e| e.kind()) {
			Ok(_) => return Ok(()),
			// Another node was faster.
			Err(JetStream(e)) if e.error_code() == ErrorCode::STREAM_NAME_EXIST => return Ok(()),
			Err(JetStream(e)) if num_replicas > 1 && few.contains(&e.error_code()) => {}
			Err(e) => return Err(e),
		}
	}
	Ok(())
}

/// What can't be had of NATS, with the cure where JetStream is silent.
pub fn unable(why: impl std::fmt::Display) -> CliError {
	let why = why.to_string();
	let cure = if ["timed out", "temporarily unavailable"].iter().any(|what| why.contains(what)) {
		"; of servers that have just started JetStream may still elect its leaders: start this node again in a moment, and \
		 see that more than half of the servers run and reach each other (their logs say so)"
	} else {
		""
	};
	CliError::Unable(format!("NATS: {why}{cure}"))
}

#[cfg(test)]
mod tests {
	use async_nats::jetstream::kv::{EntryError, EntryErrorKind};

	#[test]
	fn where_jetstream_is_silent_the_cure_is_said() {
		let said = |kind| super::unable(EntryError::new(kind)).to_string();
		assert!(said(EntryErrorKind::TimedOut).contains("start this node again"));
		assert!(!said(EntryErrorKind::InvalidKey).contains("again"));
	}
}
