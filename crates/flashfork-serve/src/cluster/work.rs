//! Working: what a node offers to others, and does for them.

use super::{
	Call, Cluster,
	ask::{Heard, ask},
	wire::{self, Bid, Order, PATIENCE, SIGN, Said},
};
use crate::{
	error::{ApiError, Result},
	locked,
	pool::{Function, Outcome, uuid},
};
use async_nats::{Message, Subject, Subscriber};
use axum::{
	body::Bytes,
	http::{HeaderValue, StatusCode},
};
use base64::{Engine, prelude::BASE64_STANDARD as BASE64};
use futures_util::{FutureExt, Stream, StreamExt};
use std::{
	collections::BTreeMap,
	pin::pin,
	sync::{
		Arc,
		atomic::{AtomicBool, Ordering::Relaxed},
	},
};
use tokio::{
	sync::{OwnedSemaphorePermit, oneshot, watch},
	time::{sleep, timeout},
};

/// The queue group of nodes where a function is warm.
const GROUP: &str = "flashfork";

/// Calls that a subscription of these has; more may not come before NATS hears of that, or they are lost. The next one
/// is made when half of them have come.
const OFFERED: u64 = 16;

/// A function that this node takes calls of.
struct Offer {
	function: Arc<Function>,
	/// Whether another subscription is due.
	spent: Arc<AtomicBool>,
	/// Dropped when no more calls are wanted.
	stays: watch::Sender<()>,
}

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
	pub async fn run(
		self: &Arc<Self>,
		function: &Arc<Function>,
		slot: OwnedSemaphorePermit,
		call: Call,
	) -> Result<Outcome> {
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

	/// Runs a call that another node has this one run.
	pub async fn run_for(self: Arc<Self>, message: Message) {
		self.run_asked(message, false).await;
	}

	/// The same of one that NATS has given this node because it is, or was, `warm` here.
	async fn run_asked(self: Arc<Self>, message: Message, warm: bool) {
		// Before it is looked whether this node is being drained.
		let _open = self.opened();
		let Some((order, reply)) = self.order(&message).await else { return };
		let is_warm = || self.known(&order.owner, &order.function).is_some_and(|known| known.is_warm());
		let slot = if !warm || is_warm() { self.slot() } else { None };
		let Some(slot) = slot else { return self.say(&reply, None, &Said::Full, Bytes::new()).await };
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
			// To its end, also when who asks for it goes.
			let cluster = self.clone();
			tokio::spawn(async move { cluster.drain().await }).await.map_err(ApiError::service)?;
			Ok((Said::Done, Bytes::new()))
		})
		.await;
	}

	/// Says what this node would give a function.
	pub async fn bid_for(self: Arc<Self>, message: Message) {
		let Some((order, reply)) = self.order(&message).await else { return };
		let slots = self.pool.slots.available_permits();
		if self.is_draining() || slots == 0 || !self.started.load(Relaxed) {
			return;
		}
		let function = locked(&self.functions).get(&format!("{}:{}", order.owner, order.function)).cloned();
		let failed = function.as_ref().is_some_and(|function| function.has_failed());
		let warmth = function.map_or(0, |function| match (function.is_warm(), function.is_warming()) {
			(true, _) => 2,
			(_, true) => 1,
			_ => 0,
		});
		let bid = Bid { node: self.node.clone(), failed, warmth, memory: super::status::free_memory(), slots };
		self.say(&reply, None, &bid, Bytes::new()).await;
	}

	/// Has nodes ask elsewhere for functions that were warm here. What another NATS server gives this one just when
	/// nobody listens any more would be lost.
	pub async fn part(&self, functions: &[String]) -> Result<()> {
		wire::send(&self.client, wire::PART, None, &functions, Bytes::new()).await?;
		self.client.flush().await.map_err(wire::away)?;
		// What they have asked before that is here by then.
		sleep(SIGN).await;
		Ok(())
	}

	/// Does so, for longer than that node's subscriptions stay.
	pub async fn parts(self: Arc<Self>, message: Message) {
		self.ask_bidders(wire::read::<Vec<_>>(&message).unwrap_or_default(), PATIENCE, false);
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

	/// Offers each function that is warm here until this node has parted; also when all slots are taken, which is said.
	/// Else NATS servers would go on to give this one's calls for a moment, and they would be lost.
	pub async fn offer(self: Arc<Self>) {
		let mut offers: BTreeMap<String, Offer> = BTreeMap::new();
		let mut parted = self.parted.subscribe();
		loop {
			let warm: BTreeMap<_, _> = match *self.parted.borrow() {
				true => BTreeMap::new(),
				false => {
					locked(&self.functions).clone().into_iter().filter(|(_, function)| function.is_warm()).collect()
				}
			};
			offers.retain(|name, offer| warm.get(name).is_some_and(|now| Arc::ptr_eq(now, &offer.function)));
			for (name, function) in warm {
				let offer = offers.entry(name).or_insert_with(|| Offer {
					function,
					spent: Arc::new(true.into()),
					stays: watch::Sender::new(()),
				});
				if offer.spent.load(Relaxed)
					&& let Ok(calls) = self.subscription(&offer.function).await
				{
					offer.spent.store(false, Relaxed);
					let (function, spent, stays) =
						(offer.function.clone(), offer.spent.clone(), offer.stays.subscribe());
					tokio::spawn(self.clone().take_offered(calls, function, spent, stays));
				}
			}
			tokio::select! {
				() = self.pool.changed.notified() => {}
				_ = parted.changed() => {}
			}
		}
	}

	/// One to which NATS gives so many calls. It is never given up before: of what NATS has given it by then the client
	/// would lose what it has not read yet.
	async fn subscription(&self, function: &Function) -> std::result::Result<Subscriber, async_nats::Error> {
		let subject = wire::run(&function.config.owner, &function.config.function_name);
		let mut calls = self.client.queue_subscribe(subject, GROUP.into()).await?;
		calls.unsubscribe_after(OFFERED).await?;
		Ok(calls)
	}

	/// Runs them, and says when half of them have come.
	async fn take_offered(
		self: Arc<Self>,
		mut calls: Subscriber,
		function: Arc<Function>,
		spent: Arc<AtomicBool>,
		mut stays: watch::Receiver<()>,
	) {
		let _open = self.opened();
		let mut used_up = pin!(async {
			while stays.changed().await.is_ok() {}
			self.leave(&function).await;
		});
		let (mut count, mut over) = (0, false);
		loop {
			let call = match over {
				true => calls.next().now_or_never().flatten(),
				false => tokio::select! {
					call = calls.next() => call,
					() = &mut used_up => {
						over = true;
						continue;
					}
				},
			};
			let Some(call) = call else { return };
			count += 1;
			if count == OFFERED / 2 {
				spent.store(true, Relaxed);
				self.pool.changed.notify_one();
			}
			tokio::spawn(self.clone().run_asked(call, true));
		}
	}

	/// Ends what it offers of a function. Where that takes long, nodes are told again to ask elsewhere.
	async fn leave(&self, function: &Function) {
		let tells = async {
			loop {
				sleep(SIGN).await;
				// Without NATS nobody asks.
				let _ = self.part(&[function.config.full_name()]).await;
			}
		};
		tokio::select! {
			() = self.use_up(function) => {}
			never = tells => never,
		}
	}

	/// Has NATS give a function's subscriptions all that it may, by calls that come too late for any node. Returns when
	/// there are none any more, or NATS is away.
	async fn use_up(&self, function: &Function) {
		let (owner, name) = (&function.config.owner, &function.config.function_name);
		let late = Order { deadline: 0, ..Order::new(String::new(), owner, name) };
		while self.connected().is_ok() {
			match ask(&self.client, wire::run(owner, name), &late, Bytes::new()).await {
				Ok(Heard::Nobody) => return,
				// It has been refused.
				Err(e) if e.status == StatusCode::INTERNAL_SERVER_ERROR => {}
				_ => sleep(SIGN).await,
			}
		}
	}
}
