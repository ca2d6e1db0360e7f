//! Events of a cluster: a work queue of JetStream's that all nodes take from, and a bucket of results. An event is
//! acknowledged when its result is there; until then some node runs it again, should this one end.

use super::{
	Call, Cluster, Open, streams,
	sweep::delete_all,
	wire::{away, too_large},
};
use crate::{
	error::{ApiError, Result},
	events::{ATTEMPTS, Ended, Event},
	pool::Outcome,
	store::is_plain,
};
use async_nats::jetstream::{
	AckKind, Context, Message,
	consumer::{AckPolicy, PullConsumer, pull},
	context::PublishErrorKind,
	kv,
	kv::{CreateErrorKind, Operation},
	message::PublishMessage,
	stream::{Config, DiscardPolicy, LastRawMessageErrorKind, RetentionPolicy, Stream},
};
use axum::http::StatusCode;
use flashfork_terminal::CliError;
use futures_util::{StreamExt, TryStreamExt};
use std::{sync::Arc, time::Duration};
use tokio::{
	sync::OwnedSemaphorePermit,
	time::{Instant, interval, sleep, timeout},
};
use tracing::error;

/// Most events that wait, and most bytes of them.
const MOST_WAITING: i64 = 10_000;
const MOST_BYTES: i64 = 1 << 30;
/// How many bytes of results are kept, and how long.
const MOST_RESULTS: i64 = 4 << 30;
const KEPT: Duration = Duration::from_secs(7 * 24 * 3600);
/// After so long without a sign of its node an event is another one's; and how often signs come.
const SILENCE: Duration = Duration::from_secs(5);
const SIGN: Duration = Duration::from_secs(1);
/// How long JetStream may take to elect a leader.
const ELECTION: Duration = Duration::from_secs(10);
/// After which an event is tried again that no node has failed at.
const SOON: Duration = Duration::from_secs(1);
/// How long NATS is asked for an event at a time. A server that is started anew knows of nobody who asks, and nobody
/// hears of that.
const ASKING: Duration = Duration::from_secs(3);

const NOT_ITS: [StatusCode; 3] =
	[StatusCode::SERVICE_UNAVAILABLE, StatusCode::GATEWAY_TIMEOUT, StatusCode::TOO_MANY_REQUESTS];

/// The queue, and its results.
pub struct Queue {
	stream: Stream,
	consumer: PullConsumer,
	/// `OWNER.ID` has an `Ended` in JSON; `OWNER.ID.failed` how often it has failed.
	results: kv::Store,
	retry: Duration,
}

impl Queue {
	pub async fn open(jetstream: &Context, retry: Duration) -> std::result::Result<Queue, CliError> {
		let config = Config {
			retention: RetentionPolicy::WorkQueue,
			max_messages: MOST_WAITING,
			max_bytes: MOST_BYTES,
			discard: DiscardPolicy::New,
			..streams::plain("flashfork_events".into(), vec!["flashfork.event.>".into()])
		};
		let stream = streams::stream(jetstream, config).await?;
		let config = pull::Config {
			durable_name: Some("nodes".into()),
			ack_policy: AckPolicy::Explicit,
			ack_wait: SILENCE,
			// What waits for its next attempt counts.
			max_ack_pending: MOST_WAITING,
			..Default::default()
		};
		// Before the consumer: what comes in between counts there alone.
		let there = stream.get_info().await.map_err(streams::unable)?.state.messages;
		let mut consumer = stream.get_or_create_consumer("nodes", config.clone()).await.map_err(streams::unable)?;
		let known = consumer.cached_info();
		// Nothing runs, and there are events that nobody would be given: a purge has had the consumer pass over them.
		if known.num_ack_pending == 0 && known.num_pending < there {
			stream.delete_consumer("nodes").await.map_err(streams::unable)?;
			consumer = stream.get_or_create_consumer("nodes", config).await.map_err(streams::unable)?;
		}
		let results = streams::bucket(jetstream, "flashfork_results", Some((MOST_RESULTS, KEPT))).await?;
		Ok(Queue { stream, consumer, results, retry })
	}
}

fn subject(event: &Event) -> String {
	format!("flashfork.event.{}.{}.{}", event.owner, event.function, event.id)
}

fn key(owner: &str, id: &str) -> String {
	format!("{owner}.{id}")
}

/// What an attempt has come to.
enum Attempt {
	Over(Ended),
	Failed(Ended),
	/// It has not run, or its node has gone with it.
	Nothing,
}

impl Cluster {
	/// Returns when JetStream has it.
	pub async fn accept(&self, event: &Event) -> Result<()> {
		self.connected()?;
		let text = serde_json::to_vec(event).map_err(ApiError::service)?;
		let until = Instant::now() + ELECTION;
		loop {
			// Sent again it is known by its id.
			let message = PublishMessage::build().payload(text.clone().into()).message_id(&event.id);
			let sent = self.jetstream.send_publish(subject(event), message).await;
			let sent = match sent {
				Ok(sent) => sent.await,
				Err(e) => Err(e),
			};
			let Err(e) = sent else { return Ok(()) };
			match e.kind() {
				PublishErrorKind::MaxPayloadExceeded => return Err(too_large(&self.client)),
				PublishErrorKind::Other
					if ["messages", "bytes"]
						.iter()
						.any(|what| e.to_string().contains(&format!("maximum {what} exceeded"))) =>
				{
					return Err(ApiError::too_many("too many events wait; try again later"));
				}
				PublishErrorKind::StreamNotFound | PublishErrorKind::TimedOut if Instant::now() < until => {
					sleep(SIGN / 4).await
				}
				_ => return Err(away(format!("{e}: the event is not accepted, and may run nevertheless"))),
			}
		}
	}

