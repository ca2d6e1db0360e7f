//! Working: what a node offers to others, and does for them.

use super::wire::{self, Bid, Order, PATIENCE, SIGN, Said};
use super::{Call, Cluster};
use crate::error::{ApiError, Result};
use crate::locked;
use crate::pool::{Function, Outcome, uuid};
use async_nats::{Message, Subject};
use axum::body::Bytes;
use axum::http::HeaderValue;
use base64::{Engine, prelude::BASE64_STANDARD as BASE64};
use futures_util::{Stream, StreamExt};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use tokio::sync::{OwnedSemaphorePermit, oneshot};
use tokio::time::timeout;

/// The queue group of nodes where a function is warm.
const GROUP: &str = "flashfork";

/// A call for another node, from which word may come that nobody waits for it any more.
struct Caller<'a> {
	cluster: &'a Cluster,
	token: String,
	gone: oneshot::Receiver<()>,
}

impl Drop for Caller<'_> {
	fn drop(&mut self) {
		locked(&self.cluster.callers).remove(&self.token);
	}
}

impl Cluster {
	/// A slot for a call of this function at once, if it is to run here.
	pub fn slot_for(&self, function: &Function) -> Option<OwnedSemaphorePermit> {
		if function.is_warm() { self.slot() } else { None }
	}

	/// A slot, if this node takes calls and has one.
	pub fn slot(&self) -> Option<OwnedSemaphorePermit> {
		if self.is_draining() { None } else { self.pool.free_slot() }
	}

	/// Runs a call here.
	pub async fn run(&self, function: &Arc<Function>, slot: OwnedSemaphorePermit, call: Call) -> Result<Outcome> {
		let function = if function.is_warm() { function } else { &self.fetched(function).await? };
		self.calls.fetch_add(1, Relaxed);
		function.call(&self.pool, slot, call.id, call.payload, call.context).await
	}

	/// Does what others ask of this node on one of its subjects.
	pub async fn obey<S, F>(self: Arc<Self>, mut messages: S, work: fn(Arc<Self>, Message) -> F)
	where
		S: Stream<Item = Message> + Unpin,
		F: Future<Output = ()> + Send + 'static,
	{
		while let Some(message) = messages.next().await {
			tokio::spawn(work(self.clone(), message));
		}
	}

	/// Runs a call for another node.
	pub async fn run_for(self: Arc<Self>, message: Message) {
		// Before it is looked whether this node is being drained.
		let _open = self.opened();
		let Some((order, reply)) = self.order(&message).await else { return };
		let Some(slot) = self.slot() else { return self.say(&reply, None, &Said::Full, Bytes::new()).await };
		self.serve(reply, async {
			let function = self.wanted(&order).await?;
			let context = order.context.map(|text| {
				let bytes = BASE64.decode(text).map_err(ApiError::bad_content)?;
				HeaderValue::try_from(bytes).map_err(ApiError::bad_content)
			});
			let call = Call { id: order.id, payload: message.payload, context: context.transpose()? };
			let outcome = self.run(&function, slot, call).await?;
			Ok((Said::Ran { failed: outcome.failed, tail: BASE64.encode(outcome.tail) }, outcome.payload))
		})
		.await;
	}

	/// Warms a function, should it not be warm.
	pub async fn warm_for(self: Arc<Self>, message: Message) {
		let Some((order, reply)) = self.order(&message).await else { return };
		if self.is_draining() {
			return self.say(&reply, None, &Said::Full, Bytes::new()).await;
		}
		self.serve(reply, async {
			let function = self.fetched(&self.wanted(&order).await?).await?;
			function.warm(&self.pool).await?;
			Ok((Said::Done, Bytes::new()))
		})
		.await;
	}

	/// Drains this node, for whom that asks.
	pub async fn drain_for(self: Arc<Self>, message: Message) {
		let Some((_, reply)) = self.order(&message).await else { return };
		self.serve(reply, async {
			self.drain().await;
			Ok((Said::Done, Bytes::new()))
		})
		.await;
	}

	/// Says what this node would give a function.
	pub async fn bid_for(self: Arc<Self>, message: Message) {
		let Some((order, reply)) = self.order(&message).await else { return };
		let slots = self.pool.slots.available_permits();
		if self.is_draining() || slots == 0 {
			return;
		}
		let function = locked(&self.functions).get(&format!("{}:{}", order.owner, order.function)).cloned();
		let warmth = function.map_or(0, |function| match (function.is_warm(), function.is_warming()) {
			(true, _) => 2,
			(_, true) => 1,
			_ => 0,
		});
		let bid = Bid { node: self.node.clone(), warmth, memory: super::status::free_memory(), slots };
		self.say(&reply, None, &bid, Bytes::new()).await;
	}

