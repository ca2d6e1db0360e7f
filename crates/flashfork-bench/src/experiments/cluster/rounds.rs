//! Calls by one client and by many, in all ways, in turn.

use std::{
	cell::{Cell as Counter, RefCell},
	rc::Rc,
	thread,
};

use async_nats::Client;
use flashfork_measure::stats::quantile;
use futures_util::StreamExt;
use hyper::body::Bytes;
use tokio::{runtime::Runtime, task::LocalSet, time::sleep};

use super::{
	CLIENT, ClusterOptions, EXPERIMENT, health,
	http::{Asked, Http},
	ray::Ray,
	site::{NODES, Site},
	wire,
};
use crate::{prelude::*, subjects::clients::share_out};

/// Where there is one, the pause before a call.
const PAUSE: Duration = Duration::from_millis(20);
/// Where the floor is answered.
const ECHO: &str = "bench.echo";

/// How a call is answered.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, strum::AsRefStr, VariantArray)]
#[strum(serialize_all = "lowercase")]
pub enum Way {
	/// By the node that is asked by HTTP.
	Here,
	/// By another node, which that one asks.
	Elsewhere,
	/// By another node, to which a message goes as nodes send it.
	Message,
	/// By a program that sends a message back: NATS's own request and reply.
	Reply,
	/// By Ray, as a task.
	Task,
	/// By Ray, as a call of an actor.
	Actor,
}

/// What is called.
#[derive(Clone, Copy, PartialEq, Eq, strum::AsRefStr, VariantArray)]
#[strum(serialize_all = "lowercase")]
pub enum Function {
	/// One that holds nothing, warm at the first node.
	Small,
	/// One that holds much memory, warm there.
	Large,
	/// One that holds as much, and is a program in C.
	Program,
	/// One that holds nothing, warm there, and elsewhere should all places be taken.
	Grown,
	/// One that holds nothing, warm at all nodes.
	Everywhere,
}

impl Function {
	pub fn is_large(self) -> bool {
		matches!(self, Self::Large | Self::Program)
	}
}

#[derive(Clone, Copy, PartialEq, Eq, strum::AsRefStr)]
#[strum(serialize_all = "lowercase")]
pub enum Measure {
	/// From asking until the answer is there, in microseconds.
	Whole,
	/// What 99 % of a round's calls don't exceed.
	Tail,
	/// Calls that were answered a second, of all clients.
	Rate,
	/// Calls that were not.
	Failed,
}

/// Calls in a way.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Cell {
	pub way: Way,
	/// `None`: no function of ours.
	pub function: Option<Function>,
	pub paused: bool,
	pub many: bool,
}

impl Cell {
	/// In table order.
	pub fn all() -> impl Iterator<Item = Self> {
		let functions = [Some(Function::Small), Some(Function::Large), Some(Function::Program), None];
		let one = [false, true].into_iter().flat_map(move |paused| {
			functions.into_iter().flat_map(move |function| {
				let ways = Way::all().filter(move |way| (*way < Way::Reply) == function.is_some());
				ways.map(move |way| Self { way, function, paused, many: false })
			})
		});
		let many = [(Way::Here, Function::Everywhere), (Way::Elsewhere, Function::Grown)];
		one.chain(many.map(|(way, function)| Self { way, function: Some(function), paused: false, many: true }))
	}

	/// The record of one measure.
	pub fn find(self, document: &Document, measure: Measure) -> Option<&Record> {
		document.of(EXPERIMENT).find(|record| {
			record.method == self.way.as_ref()
				&& record.text("measure") == Some(measure.as_ref())
				&& record.text("function") == Some(self.called())
				&& record.number("pause").is_some_and(|pause| (pause > 0) == self.paused)
				&& record.number("clients").is_some_and(|clients| (clients > 1) == self.many)
		})
	}

	fn called(&self) -> &str {
		self.function.as_ref().map_or("none", Function::as_ref)
	}

	fn is_ray(self) -> bool {
		matches!(self.way, Way::Task | Way::Actor)
	}

	fn calls(self, quick: bool) -> usize {
		let calls = match (self.many, self.paused) {
			(true, _) => 400,
			(false, false) => 50,
			(false, true) => 24,
		};
		if quick { calls / 2 } else { calls }
	}

	fn pause(self) -> Duration {
		if self.paused { PAUSE } else { Duration::ZERO }
	}
}

struct Place<'a> {
	site: &'a Site,
	client: Client,
	ray: RefCell<Option<Ray>>,
	next: Rc<Counter<u64>>,
	clients: usize,
}

