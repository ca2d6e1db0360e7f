//! Asking: where a call runs. Here, where the function is warm and a slot free; else at any node where it is so, which
//! NATS chooses; else nodes bid, and the best warms it first.

use super::{
	Call, Cluster,
	wire::{self, Bid, Order, PATIENCE, Said, away},
};
use crate::{
	error::{ApiError, Result},
	locked, log,
	pool::{Function, Outcome},
};
use async_nats::{Client, Subject};
use axum::{body::Bytes, http::StatusCode};
use base64::{Engine, prelude::BASE64_STANDARD as BASE64};
use futures_util::StreamExt;
use ring::digest;
use std::{
	collections::BTreeMap,
	sync::{Arc, MutexGuard},
	time::Duration,
};
use tokio::time::{Instant, sleep, timeout, timeout_at};
use tracing::info;

/// How long nodes may take to bid.
const BIDS: Duration = Duration::from_millis(50);
/// How often a node is asked that NATS names: nearly all are full then.
const OFFERS: usize = 16;
/// How often a node is looked for where the last slot has just gone.
const TRIES: usize = 8;
/// How long after a silence NATS is not asked who would take a call of that function. By then its pings tell it.
const DOUBT: Duration = Duration::from_secs(15);
/// Nodes whose free memory differs by less are alike, in megabytes.
const ALIKE: u64 = 256;

/// Why NATS is not asked for a while who would take a call of a function.
pub struct Doubt {
	until: Instant,
	/// All nodes where it is warm were full. Else one of them may be silent, or parts.
	full: bool,
	/// Who has bid since.
	node: Option<String>,
}

/// What has come of asking.
pub enum Heard {
	/// Nobody is there who would take it.
	Nobody,
	/// Who was there is full.
	Full,
	/// Nobody was asked: it is longer than a message may be.
	TooLarge(ApiError),
	/// The last that was said, and the bytes behind it.
	Said(Said, Bytes),
}

/// Tells the node that it works for nobody any more, should whoever asked go away.
struct Leave(Client, Option<Subject>);

impl Drop for Leave {
	fn drop(&mut self) {
		if let Some(subject) = self.1.take() {
			let client = self.0.clone();
			// Should it not be heard, the node finds out when it gives its next sign.
			tokio::spawn(async move { client.publish(subject, Bytes::new()).await });
		}
	}
}

/// Asks, and waits for what comes of it, as long as there are signs of it.
pub async fn ask(client: &Client, subject: String, order: &Order, payload: Bytes) -> Result<Heard> {
	let inbox = client.new_inbox();
	let mut answers = client.subscribe(inbox.clone()).await.map_err(away)?;
	match wire::send(client, subject, Some(inbox.into()), order, payload).await {
		Err(e) if e.status == StatusCode::PAYLOAD_TOO_LARGE => return Ok(Heard::TooLarge(e)),
		sent => sent?,
	}
	let mut node = None;
	let mut leave = Leave(client.clone(), None);
	loop {
		let Ok(Some(message)) = timeout(PATIENCE, answers.next()).await else {
			let who = match node {
				Some(node) => format!("node {node} had begun, and has fallen silent"),
				None => "the node that NATS gave it to is silent".into(),
			};
			return Err(ApiError::lost(format!("{who}: it may have run, or may yet, and is not run again")));
		};
		if message.status == Some(async_nats::StatusCode::NO_RESPONDERS) {
			return Ok(Heard::Nobody);
		}
		match wire::read(&message) {
			Some(Said::Accepted(by)) => (node, leave.1) = (Some(by), message.reply),
			Some(Said::Working) => {}
			Some(Said::Full) => return Ok(Heard::Full),
			Some(Said::Late(by)) => {
				return Err(ApiError::service(format!(
					"the call has come too late to {by}: are all nodes' clocks right?"
				)));
			}
			Some(said) => {
				leave.1 = None;
				return match said {
					Said::Refused { status, kind, why } => Err(ApiError::told(status, &kind, why)),
					said => Ok(Heard::Said(said, message.payload)),
				};
			}
			None => return Err(ApiError::service("a node of another version has answered")),
		}
	}
}

