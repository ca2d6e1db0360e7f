//! All functions in all ways, by one client and by many, in turn.

use std::{cell::Cell as Counter, rc::Rc};

use super::{
	EXPERIMENT, ServeOptions,
	client::{Called, Client, Taken, Way},
	function::Function,
	server::Server,
};
use crate::{
	prelude::*,
	subjects::{clients::share_out, command::last_line},
};
use flashfork_measure::stats::quantile;
use tokio::task::LocalSet;

/// The functions', which is the default.
const HANDLER: &str = "lambda_function.lambda_handler";

/// Fewer calls have no 99 % quantile.
const ENOUGH: usize = 50;

#[derive(Clone, Copy, PartialEq, Eq, strum::AsRefStr)]
#[strum(serialize_all = "lowercase")]
pub enum Measure {
	/// From asking until the answer is there, in microseconds.
	Whole,
	/// Of it: until the handler begins.
	Begin,
	/// Of it: from the handler's end on.
	Return,
	/// What 99 % of a round's calls don't exceed.
	Tail,
	/// Calls a second, of all clients.
	Rate,
}

/// Calls of a function in a way, by so many clients at a time.
#[derive(Clone, Copy)]
pub struct Cell {
	pub function: Function,
	pub way: Way,
	pub many: bool,
}

impl Cell {
	/// In table order.
	pub fn all() -> impl Iterator<Item = Self> {
		let of = |many| move |function| Way::all().map(move |way| Self { function, way, many });
		let all = [false, true].into_iter().flat_map(move |many| Function::all().flat_map(of(many)));
		// A worker for each of many clients is no floor, but one for each processor would be; nor has describing many.
		all.filter(|cell| match cell.way {
			Way::Clone | Way::Process => true,
			Way::Worker => !cell.many,
			Way::Describe => !cell.many && cell.function == Function::Small,
		})
	}

	/// The record of one measure.
	pub fn find(self, document: &Document, measure: Measure) -> Option<&Record> {
		document.of(EXPERIMENT).find(|record| {
			record.method == self.way.as_ref()
				&& record.text("measure") == Some(measure.as_ref())
				&& record.text("function") == Some(self.function.as_ref())
				&& record.number("clients").is_some_and(|clients| (clients > 1) == self.many)
		})
	}

	/// How many calls a visit makes. A new process takes as long as many clones.
	fn calls(self, quick: bool) -> u64 {
		let calls = match (self.way, self.many) {
			(Way::Process, false) => 3,
			(Way::Process, true) => 32,
			(_, false) => 100,
			(_, true) => 400,
		};
		if quick { calls / 2 } else { calls }
	}
}

pub fn measure(options: &ServeOptions, run: &mut Run) -> Result {
	let functions = options.functions();
	run.begin("functions", functions.len() as u64);
	let python = lambda_python(&options.python)?;
	let server = Server::start(run.here.command()?, &python, &[])?;
	for function in &functions {
		server.deploy(&function.write(server.work.path())?, HANDLER)?;
		run.step();
	}
	let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().or_cant("start clients")?;
	let cells: Vec<_> = Cell::all().filter(|cell| functions.contains(&cell.function)).collect();
	let next = Rc::new(Counter::new(0));
	let clients = |cell: Cell| if cell.many { options.clients } else { 1 };
	let taken = run.sample("calls of functions", options.effort(), cells.len(), 17, |index, _| {
		let cell = cells[index];
		let called = cell.function.called(&python, server.work.path());
		let visit = visit(cell, clients(cell), cell.calls(options.quick), &server, &called, &next);
		LocalSet::new().block_on(&runtime, visit)
	});
	taken.keep(run, |index, measure| {
		let cell = cells[index];
		let unit = if measure == Measure::Rate { "1/s" } else { "us" };
		let (measure, function) = (measure.as_ref(), cell.function.as_ref());
		Row::of(cell.way.as_ref(), unit, json!({ "measure": measure, "function": function, "clients": clients(cell) }))
	})
}

/// A Python in which functions can run, as an absolute path: processes are started elsewhere.
pub fn lambda_python(given: &Path) -> Result<PathBuf> {
	// What is a mere name is looked up in PATH.
	let python = match given.components().count() {
		1 => given.to_owned(),
		_ => std::path::absolute(given).or_cant("find Python")?,
	};
	match lacks(&python) {
		None => Ok(python),
		Some(why) => {
			let cure = "scripts/python-libraries lambda makes one that has all";
			Err(unable!("{} lacks something: {why}; {cure}", given.display()))
		}
	}
}

/// Why functions can't be served.
fn lacks(python: &Path) -> Option<String> {
	match Command::new(python).args(["-c", "import awslambdaric, numpy"]).stdin(Stdio::null()).output() {
		Ok(output) if output.status.success() => None,
		Ok(output) => Some(last_line(&output.stderr, "it fails")),
		Err(error) => Some(error.to_string()),
	}
}

/// So many calls, shared out among clients as they ask; each has a number of its own.
async fn visit(
	cell: Cell,
	clients: u32,
	calls: u64,
	server: &Server,
	called: &Called,
	next: &Rc<Counter<u64>>,
) -> Result<Visit<Measure>> {
	let mut ready = Vec::new();
	for _ in 0..clients {
		ready.push(Client::new(cell.way, server, called).await?);
	}
	let begin = Instant::now();
	let taken = share_out(ready, calls, next, async |client: &mut Client, number| client.call(number).await).await?;
	Ok(figures(&taken, cell.many.then(|| begin.elapsed())))
}

/// `took`: all of them together, where that says something.
fn figures(taken: &[Taken], took: Option<Duration>) -> Visit<Measure> {
	let us = |begin: u64, end: u64| end.saturating_sub(begin) as f64 / 1e3;
	let whole: Vec<f64> = taken.iter().map(|call| us(call.asked, call.answered)).collect();
	let mut sorted = whole.clone();
	sorted.sort_unstable_by(f64::total_cmp);
	let mut visit = vec![(Measure::Whole, whole)];
	let handlers = || taken.iter().filter_map(|call| Some((call, call.handler?)));
	visit.push((Measure::Begin, handlers().map(|(call, [begun, _])| us(call.asked, begun)).collect()));
	visit.push((Measure::Return, handlers().map(|(call, [_, ended])| us(ended, call.answered)).collect()));
	if taken.len() >= ENOUGH {
		visit.push((Measure::Tail, vec![quantile(&sorted, 0.99)]));
	}
	visit.extend(took.map(|took| (Measure::Rate, vec![taken.len() as f64 / took.as_secs_f64()])));
	visit
}

#[cfg(test)]
mod tests {
	use super::*;

	#[test]
	fn the_parts_of_calls_add_up() {
		let call = |asked| Taken { asked, handler: Some([asked + 3000, asked + 4000]), answered: asked + 9000 };
		let one = figures(&[call(10), call(20)], None);
		let [whole, begin, end] = [vec![9.0; 2], vec![3.0; 2], vec![5.0; 2]];
		assert!(one == [(Measure::Whole, whole), (Measure::Begin, begin), (Measure::Return, end)]);
		let many: Vec<_> = (0..100).map(call).collect();
		let many = figures(&many, Some(Duration::from_secs(2)));
		assert!(many[3..] == [(Measure::Tail, vec![9.0]), (Measure::Rate, vec![50.0])]);
	}
}
