//! What fails, under load, and how it is mended.

use std::{
	cell::{Cell as Flag, RefCell},
	rc::Rc,
};

use async_nats::{
	Client,
	jetstream::{self, kv},
};
use clap::ValueEnum;
use futures_util::StreamExt;
use hyper::body::Bytes;
use tokio::{
	net::UnixDatagram,
	runtime::Runtime,
	task::{JoinSet, LocalSet},
	time::{sleep, timeout},
};

use super::{
	CLIENT, ClusterOptions, health,
	http::{Asked, Http},
	rounds::is_answer,
	site::{NODES, SERVERS, Site, server_name},
	tally::{self, Kind, SERVED, Tally},
	wire,
};
use crate::prelude::*;

/// What is called: warm at the last two nodes, of which one fails.
const FUNCTION: &str = "watched";
const WARM: [usize; 2] = [NODES - 2, NODES - 1];
/// Clients that call, and clients that send events.
const CALLERS: usize = 8;
const SENDERS: usize = 4;
/// How often one sends an event.
const EVENT: Duration = Duration::from_millis(100);
/// How long a client waits after what has failed.
const FAILED: Duration = Duration::from_millis(100);
/// How long it waits for an answer.
const PATIENCE: Duration = Duration::from_secs(30);
/// How long the load runs before something fails, and how long after it is as it was.
const BEFORE: Duration = Duration::from_secs(1);
const AFTER: Duration = Duration::from_secs(3);
/// How long a link is cut: longer than NATS takes to see that.
const CUT: Duration = Duration::from_secs(7);

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum, strum::AsRefStr, VariantArray)]
#[strum(serialize_all = "kebab-case")]
pub enum Fault {
	/// A node is killed
	NodeKilled,
	/// The NATS server that leads the events is killed
	ServerKilled,
	/// One that was killed comes back
	ServerRestarted,
	/// A node's link is cut for seven seconds
	LinkCut,
	/// A node is drained
	NodeDrained,
}

impl Fault {
	/// What it is, for people.
	pub fn title(self) -> &'static str {
		match self {
			Self::NodeKilled => "a node is killed",
			Self::ServerKilled => "the events' NATS server is killed",
			Self::ServerRestarted => "it is started again",
			Self::LinkCut => "a node's link is cut for 7 s",
			Self::NodeDrained => "a node is drained",
		}
	}
}

pub fn measure(options: &ClusterOptions, site: Site, runtime: &Runtime, run: &mut Run) -> Result {
	let (site, next) = (Rc::new(site), Rc::default());
	let faults = asked_of(options.faults.as_deref());
	let mut tallies: Vec<Vec<Tally>> = faults.iter().map(|_| Vec::new()).collect();
	let rounds = options.rounds_of_faults();
	run.begin("what fails", u64::from(rounds));
	let done = run.rounds(rounds, |run, round| {
		for (fault, tallies) in faults.iter().zip(&mut tallies) {
			run.go_on()?;
			let victim = WARM[round % WARM.len()];
			let trial = Trial { site: site.clone(), victim, next: Rc::clone(&next), tally: Rc::default() };
			tallies.push(LocalSet::new().block_on(runtime, trial.run(*fault))?);
		}
		Ok(())
	});
	faults.iter().zip(&tallies).try_for_each(|(fault, tallies)| tally::keep(run, *fault, tallies))?;
	done
}

struct Trial {
	site: Rc<Site>,
	victim: usize,
	/// The next request's number: those of no two trials are alike.
	next: Rc<Flag<u64>>,
	tally: Rc<RefCell<Tally>>,
}