pub fn measure(options: &ClusterOptions, site: &Site, runtime: &Runtime, run: &mut Run) -> Result {
	let _echo = echo(site)?;
	let client = runtime.block_on(async {
		let client = health::connect(CLIENT).await?;
		health::until("the echo is not heard of", async || Ok(client.request(ECHO, "".into()).await.is_ok())).await?;
		for node in 0..NODES {
			health::warm(&client, node, Function::Everywhere.as_ref()).await?;
		}
		Ok::<_, BenchError>(client)
	})?;
	let ray = match &options.ray {
		Some(python) => Ray::start(python, site.work.path()),
		None => Err(unable!("give --ray PYTHON, an interpreter with Ray: scripts/python-libraries ray makes one")),
	};
	let ray = ray.map_err(|why| run.leave_out("Ray", why.to_string())).ok();
	let cells: Vec<_> = Cell::all().filter(|cell| ray.is_some() || !cell.is_ray()).collect();
	let clients = options.clients as usize;
	let place = Place { site, client, ray: RefCell::new(ray), next: Rc::default(), clients };
	let taken = run.sample("calls of functions", options.effort(), cells.len(), 23, |index, _| {
		let cell = cells[index];
		let calls = cell.calls(options.quick);
		LocalSet::new().block_on(runtime, visit(cell, calls, &place))
	});
	let kept = taken.keep(run, |index, measure| {
		let cell = cells[index];
		let unit = match measure {
			Measure::Rate => "1/s",
			Measure::Failed => "count",
			Measure::Whole | Measure::Tail => "us",
		};
		let (pause, clients) = (cell.pause().as_millis() as u64, if cell.many { clients } else { 1 });
		let chosen =
			json!({ "measure": measure.as_ref(), "function": cell.called(), "pause": pause, "clients": clients });
		let row = Row::of(cell.way.as_ref(), unit, chosen);
		if cell.function.is_some_and(Function::is_large) { row.chosen("size", options.size.0) } else { row }
	});
	// By now no other node must have warmed them.
	for function in [Function::Small, Function::Large, Function::Program] {
		let warm = runtime.block_on(health::warm_at(&place.client, function.as_ref()))?;
		if warm != [super::site::name(0)] {
			return Err(BenchError::Void(format!("{} is warm at {}", function.as_ref(), warm.join(", "))));
		}
	}
	kept
}

/// Sends messages back, on the first node's machine, until this is dropped.
fn echo(site: &Site) -> Result<tokio::sync::oneshot::Sender<()>> {
	let (end, ended) = tokio::sync::oneshot::channel();
	let serve = async || {
		let client = health::connect(0).await?;
		let mut asked = client.subscribe(ECHO).await.map_err(BenchError::unable)?;
		while let Some(message) = asked.next().await {
			if let Some(reply) = message.reply {
				client.publish(reply, message.payload).await.map_err(BenchError::unable)?;
			}
		}
		Ok::<(), BenchError>(())
	};
	site.node(0).within(|| {
		let runtime = runtime()?;
		thread::spawn(move || {
			runtime.block_on(async {
				tokio::select! {
					_ = serve() => {}
					_ = ended => {}
				}
			});
		});
		Ok(end)
	})
}

/// One of a single thread: what it makes lies on the machine of whoever runs it.
pub fn runtime() -> Result<Runtime> {
	tokio::runtime::Builder::new_current_thread().enable_all().build().or_cant("start clients")
}

async fn visit(cell: Cell, calls: usize, place: &Place<'_>) -> Result<Visit<Measure>> {
	if cell.many {
		return load(cell, calls, place).await;
	}
	if let Some(ray) = place.ray.borrow_mut().as_mut().filter(|_| cell.is_ray()) {
		return Ok(vec![(Measure::Whole, ray.calls(cell.way.as_ref(), calls, cell.pause())?)]);
	}
	let node = if cell.way == Way::Here { 0 } else { CLIENT };
	let mut http = Http::to(place.site, node).await?;
	let mut taken = Vec::new();
	for _ in 0..calls {
		if cell.paused {
			sleep(PAUSE).await;
		}
		let number = place.next.replace(place.next.get() + 1);
		let begin = Instant::now();
		let answer = match cell.way {
			Way::Here | Way::Elsewhere => call(&mut http, cell.called(), number).await?,
			Way::Message => wire::ask(&place.client, wire::run(cell.called()), cell.called(), event(number)).await?,
			_ => {
				let told = place.client.request(ECHO, number.to_string().into()).await;
				told.map_err(BenchError::unable)?.payload
			}
		};
		taken.push(micros(begin));
		is_answer(&answer, number)?;
	}
	Ok(vec![(Measure::Whole, taken)])
}

/// So many calls, shared out among clients at all nodes as they ask.
async fn load(cell: Cell, calls: usize, place: &Place<'_>) -> Result<Visit<Measure>> {
	let mut ready = Vec::new();
	for client in 0..place.clients {
		ready.push(Http::to(place.site, client % NODES).await?);
	}
	let begin = Instant::now();
	let ask = async move |http: &mut Http, number| {
		let begin = Instant::now();
		let told = http.ask(cell.called(), Asked::Call, event(number)).await?;
		let answer = (told.status == 200 && !told.failed).then_some(micros(begin));
		if answer.is_some() {
			is_answer(&told.body, number)?;
		}
		Ok(answer)
	};
	let all = share_out(ready, calls as u64, &place.next, ask).await?;
	let taken: Vec<f64> = all.iter().flatten().copied().collect();
	let rate = taken.len() as f64 / begin.elapsed().as_secs_f64();
	let mut sorted = taken.clone();
	sorted.sort_unstable_by(f64::total_cmp);
	let tail = quantile(&sorted, 0.99);
	let failed = (all.len() - taken.len()) as f64;
	let figures = [(Measure::Tail, tail), (Measure::Rate, rate), (Measure::Failed, failed)];
	Ok([(Measure::Whole, taken)].into_iter().chain(figures.map(|(measure, one)| (measure, vec![one]))).collect())
}

async fn call(http: &mut Http, function: &str, number: u64) -> Result<Bytes> {
	let told = http.ask(function, Asked::Call, event(number)).await?;
	if told.status == 200 && !told.failed {
		return Ok(told.body);
	}
	Err(BenchError::Void(format!("a node says {}: {}", told.status, String::from_utf8_lossy(&told.body))))
}

fn event(number: u64) -> Bytes {
	json!({ "number": number }).to_string().into()
}

/// Whether that is the answer to the call of this number.
pub fn is_answer(answer: &[u8], number: u64) -> Result {
	let told = String::from_utf8_lossy(answer);
	if told == number.to_string() {
		return Ok(());
	}
	Err(BenchError::Void(format!("call {number} was answered by {told}")))
}