	/// Ends a call of which the last token of the subject tells that nobody waits for it.
	pub async fn gone(self: Arc<Self>, message: Message) {
		let token = message.subject.rsplit('.').next().unwrap_or_default();
		locked(&self.callers).remove(token);
	}

	async fn wanted(&self, order: &Order) -> Result<Arc<Function>> {
		self.find(&order.owner, &order.function).await?.ok_or_else(|| ApiError::no_function(&order.function))
	}

	/// What is to be done, and for whom; late ones are refused.
	async fn order(&self, message: &Message) -> Option<(Order, Subject)> {
		let (order, reply): (Order, _) = (wire::read(message)?, message.reply.clone()?);
		if order.is_late() {
			self.say(&reply, None, &Said::Late(self.node.clone()), Bytes::new()).await;
			return None;
		}
		Some((order, reply))
	}

	/// Accepts, gives signs of life, and tells what has come of it. Signs go with a subject for answers: to that NATS
	/// tells this node when nobody hears them any more, and the work is dropped.
	async fn serve(&self, reply: Subject, work: impl Future<Output = Result<(Said, Bytes)>>) {
		let (sender, gone) = oneshot::channel();
		let mut caller = Caller { cluster: self, token: uuid(), gone };
		locked(&self.callers).insert(caller.token.clone(), sender);
		let back = Subject::from(wire::own(&self.node, &format!("gone.{}", caller.token)));
		let sign = async |said: Said| self.say(&reply, Some(back.clone()), &said, Bytes::new()).await;
		let signs = async {
			sign(Said::Accepted(self.node.clone())).await;
			let mut times = tokio::time::interval_at(tokio::time::Instant::now() + SIGN, SIGN);
			loop {
				times.tick().await;
				sign(Said::Working).await;
			}
		};
		// Side by side: what is said while NATS is away may wait until it is back.
		let done = tokio::select! {
			biased;
			never = signs => never,
			done = work => done,
			_ = &mut caller.gone => return,
		};
		let (said, bytes) = done.unwrap_or_else(|e| (e.into(), Bytes::new()));
		self.say(&reply, None, &said, bytes).await;
	}

	async fn say(&self, to: &Subject, back: Option<Subject>, head: &impl serde::Serialize, bytes: Bytes) {
		let said = async {
			if let Err(e) = wire::send(&self.client, to.clone(), back, head, bytes).await {
				// Why is all that still can be said; whoever waits sees that it is no answer.
				let _ = wire::send(&self.client, to.clone(), None, &Said::from(e), Bytes::new()).await;
			}
		};
		// While NATS is away it may wait, and after that nobody waits for it any more.
		let _ = timeout(PATIENCE, said).await;
	}

	/// Has a subscription for each function that is warm here, while this node takes calls and slots are free.
	pub async fn offer(self: Arc<Self>) {
		let mut offered: BTreeMap<String, (Arc<Function>, oneshot::Sender<()>)> = BTreeMap::new();
		let mut draining = self.draining.subscribe();
		loop {
			let full = self.pool.slots.available_permits() == 0;
			let mut wanted: BTreeMap<_, _> = match full || self.is_draining() {
				true => BTreeMap::new(),
				false => {
					locked(&self.functions).clone().into_iter().filter(|(_, function)| function.is_warm()).collect()
				}
			};
			offered.retain(|name, (function, _)| {
				let stays = wanted.get(name).is_some_and(|now| Arc::ptr_eq(now, function));
				if stays {
					wanted.remove(name);
				}
				stays
			});
			for (name, function) in wanted {
				let subject = wire::run(&function.config.owner, &function.config.function_name);
				if let Ok(mut calls) = self.client.queue_subscribe(subject, GROUP.into()).await {
					let (end, mut ended) = oneshot::channel::<()>();
					let cluster = self.clone();
					tokio::spawn(async move {
						loop {
							tokio::select! {
								call = calls.next() => match call {
									Some(call) => drop(tokio::spawn(cluster.clone().run_for(call))),
									None => return,
								},
								// What is on its way is told that this node is full.
								_ = &mut ended => {
									if calls.drain().await.is_err() {
										return;
									}
									break;
								}
							}
						}
						cluster.obey(calls, Self::run_for).await;
					});
					offered.insert(name, (function, end));
				}
			}
			tokio::select! {
				() = self.pool.changed.notified() => {}
				// In its turn, behind callers who wait here.
				_ = self.pool.slots.acquire(), if full => {}
				_ = draining.changed() => {}
			}
		}
	}
}