impl Trial {
	async fn run(self, fault: Fault) -> Result<Tally> {
		// It is warm at this one alone then, whatever was before.
		self.site.deploy(self.victim, FUNCTION, false, 0)?;
		let client = health::connect(CLIENT).await?;
		for node in WARM {
			health::warm(&client, node, FUNCTION).await?;
		}
		let server = self.leader(&client).await?;
		if fault == Fault::ServerRestarted {
			self.site.kill_server(server);
			health::until("the same server leads", async || Ok(self.leader(&client).await? != server)).await?;
		}
		let mut beside = JoinSet::new();
		beside.spawn_local(records(watch(&client).await?, self.tally.clone()));
		beside.spawn_local(runs(self.site.counter()?, self.tally.clone()));
		self.load(async {
			sleep(BEFORE).await;
			match fault {
				Fault::NodeKilled => self.site.kill_node(self.victim),
				Fault::ServerKilled => self.site.kill_server(server),
				Fault::ServerRestarted => {
					self.site.start_server(server)?;
					health::settled(&client).await?;
				}
				Fault::LinkCut => {
					self.site.link(self.victim, false)?;
					sleep(CUT).await;
					self.site.link(self.victim, true)?;
					health::warm(&client, self.victim, FUNCTION).await?;
				}
				Fault::NodeDrained => {
					wire::ask(&client, wire::own(self.victim, "drain"), "", Bytes::new()).await?;
				}
			}
			sleep(AFTER).await;
			Ok(())
		})
		.await?;
		self.wait_for_results().await?;
		match fault {
			Fault::NodeKilled | Fault::NodeDrained => {
				self.site.kill_node(self.victim);
				self.site.start_node(self.victim).await?;
				health::warm(&client, self.victim, FUNCTION).await?;
			}
			Fault::ServerKilled => self.site.start_server(server)?,
			Fault::ServerRestarted | Fault::LinkCut => {}
		}
		health::settled(&client).await?;
		beside.shutdown().await;
		Ok(self.tally.take())
	}

	async fn leader(&self, client: &Client) -> Result<usize> {
		let leader = health::leader(client).await?;
		(0..SERVERS).find(|&server| server_name(server) == leader).ok_or_else(|| unable!("{leader} leads the events"))
	}

	/// Has clients at all nodes ask until `failing` is over and each has its last answer.
	async fn load(&self, failing: impl Future<Output = Result>) -> Result {
		let ended = Rc::new(Flag::new(false));
		let mut clients = JoinSet::new();
		for (kind, count) in [(Kind::Call, CALLERS), (Kind::Event, SENDERS)] {
			for i in 0..count {
				let (site, tally, next) = (self.site.clone(), self.tally.clone(), self.next.clone());
				let client = Asker { site, tally, node: i % NODES, http: None, kind, next };
				clients.spawn_local(client.ask(ended.clone()));
			}
		}
		let failed = failing.await;
		ended.set(true);
		while let Some(done) = clients.join_next().await {
			done.map_err(BenchError::unable)??;
		}
		failed
	}

	/// Until each event that was accepted has its result; those that have none after a while are lost. Those that are
	/// not seen to be recorded are asked for.
	async fn wait_for_results(&self) -> Result {
		let missing = || {
			let tally = self.tally.borrow();
			let missing = tally.accepted.keys().filter(|id| !tally.records.contains_key(*id));
			missing.cloned().collect::<Vec<_>>()
		};
		let begin = Instant::now();
		let all = health::until("some have no result", async || {
			if begin.elapsed() > PATIENCE {
				for id in missing() {
					self.ask_for(id).await?;
				}
			}
			Ok(missing().is_empty())
		});
		if all.await.is_err() {
			self.tally.borrow_mut().lost.extend(missing());
		}
		Ok(())
	}

	async fn ask_for(&self, id: String) -> Result {
		let mut http = Http::to(&self.site, 0).await?;
		let told = http.ask(FUNCTION, Asked::Result(id.clone()), Bytes::new()).await?;
		let told: Value = serde_json::from_slice(&told.body).unwrap_or_default();
		let mut tally = self.tally.borrow_mut();
		if told["Status"] == "Failed" {
			tally.failed.insert(id.clone());
		}
		if told["Status"] == "Failed" || told["Status"] == "Succeeded" {
			tally.records.entry(id).or_default();
		}
		Ok(())
	}
}