impl Cluster {
	/// Calls a function, somewhere.
	pub async fn call(self: &Arc<Self>, function: &Arc<Function>, call: Call) -> Result<Outcome> {
		let until = Instant::now() + PATIENCE;
		loop {
			match self.try_call(function, call.clone()).await {
				// It has not run. Where a NATS server has ended, others know in a moment where it is warm.
				Err(e) if e.status == StatusCode::SERVICE_UNAVAILABLE && Instant::now() < until => {
					self.connected()?;
					sleep(2 * BIDS).await;
				}
				done => return done,
			}
		}
	}

	async fn try_call(self: &Arc<Self>, function: &Arc<Function>, call: Call) -> Result<Outcome> {
		if let Some(slot) = self.slot_for(function) {
			return self.run(function, slot, call).await;
		}
		if let Some(outcome) = self.elsewhere(function, &call, true).await? {
			return Ok(outcome);
		}
		if self.is_draining() {
			return Err(ApiError::too_many("this node is being drained, and all others are full; try again later"));
		}
		match self.pool.slot().await {
			Ok(slot) => self.run(function, slot, call).await,
			Err(full) => self.elsewhere(function, &call, false).await?.ok_or(full),
		}
	}

	/// Calls it at another node; `None` where no node has a slot for it. One that `waits` would rather wait here, where
	/// it is warm, than for another node to be warm.
	pub async fn elsewhere(
		self: &Arc<Self>,
		function: &Arc<Function>,
		call: &Call,
		waits: bool,
	) -> Result<Option<Outcome>> {
		let (owner, name) = (&function.config.owner, &function.config.function_name);
		let order = || {
			let context = call.context.as_ref().map(|context| BASE64.encode(context));
			Order { context, ..Order::new(call.id.clone(), owner, name) }
		};
		for _ in 0..TRIES {
			// It is warm here, and no slot is free, or else this node does not run calls.
			let here = function.is_warm() && !self.is_draining();
			match self.connected() {
				Err(_) if here => return Ok(None),
				connected => connected?,
			}
			let doubt = self.doubt(function);
			let mut heard = match &doubt {
				None => self.ask_offers(function, order, call).await?,
				Some((_, Some(node))) => self.ask_for(function, wire::own(node, "run"), &order(), call).await?,
				Some((_, None)) => Heard::Nobody,
			};
			if matches!(heard, Heard::Nobody | Heard::TooLarge(_)) {
				let bid = match doubt {
					// Who is free where it is warm is not known.
					Some((false, _)) if here && waits => self.best_bid(function).await?.filter(Bid::is_warm),
					_ if here && waits => None,
					_ => self.warm_at(function).await?,
				};
				let Some(Bid { node, .. }) = bid else {
					if here && waits {
						self.grow(function);
					}
					return Ok(None);
				};
				if node == self.node {
					let Some(slot) = self.slot() else { continue };
					return self.run(function, slot, call.clone()).await.map(Some);
				}
				heard = self.ask_for(function, wire::own(&node, "run"), &order(), call).await?;
				self.trust(function, Some(node));
			}
			match heard {
				Heard::Said(Said::Ran { failed, tail }, payload) => {
					let tail = BASE64.decode(tail).map_err(ApiError::service)?;
					return Ok(Some(Outcome { payload, failed, tail, slot: None }));
				}
				Heard::Said(..) => return Err(ApiError::service("a node of another version has answered")),
				Heard::TooLarge(e) => return Err(e),
				Heard::Full | Heard::Nobody => self.trust(function, None),
			}
		}
		Ok(None)
	}

	/// Asks nodes where it is warm to take a call. Who is full says so; where all seem to be, others don't ask for now.
	async fn ask_offers(&self, function: &Function, order: impl Fn() -> Order, call: &Call) -> Result<Heard> {
		let until = Instant::now() + BIDS;
		for _ in 0..OFFERS {
			let order = order();
			let subject = wire::run(&order.owner, &order.function);
			match self.ask_for(function, subject, &order, call).await? {
				// Of one that parts nothing more is asked.
				Heard::Full if self.doubt(function).is_none() && Instant::now() < until => {}
				Heard::Full => break,
				heard => return Ok(heard),
			}
		}
		self.ask_bidders([function.config.full_name()], BIDS, true);
		Ok(Heard::Nobody)
	}

