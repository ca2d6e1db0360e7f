//! A clone that takes calls.

use super::{
	Gone, Machines, Owned, Template,
	agent::{Agent, receive},
	daemon::{Daemon, Refusal},
	warm::{Ports, how},
};
use crate::{
	error::{self, ApiError},
	instance::{Body, Instance},
	locked,
	runtime::{self, Line, Served},
	usage::{self, Known},
};
use flashfork_proto::{
	agent::MAX_DIALED,
	api::{Clone, CreateClones},
	function::{MAX_FRAME, Said},
};
use futures_util::{StreamExt, stream::FuturesUnordered};
use std::{io::Result, sync::Arc};
use tokio::{
	io::{AsyncWriteExt, DuplexStream, ReadHalf, WriteHalf, split},
	net::unix::pipe::Sender,
	sync::{Mutex, OwnedSemaphorePermit, mpsc, oneshot, watch},
};
use tracing::warn;

/// Most connections that a runtime may have at a time, of those that its guest may have.
const MOST_STREAMS: usize = MAX_DIALED / 2;

/// A clone, as far as a call has to do with it. Dropped, it is removed.
pub struct Running {
	state: watch::Receiver<State>,
	control: Mutex<WriteHalf<DuplexStream>>,
	pub usage: Option<Known>,
	/// What is free when it is gone.
	pub held: Option<Arc<OwnedSemaphorePermit>>,
	/// Its connections, if it has some when it is dropped.
	pub served: std::sync::Mutex<Option<Served>>,
	kill: Option<oneshot::Sender<Held>>,
}

type Held = (Option<Arc<OwnedSemaphorePermit>>, Option<Served>);

enum State {
	/// How often all was told that it had printed.
	Runs(u64),
	/// The runtime has ended, or its guest: how.
	Ended(String),
}

impl Running {
	pub fn runs(&self) -> bool {
		matches!(*self.state.borrow(), State::Runs(_))
	}

	/// Returns when its runtime has ended: how.
	pub async fn ended(&self) -> String {
		let mut state = self.state.clone();
		match state.wait_for(|state| !matches!(state, State::Runs(_))).await.as_deref() {
			Ok(State::Ended(how)) => how.clone(),
			_ => "its virtual machine is gone".into(),
		}
	}

	/// Returns when all that has been printed is in the log, or nothing more will be.
	pub async fn flush(&self) {
		let mut state = self.state.clone();
		let State::Runs(before) = *state.borrow_and_update() else { return };
		if self.control.lock().await.write_all(b"f").await.is_ok() {
			let _ = state.wait_for(|state| !matches!(state, State::Runs(now) if *now == before)).await;
		}
	}
}

impl Drop for Running {
	fn drop(&mut self) {
		if let Some(kill) = self.kill.take() {
			// Nobody sees to one that has gone.
			let _ = kill.send((self.held.take(), locked(&self.served).take()));
		}
	}
}

impl Machines {
	/// A new clone; what is `held` is so until it is made.
	pub async fn instance(
		&self,
		template: &Arc<Template>,
		held: impl Send + 'static,
	) -> error::Result<std::result::Result<Instance, Gone>> {
		let (name, template) = (self.name(), template.clone());
		let owned = self.owned("clones", &name, Some(template.clone()));
		// To its end, also when who waits for it goes.
		let made = tokio::spawn(async move {
			let _held = held;
			let body = CreateClones { name: Some(name.clone()), ..super::one_clone() };
			let daemon = owned.daemon.clone();
			let path = format!("templates/{}/clones", template.name);
			let (clones, clone) = match owned.make::<Vec<Clone>>(&path, &body).await {
				Ok(clone) => clone,
				Err(Refusal::Absent(_)) => return Ok(Err(Gone)),
				Err(refusal) => return Err(refusal.into()),
			};
			let usage = clones
				.first()
				.filter(|_| template.is_seen)
				.map(|clone| Known::Machine(clone.pid))
				.filter(|known| usage::used(&[*known])[0].is_some());
			let made = attach(&daemon, &name, template.ports, clone, usage).await;
			made.map(Ok).map_err(|e| ApiError::service(format!("the clone for the call can't be used: {e}")))
		});
		made.await.map_err(ApiError::service)?
	}
}

/// Connects to the runtime in a clone that has this name.
async fn attach(daemon: &Daemon, name: &str, ports: Ports, clone: Owned, usage: Option<Known>) -> Result<Instance> {
	let (heard, control) = split(Agent::connect(daemon, name).await?.dial(ports.messages).await?);
	let (log, printed) = std::io::pipe()?;
	let (asks, asked) = mpsc::channel(MOST_STREAMS);
	let (tells, state) = watch::channel(State::Runs(0));
	let (kill, killed) = oneshot::channel();
	tokio::spawn(attend(clone, heard, Sender::from_owned_fd(printed.into())?, asks, tells, killed));
	let running = Running {
		state,
		control: Mutex::new(control),
		usage,
		held: None,
		served: Default::default(),
		kill: Some(kill),
	};
	let place = Place { daemon: daemon.clone(), clone: name.to_owned(), port: ports.streams };
	Instance::new(Body::Machine(running), log, |line| serve(place, asked, line))
}