/// A client of a node, and of the next where that can't be reached.
struct Asker {
	site: Rc<Site>,
	tally: Rc<RefCell<Tally>>,
	node: usize,
	http: Option<Http>,
	kind: Kind,
	next: Rc<Flag<u64>>,
}

impl Asker {
	async fn ask(mut self, ended: Rc<Flag<bool>>) -> Result {
		while !ended.get() {
			let number = self.next.replace(self.next.get() + 1);
			let begin = Instant::now();
			let end = timeout(PATIENCE, self.one(number)).await.unwrap_or_else(|_| Ok("no answer".to_owned()))?;
			let served = end == SERVED;
			self.tally.borrow_mut().note(self.kind, end, begin.elapsed());
			match self.kind {
				_ if !served => sleep(FAILED).await,
				Kind::Event => sleep(EVENT).await,
				Kind::Call => {}
			}
		}
		Ok(())
	}

	/// How it has ended.
	async fn one(&mut self, number: u64) -> Result<String> {
		let (asked, event) = match self.kind {
			Kind::Call => (Asked::Call, json!({ "number": number })),
			Kind::Event => (Asked::Event, json!({ "number": number, "count": self.site.count() })),
		};
		let told = async {
			let mut http = match self.http.take() {
				Some(http) => http,
				None => Http::to(&self.site, self.node).await?,
			};
			let told = http.ask(FUNCTION, asked, event.to_string().into()).await?;
			Ok::<_, BenchError>((http, told))
		};
		let Ok((http, told)) = told.await else {
			self.node = (self.node + 1) % NODES;
			return Ok("no connection".to_owned());
		};
		self.http = Some(http);
		match (self.kind, told.status) {
			(Kind::Call, 200) if told.failed => return Ok("function error".to_owned()),
			(Kind::Call, 200) => is_answer(&told.body, number)?,
			(Kind::Event, 202) => drop(self.tally.borrow_mut().accepted.insert(told.id, number)),
			(_, status) => return Ok(status.to_string()),
		}
		Ok(SERVED.to_owned())
	}
}

/// Hears of results that are recorded from now on, once JetStream has elected who tells.
async fn watch(client: &Client) -> Result<kv::Watch> {
	let jetstream = jetstream::new(client.clone());
	let mut watch = None;
	let try_it = async || {
		if let Ok(bucket) = jetstream.get_key_value("flashfork_results").await {
			watch = bucket.watch_all().await.ok();
		}
		Ok(watch.is_some())
	};
	health::until("nobody tells of results", try_it).await?;
	watch.ok_or_else(|| unable!("nobody tells of results"))
}

/// Notes each result that is recorded.
async fn records(mut recorded: kv::Watch, tally: Rc<RefCell<Tally>>) -> Result {
	while let Some(entry) = recorded.next().await {
		let Ok(entry) = entry else { continue };
		let Some(id) = entry.key.strip_prefix(wire::OWNER).and_then(|id| id.strip_prefix('.')) else { continue };
		// How often one has failed is kept beside its result.
		if id.contains('.') || entry.operation != kv::Operation::Put {
			continue;
		}
		let mut tally = tally.borrow_mut();
		tally.records.entry(id.to_owned()).or_default().insert(entry.revision);
		let ended: Value = serde_json::from_slice(&entry.value).unwrap_or_default();
		if ended["Status"] != "Succeeded" {
			tally.failed.insert(id.to_owned());
		}
	}
	Ok(())
}

/// Notes each run of an event.
async fn runs(counter: UnixDatagram, tally: Rc<RefCell<Tally>>) -> Result {
	let mut number = [0; 20];
	loop {
		let length = counter.recv(&mut number).await.or_cant("hear of events")?;
		let number = std::str::from_utf8(&number[..length]).ok().and_then(|number| number.parse().ok());
		let number = number.ok_or_else(|| BenchError::Void("an event has no number".to_owned()))?;
		*tally.borrow_mut().runs.entry(number).or_default() += 1;
	}
}