	/// What has come of an event, if anything has; `None` if there is no such event of this owner's.
	pub async fn result(&self, owner: &str, function: &str, id: &str) -> Result<Option<Option<Ended>>> {
		self.connected()?;
		if !is_plain(id) {
			return Ok(None);
		}
		if let Some(ended) = self.ended(owner, id).await? {
			return Ok(Some(Some(ended)));
		}
		let event = Event { id: id.into(), owner: owner.into(), function: function.into(), payload: String::new() };
		match self.queue.stream.get_last_raw_message_by_subject(&subject(&event)).await {
			Ok(_) => Ok(Some(None)),
			// It may have ended just now.
			Err(e) if e.kind() == LastRawMessageErrorKind::NoMessageFound => Ok(self.ended(owner, id).await?.map(Some)),
			Err(e) => Err(away(e)),
		}
	}

	async fn ended(&self, owner: &str, id: &str) -> Result<Option<Ended>> {
		let entry = self.queue.results.entry(key(owner, id)).await.map_err(away)?;
		let entry = entry.filter(|entry| entry.operation == Operation::Put);
		entry.map(|entry| serde_json::from_slice(&entry.value).map_err(ApiError::service)).transpose()
	}

	/// Deletes those that stay though they have a result.
	pub async fn sweep_events(&self) -> Result<()> {
		let stream = &self.queue.stream;
		let mut waiting = stream.info_with_subjects("flashfork.event.>").await.map_err(away)?;
		let mut over = Vec::new();
		while let Some((subject, _)) = waiting.try_next().await.map_err(away)? {
			if let [.., owner, _, id] = subject.split('.').collect::<Vec<_>>()[..]
				&& self.ended(owner, id).await?.is_some()
			{
				over.push(subject);
			}
		}
		// One that has just got its result is acknowledged by its node, or by the next one that is given it.
		sleep(2 * SILENCE).await;
		for subject in over {
			delete_all(stream, &subject).await?;
		}
		Ok(())
	}

	/// How many wait, at all nodes; `None` where NATS doesn't say.
	pub async fn waiting_events(&self) -> Option<usize> {
		let told = timeout(SIGN, self.queue.stream.get_info()).await.ok()?.ok()?;
		Some(told.state.messages as usize)
	}

	/// Takes events while slots are free, until this node is drained.
	pub async fn take_events(self: Arc<Self>) {
		let mut draining = self.draining.subscribe();
		tokio::select! {
			() = self.clone().take_each() => {}
			_ = draining.wait_for(|draining| *draining) => {}
		}
	}

	async fn take_each(self: Arc<Self>) {
		loop {
			if self.connected().is_err() {
				sleep(SIGN).await;
				continue;
			}
			// In its turn with callers who wait here.
			let Ok(slot) = self.pool.slots.clone().acquire_owned().await else { return };
			// What is silent for so long has broken, and an event that comes later is another node's already.
			if let Ok(Some(message)) = timeout(SILENCE, self.waiting_event()).await {
				tokio::spawn(self.clone().run_event(self.opened(), message, slot));
				continue;
			}
			drop(slot);
			let next = self.queue.consumer.batch().max_messages(1).expires(ASKING).messages().await;
			match next {
				Ok(mut next) => match next.next().await {
					Some(Ok(message)) => match self.pool.free_slot() {
						Some(slot) => drop(tokio::spawn(self.clone().run_event(self.opened(), message, slot))),
						None => again(&message, None).await,
					},
					Some(Err(_)) => sleep(SIGN).await,
					None => {}
				},
				// NATS is away.
				Err(_) => sleep(SIGN).await,
			}
		}
	}

	/// One that waits now, if any does.
	async fn waiting_event(&self) -> Option<Message> {
		let mut waiting = self.queue.consumer.fetch().max_messages(1).messages().await.ok()?;
		waiting.next().await?.ok()
	}

	async fn run_event(self: Arc<Self>, _open: Open, message: Message, slot: OwnedSemaphorePermit) {
		let event = match serde_json::from_slice::<Event>(&message.payload) {
			Ok(event) => event,
			Err(e) => {
				error!("an event that makes no sense is dropped: {e}");
				let _ = timeout(SILENCE, message.ack_with(AckKind::Term)).await;
				return;
			}
		};
		let signs = async {
			let mut times = interval(SIGN);
			loop {
				times.tick().await;
				// Should it not be heard, another node takes the event.
				let _ = message.ack_with(AckKind::Progress).await;
			}
		};
		// Side by side: a sign may wait while NATS is away.
		let done = tokio::select! {
			never = signs => never,
			done = self.work_off(&event, slot) => done,
		};
		match done {
			// Should it not be heard, the event comes again, and has its result.
			Ok(None) => drop(timeout(SILENCE, message.double_ack()).await),
			Ok(Some(delay)) => again(&message, Some(delay)).await,
			Err(e) => {
				error!("what has come of an event can't be recorded; it runs again: {e}");
				again(&message, Some(SOON)).await;
			}
		}
	}