	/// Asks for a call. Where a node is silent it may stand still, and NATS not have seen that: for a while this node's
	/// calls of the function go to one that has bid, and nothing to that one.
	async fn ask_for(&self, function: &Function, subject: String, order: &Order, call: &Call) -> Result<Heard> {
		let heard = ask(&self.client, subject, order, call.payload.clone()).await;
		if heard.as_ref().is_err_and(|e| e.status == StatusCode::GATEWAY_TIMEOUT) {
			let doubt = Doubt { until: Instant::now() + DOUBT, full: false, node: None };
			locked(&self.doubts).insert(function.config.full_name(), doubt);
		}
		heard
	}

	/// Has this node's calls of functions go to those that have bid, for a while: because all are `full`, or one parts.
	pub fn ask_bidders(&self, functions: impl IntoIterator<Item = String>, a_while: Duration, full: bool) {
		let (until, mut doubts) = (Instant::now() + a_while, self.doubts());
		for function in functions {
			let doubt = doubts.entry(function).or_insert(Doubt { until, full, node: None });
			(doubt.until, doubt.full) = (until.max(doubt.until), full && doubt.full);
		}
	}

	/// Those that there are still.
	fn doubts(&self) -> MutexGuard<'_, BTreeMap<String, Doubt>> {
		let mut doubts = locked(&self.doubts);
		doubts.retain(|_, doubt| doubt.until > Instant::now());
		doubts
	}

	/// Whether NATS is not to be asked because all are full, or one of them may be silent; and who is not.
	fn doubt(&self, function: &Function) -> Option<(bool, Option<String>)> {
		self.doubts().get(&function.config.full_name()).map(|doubt| (doubt.full, doubt.node.clone()))
	}

	/// Notes who has bid, if that is of use.
	fn trust(&self, function: &Function, node: Option<String>) {
		if let Some(doubt) = locked(&self.doubts).get_mut(&function.config.full_name()) {
			doubt.node = node;
		}
	}

	/// The best of the nodes that would take a call.
	async fn best_bid(&self, function: &Function) -> Result<Option<Bid>> {
		let (owner, name) = (&function.config.owner, &function.config.function_name);
		let inbox = self.client.new_inbox();
		let mut bids = self.client.subscribe(inbox.clone()).await.map_err(away)?;
		let order = Order::new(String::new(), owner, name);
		wire::send(&self.client, wire::bid(owner, name), Some(inbox.into()), &order, Bytes::new()).await?;
		let until = Instant::now() + BIDS;
		let mut best: Option<Bid> = None;
		while let Ok(Some(message)) = timeout_at(until, bids.next()).await {
			let bid = wire::read::<Bid>(&message).filter(|bid| bid.slots > 0);
			// Those who ask at the same time choose alike, and of equals not always the same.
			let worth = |bid: &Bid| {
				let chance = digest::digest(&digest::SHA256, format!("{} {name}", bid.node).as_bytes());
				(!bid.failed, bid.warmth, bid.memory / ALIKE, chance.as_ref().to_vec())
			};
			best = best.into_iter().chain(bid).max_by_key(worth);
		}
		Ok(best)
	}

	/// Has that one warm the function, and tells which it is. This node warms it when it runs it.
	async fn warm_at(&self, function: &Function) -> Result<Option<Bid>> {
		let full = "as many calls wait for functions to be warm at other nodes as may; try again later";
		let _waits = self.waiting.try_acquire().map_err(|_| ApiError::too_many(full))?;
		let Some(best) = self.best_bid(function).await? else { return Ok(None) };
		if best.node == self.node {
			return Ok(Some(best));
		}
		let order = Order::new(String::new(), &function.config.owner, &function.config.function_name);
		match ask(&self.client, wire::own(&best.node, "warm"), &order, Bytes::new()).await? {
			Heard::Said(..) => Ok(Some(best)),
			Heard::TooLarge(e) => Err(e),
			Heard::Nobody | Heard::Full => Ok(None),
		}
	}

	/// Has another node warm a function that is warm here, where all slots are taken; one at a time.
	fn grow(self: &Arc<Self>, function: &Arc<Function>) {
		let name = function.config.full_name();
		if locked(&self.growing).insert(name.clone()) {
			let (cluster, function) = (self.clone(), function.clone());
			tokio::spawn(async move {
				if let Err(e) = cluster.warm_at(&function).await {
					info!("{name} is warm at no other node: {}", log::words(&e));
				}
				locked(&cluster.growing).remove(&name);
			});
		}
	}
}
