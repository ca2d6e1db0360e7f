//! `bench advise`: how near the forecasts of [`flashfork_advise`] are to what forks take.
//!
//! Five processes of different shapes are surveyed and then fork; in each round the cost model is calibrated anew, so
//! that it is of the same minute. Fork calls count in time of the processor: what else runs on the machine is nobody's
//! error, though it takes caches away.

mod subject;

pub use subject::ShapeSubject;

use flashfork::CostModel;
use flashfork_advise::Engine;

use crate::{advised::failed, prelude::*, subjects::parent::RESERVE};
use subject::Shape;

pub const EXPERIMENT: &str = "advise";

const FORECAST: &str = "forecast";
const MEASURED: &str = "measured";

const FORKS: u32 = 21;
/// Processes whose forks differ by less than this factor may stand in either order.
const CLOSE: f64 = 1.3;
/// What SPECIFICATION.md aims at on a quiet machine, for the median error.
const AIM: f64 = 0.3;

#[derive(Clone, clap::Args)]
#[command(after_help = "Example: flashfork bench advise --rounds 5")]
pub struct AdviseOptions {
	/// How often the model is calibrated and each process surveyed and forked
	#[arg(long, value_name = "N", default_value_t = 3, value_parser = count(1..=1000))]
	pub rounds: u32,
}

impl Experiment for AdviseOptions {
	const NAME: &'static str = EXPERIMENT;
	const ABOUT: &'static str = "The forecasts of `advise` beside the forks of five processes of different shapes";
	const WORKERS: &'static [Registered] = &[Registered::of::<ShapeSubject>()];
	const PAGE: fn(&Document) -> String = report;

	fn measure(&self, run: &mut Run) -> Result {
		let needed = Shape::all().map(|shape| shape.bytes()).sum::<u64>() + RESERVE;
		memory::require(&memory::headroom()?, "five processes of different shapes".to_owned(), needed)?;
		let mut cells = Shape::all().map(Cell::start).collect::<Result<Vec<_>, _>>()?;
		run.begin("forecasts and forks", u64::from(self.rounds));
		let done = run.rounds(self.rounds, |run, _| {
			let model = CostModel::calibrate().map_err(BenchError::unable)?;
			cells.iter_mut().try_for_each(|cell| cell.visit(&model, run.progress))
		});
		for cell in cells {
			cell.keep(run)?;
		}
		done
	}
}

/// A process, and what was found, in microseconds.
struct Cell {
	shape: Shape,
	worker: Worker<ShapeSubject>,
	forecasts: Rounds,
	forks: Rounds,
}

impl Cell {
	fn start(shape: Shape) -> Result<Self> {
		let worker = Worker::start(shape.as_ref(), &shape)?;
		Ok(Self { shape, worker, forecasts: Rounds::default(), forks: Rounds::default() })
	}

	fn visit(&mut self, model: &CostModel, progress: &dyn Progress) -> Result {
		let pid = self.worker.pid() as i32;
		let advice = flashfork_advise::process(pid, model, None, &|| progress.interrupted()).map_err(failed)?;
		let now = advice.forecast.of(Engine::Now).and_then(|now| now.fork_us);
		let now = now.ok_or_else(|| unable!("there is no forecast for a process as it is"))?;
		let forks = self.worker.ask(&FORKS)?;
		self.forecasts.push(vec![now]);
		self.forks.push(forks);
		Ok(())
	}

	fn keep(self, run: &mut Run) -> Result {
		for (method, rounds) in [(FORECAST, self.forecasts), (MEASURED, self.forks)] {
			let chosen = json!({ "measure": "call", "shape": self.shape.as_ref() });
			run.keep_rounds(Row::of(method, "us", chosen), &rounds)?;
		}
		Ok(())
	}
}

/// A shape's forecast and its forks, medians in microseconds.
type Pair = (f64, f64);

fn report(document: &Document) -> String {
	let (mut rows, mut pairs) = (Vec::new(), Vec::new());
	for shape in Shape::all() {
		let of = |method: &str| document.find(EXPERIMENT, method, json!({ "shape": shape.as_ref() }));
		let (Some(forecast), Some(forks)) = (of(FORECAST), of(MEASURED)) else { continue };
		let pair = (forecast.p50, forks.p50);
		rows.push(vec![
			shape.as_ref().to_owned(),
			time(pair.0),
			time(pair.1),
			format!("{:+.0} %", 100.0 * error(pair)),
		]);
		pairs.push(pair);
	}
	let table = titled("The fork call of a process as it is", "process || forecast | measured | error", rows);
	page(document, [table].into_iter().chain((!pairs.is_empty()).then(|| verdict(&pairs))))
}

fn error((forecast, measured): Pair) -> f64 {
	forecast / measured - 1.0
}

/// Whether the median error and the order are as promised.
fn verdict(pairs: &[Pair]) -> String {
	let mut errors: Vec<f64> = pairs.iter().map(|pair| error(*pair).abs()).collect();
	let error = median(&mut errors);
	let ordered = pairs.iter().all(|a| pairs.iter().all(|b| a.1 < b.1 * CLOSE || a.0 > b.0));
	format!(
		"Median error {:.0} %, aim ≤ {:.0} % on a quiet machine: {}; the order of what differs by more than {CLOSE} ×: {}",
		100.0 * error,
		100.0 * AIM,
		met(error <= AIM),
		if ordered { "right" } else { "wrong" }
	)
}

#[cfg(test)]
mod tests {
	use super::*;

	#[test]
	fn the_verdict_is_about_the_median_error_and_the_order() {
		let said = verdict(&[(110.0, 100.0), (210.0, 200.0), (100.0, 400.0)]);
		assert!(
			said.contains("Median error 10 %") && said.contains("machine: met") && said.ends_with("wrong"),
			"{said}"
		);
		let said = verdict(&[(150.0, 100.0), (140.0, 110.0), (700.0, 400.0)]);
		assert!(said.contains("Median error 50 %") && said.contains("machine: missed"), "{said}");
		assert!(said.ends_with("right"), "100 and 110 are close: {said}");
	}
}