	/// Tries an event, and records what has come of it; or else after which time it is to be tried again.
	async fn work_off(self: &Arc<Self>, event: &Event, slot: OwnedSemaphorePermit) -> Result<Option<Duration>> {
		match self.attempt(event, slot).await? {
			Attempt::Nothing => Ok(Some(SOON)),
			Attempt::Failed(ended) if ended.attempts < ATTEMPTS => {
				let (key, count) = (key(&event.owner, &event.id) + ".failed", ended.attempts.to_string());
				let noted = || async { self.queue.results.put(&key, count.clone().into()).await.map_err(away) };
				patiently(noted).await?;
				Ok(Some(self.queue.retry * ended.attempts))
			}
			Attempt::Over(ended) | Attempt::Failed(ended) => patiently(|| self.end(&ended)).await.map(|()| None),
		}
	}

	async fn attempt(self: &Arc<Self>, event: &Event, slot: OwnedSemaphorePermit) -> Result<Attempt> {
		// It may have run, and not been acknowledged.
		if let Some(ended) = patiently(|| self.ended(&event.owner, &event.id)).await? {
			return Ok(Attempt::Over(ended));
		}
		let key = key(&event.owner, &event.id) + ".failed";
		let failed = patiently(|| async { self.queue.results.entry(&key).await.map_err(away) }).await?;
		let failed = failed.and_then(|entry| std::str::from_utf8(&entry.value).ok()?.parse::<u32>().ok());
		let ended = |status: &str, payload: String| Ended {
			id: event.id.clone(),
			owner: event.owner.clone(),
			status: status.into(),
			attempts: failed.unwrap_or_default() + 1,
			payload,
		};
		let text = |outcome: &Outcome| String::from_utf8_lossy(&outcome.payload).into_owned();
		Ok(match self.somewhere(event, slot).await {
			Ok(None) => Attempt::Nothing,
			Ok(Some(outcome)) if outcome.failed => Attempt::Failed(ended("Failed", text(&outcome))),
			Ok(Some(outcome)) => Attempt::Over(ended("Succeeded", text(&outcome))),
			// The node has gone, is full, or could not be asked: that is not this event's failure.
			Err(e) if NOT_ITS.contains(&e.status) => Attempt::Nothing,
			Err(e) => Attempt::Failed(ended("Failed", e.to_string())),
		})
	}

	/// Calls it, here where it is warm here.
	async fn somewhere(self: &Arc<Self>, event: &Event, slot: OwnedSemaphorePermit) -> Result<Option<Outcome>> {
		let Some(function) = self.find(&event.owner, &event.function).await? else {
			// What this node can't read another one may, or it may be mended.
			let is_there = patiently(|| self.is_in_bucket(&event.owner, &event.function)).await?;
			return if is_there { Ok(None) } else { Err(ApiError::no_function(&event.function)) };
		};
		let call = Call { id: event.id.clone(), payload: event.payload.clone().into(), context: None };
		if function.is_warm() {
			return self.run(&function, slot, call).await.map(Some);
		}
		drop(slot);
		self.elsewhere(&function, &call, false).await
	}

	/// Records what has come of an event. The first result stays.
	async fn end(&self, ended: &Ended) -> Result<()> {
		let record = |ended: &Ended| serde_json::to_vec(ended).map_err(ApiError::service);
		let mut text = record(ended)?;
		// With the headers that a record in a bucket has.
		if text.len() + 1024 > self.client.max_payload() {
			let payload = too_large(&self.client).to_string();
			text = record(&Ended { status: "Failed".into(), payload, ..ended.clone() })?;
		}
		match self.queue.results.create(key(&ended.owner, &ended.id), text.into()).await {
			Err(e) if e.kind() != CreateErrorKind::AlreadyExists => Err(away(e)),
			_ => Ok(()),
		}
	}
}

/// Does again what NATS has not answered, until JetStream must have elected a leader.
pub async fn patiently<T, F: Future<Output = Result<T>>>(work: impl Fn() -> F) -> Result<T> {
	let until = Instant::now() + ELECTION;
	loop {
		// While NATS is away even asking may wait.
		match timeout(ELECTION, work()).await.unwrap_or_else(|e| Err(away(e))) {
			Err(e) if e.status == StatusCode::SERVICE_UNAVAILABLE && Instant::now() < until => sleep(SIGN / 4).await,
			done => return done,
		}
	}
}

/// Gives an event back. Should that not be heard, it comes back by itself.
async fn again(message: &Message, delay: Option<Duration>) {
	let _ = timeout(SILENCE, message.ack_with(AckKind::Nak(delay))).await;
}
