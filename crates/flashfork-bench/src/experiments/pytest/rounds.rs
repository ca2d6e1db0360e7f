//! All suites in all ways, in turn.

use super::{PytestOptions, client, run::Runner, suite::Suite, way::Way};
use crate::prelude::*;

#[derive(Clone, Copy, PartialEq, Eq, strum::AsRefStr)]
#[strum(serialize_all = "lowercase")]
pub enum Measure {
	/// From starting pytest until it has ended, in microseconds.
	Whole,
	/// Tests a second, from the end of the first to that of the last.
	Rate,
}

impl Measure {
	fn unit(self) -> &'static str {
		match self {
			Self::Whole => "us",
			Self::Rate => "1/s",
		}
	}
}

/// A suite to be run in a way, and what must come of it.
struct Cell {
	suite: Suite,
	way: Way,
	dir: PathBuf,
	tests: u32,
	outcomes: [u32; 3],
}

pub fn measure(options: &PytestOptions, run: &mut Run) -> Result {
	let work = WorkDir::new(None)?;
	let runner = Runner::new(options, work.path())?;
	if let Some(why) = runner.lacks(Way::Plain) {
		return Err(BenchError::Unable(why));
	}
	let cells = prepare(options, &runner, work.path(), run)?;
	let taken = run.sample("suites of tests", options.effort(), cells.len(), 13, |index, _| {
		let cell = &cells[index];
		let (whole, told) = runner.once(cell.way, &cell.dir)?;
		if told.outcomes() != cell.outcomes {
			let (way, suite) = (cell.way.title(), cell.suite.as_ref());
			let (found, wanted) = (told.outcomes(), cell.outcomes);
			let why = format!("{suite} by {way}: passed, failed, skipped are {found:?}, by pytest alone {wanted:?}");
			return Err(BenchError::Void(why));
		}
		let mut visit = vec![(Measure::Whole, vec![whole])];
		visit.extend(told.rate().map(|rate| (Measure::Rate, vec![rate])));
		Ok(visit)
	});
	taken.keep(run, |index, measure| {
		let cell = &cells[index];
		let chosen = json!({ "measure": measure.as_ref(), "suite": cell.suite.as_ref() });
		let observed = json!({ "tests": cell.tests, "workers": options.workers, "bytes": options.size.0 });
		Row::of(cell.way.as_ref(), measure.unit(), chosen).beside(observed)
	})
}

fn prepare(options: &PytestOptions, runner: &Runner, place: &Path, run: &mut Run) -> Result<Vec<Cell>> {
	let mut cells = Vec::new();
	let suites = options.suites();
	run.begin("what pytest alone comes to", suites.len() as u64);
	for suite in suites {
		run.go_on()?;
		if suite == Suite::Program {
			client::measure(options, place, run)?;
			continue;
		}
		if suite == Suite::Fixture {
			// Beside the memory, what a seal may hold twice, and the interpreters.
			let needed = options.size.0.saturating_mul(2) + (512 << 20);
			memory::require(&memory::headroom()?, format!("a fixture of {}", options.size), needed)?;
		}
		match suite.write(options, place)? {
			Err(why) => run.leave_out(suite.as_ref(), why),
			Ok(dir) => {
				let (_, told) = runner.once(Way::Plain, &dir)?;
				for way in suite.ways() {
					match runner.lacks(*way) {
						Some(why) => run.leave_out(format!("{} by {}", suite.as_ref(), way.title()), why),
						None => cells.push(Cell {
							suite,
							way: *way,
							dir: dir.clone(),
							tests: told.tests,
							outcomes: told.outcomes(),
						}),
					}
				}
			}
		}
		run.step();
	}
	Ok(cells)
}