/// Sees to a clone until nobody wants it any more, and removes it.
async fn attend(
	clone: Owned,
	mut heard: ReadHalf<DuplexStream>,
	mut printed: Sender,
	asks: mpsc::Sender<()>,
	state: watch::Sender<State>,
	mut killed: oneshot::Receiver<Held>,
) {
	let hears = async {
		loop {
			match receive(&mut heard, MAX_FRAME).await {
				// Nobody may read it any more.
				Ok(Said::Printed(bytes)) => drop(printed.write_all(&bytes).await),
				// One too many waits until its call ends.
				Ok(Said::Asks(_)) => drop(asks.try_send(())),
				Ok(Said::Flushed) => state.send_modify(|state| {
					if let State::Runs(count) = state {
						*count += 1;
					}
				}),
				Ok(Said::Ended(exit)) => break how(exit),
				Err(_) => break "its virtual machine has ended".into(),
			}
		}
	};
	let _held = tokio::select! {
		how = hears => {
			// No more requests, by which `serve` ends.
			drop(asks);
			state.send_replace(State::Ended(how));
			killed.await.ok()
		}
		held = &mut killed => held.ok(),
	};
	clone.remove().await;
}

/// Where a runtime's connections come to.
struct Place {
	daemon: Daemon,
	clone: String,
	port: u16,
}

impl Place {
	/// Serves the next that waits.
	async fn answer(&self, line: Arc<Line>) -> Result<()> {
		let stream = Agent::connect(&self.daemon, &self.clone).await?.dial(self.port).await?;
		runtime::serve(stream, line).await;
		Ok(())
	}
}

/// Serves all connections of a runtime, until that has ended.
async fn serve(place: Place, mut asked: mpsc::Receiver<()>, line: Arc<Line>) {
	let (mut open, mut told) = (FuturesUnordered::new(), false);
	loop {
		tokio::select! {
			Some(()) = asked.recv(), if open.len() < MOST_STREAMS => open.push(place.answer(line.clone())),
			// Said once of a guest, which can have it so as often as it likes.
			Some(done) = open.next() => if let (Err(e), false) = (done, told) {
				warn!(clone = place.clone, "a request of the runtime's is not heard: {e}");
				told = true;
			},
			else => return,
		}
	}
}

#[cfg(test)]
mod tests {
	use super::*;
	use crate::parked::Parked;
	use tokio::process::Command;
	use tracing_subscriber::{layer::SubscriberExt, util::SubscriberInitExt};

	#[tokio::test]
	async fn a_machine_that_computes_while_it_waits_is_ended() {
		let run = |program| Command::new("sh").args(["-c", program]).kill_on_drop(true).spawn().unwrap();
		let all = ["exec sleep 1000", "while :; do :; done"].map(run);
		let (parked, places) = (Parked::default(), Arc::new(tokio::sync::Semaphore::new(2)));
		for process in &all {
			let (state, control) = (watch::channel(State::Runs(0)).1, Mutex::new(split(tokio::io::duplex(1).0).1));
			let running = Running {
				state,
				control,
				usage: process.id().map(Known::Machine),
				held: None,
				served: Default::default(),
				kill: None,
			};
			let log = std::io::pipe().unwrap().0;
			let instance = Instance::new(Body::Machine(running), log, |_| std::future::pending()).unwrap();
			assert!(parked.put(&places, instance).is_none());
		}
		while places.available_permits() == 0 {
			tokio::time::sleep(std::time::Duration::from_millis(10)).await;
		}
		let left = parked.take().await.unwrap();
		assert!(matches!(left.usage(), Some(Known::Machine(process)) if all[0].id() == Some(process)));
	}

	#[tokio::test]
	async fn a_guest_whose_requests_fail_is_one_line_of_the_log() {
		let (said, log) = std::io::pipe().unwrap();
		let lines = tracing_subscriber::fmt::layer().with_writer(Arc::new(log));
		let lines = tracing_subscriber::registry().with(lines).set_default();
		let (asks, asked) = mpsc::channel(9);
		(0..9).for_each(|_| asks.try_send(()).unwrap());
		drop(asks);
		let daemon = Daemon { socket: "/nobody/listens".into() };
		serve(Place { daemon, clone: "c".into(), port: 1 }, asked, Arc::default()).await;
		drop(lines);
		let said = std::io::read_to_string(said).unwrap();
		assert_eq!(said.matches("is not heard").count(), 1, "{said}");
	}
}
