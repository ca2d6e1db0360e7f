//! The rules of measuring, in one loop: cells taken in random order round by round, warmed up, repeated until they are
//! precise or time is up, every sample kept.
//!
//! A cell is one configuration (a method at a size). Each round visits every cell once, in its own order ([`order`]):
//! drift of the machine hits all cells alike. All cells go on until the last one is precise, so that they keep equally
//! many rounds and ratios between them stay ratios of what was measured side by side.
//!
//! [`order`]: crate::order

use std::{
	ops::RangeInclusive,
	time::{Duration, Instant},
};

use crate::{
	Progress, Result,
	deadline::Deadline,
	order::shuffled_round,
	stats::{Rounds, median, median_interval},
};

/// How much is measured.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Effort {
	/// Rounds whose samples are kept apart and not counted.
	pub warm_up: usize,
	/// Counted rounds made in any case, unless the run is interrupted or out of time; at least 1. With fewer than 6
	/// there is no interval of 95 %.
	pub least: usize,
	/// Counted rounds after which it ends, precise or not.
	pub most: usize,
	/// A cell is precise when half the 95 % interval of its median is at most this share of the median: 0.02 is 2 %.
	pub precision: f64,
	/// No round begins after this long, but one counted round is made in any case.
	pub cap: Duration,
}

impl Effort {
	/// Exactly `rounds` rounds, however precise they are.
	pub fn rounds(rounds: usize) -> Self {
		Self { warm_up: 0, least: rounds, most: rounds, precision: 0.0, cap: Duration::MAX }
	}

	/// As many of these rounds as it takes for a precision, after one of warm-up; no longer than so many seconds.
	pub fn precise(precision: f64, rounds: RangeInclusive<usize>, seconds: u64) -> Self {
		let cap = Duration::from_secs(seconds);
		Self { warm_up: 1, least: *rounds.start(), most: *rounds.end(), precision, cap }
	}

	/// The same, but over by `deadline`.
	pub fn until(self, deadline: Deadline) -> Self {
		Self { cap: self.cap.min(deadline.left()), ..self }
	}

	/// The steps of progress that [`sample`] makes.
	pub fn steps(&self) -> u64 {
		(self.warm_up + self.most) as u64
	}
}

/// Why sampling ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, strum::AsRefStr)]
#[strum(serialize_all = "lowercase")]
pub enum Ended {
	/// Every cell is precise.
	Precise,
	/// The most rounds were made.
	Rounds,
	/// Time was up.
	Time,
	/// The caller asked to stop.
	Interrupted,
	/// A visit failed.
	Failed,
}

/// What one visit of a cell yields: samples by measure. The first measure is the one precision is judged by.
pub type Visit<M> = Vec<(M, Vec<f64>)>;

/// Single samples as a visit, measure by measure.
pub fn by_measure<M: PartialEq>(samples: impl IntoIterator<Item = (M, f64)>) -> Visit<M> {
	let mut visit: Visit<M> = Vec::new();
	for (measure, sample) in samples {
		match visit.iter_mut().find(|(known, _)| *known == measure) {
			Some((_, samples)) => samples.push(sample),
			None => visit.push((measure, vec![sample])),
		}
	}
	visit
}

/// All samples of one measure of one cell.
#[derive(Debug, Clone, PartialEq)]
pub struct Series<M> {
	/// What was measured.
	pub measure: M,
	/// Samples of the warm-up, not counted.
	pub warm_up: Vec<f64>,
	/// The counted samples by round.
	pub rounds: Rounds,
}

/// The outcome of sampling.
#[derive(Debug, Clone, PartialEq)]
pub struct Sampled<M> {
	/// For every cell, its measures. Empty for a cell that was never visited.
	pub cells: Vec<Vec<Series<M>>>,
	/// Why it ended.
	pub ended: Ended,
}

impl<M: Copy + PartialEq> Sampled<M> {
	/// The series of `measure` in cell number `cell`.
	pub fn series(&self, cell: usize, measure: M) -> Option<&Series<M>> {
		self.cells.get(cell)?.iter().find(|series| series.measure == measure)
	}
}

/// Visits `cells` cells by these rules. `visit` is called with the cell's number and the round's.
///
/// One step of progress is made per round up to [`Effort::most`]; what is not needed is stepped over.
/// An error of `visit` ends it; what was taken before is handed back beside the error.
pub fn sample<M: Copy + PartialEq>(
	cells: usize,
	effort: &Effort,
	seed: u64,
	progress: &mut dyn Progress,
	visit: impl FnMut(usize, usize) -> Result<Visit<M>>,
) -> (Sampled<M>, Result) {
	let begin = Instant::now();
	sample_by(cells, effort, seed, progress, &mut || begin.elapsed(), visit)
}

/// [`sample`] on any clock.
fn sample_by<M: Copy + PartialEq>(
	cells: usize,
	effort: &Effort,
	seed: u64,
	progress: &mut dyn Progress,
	elapsed: &mut dyn FnMut() -> Duration,
	mut visit: impl FnMut(usize, usize) -> Result<Visit<M>>,
) -> (Sampled<M>, Result) {
	let mut random = fastrand::Rng::with_seed(seed);
	let mut taken: Vec<Vec<Series<M>>> = (0..cells).map(|_| Vec::new()).collect();
	let (mut made, mut next_look) = (0_usize, effort.least.max(1));
	let mut failure = Ok(());
	let ended = 'rounds: loop {
		let counted = made.saturating_sub(effort.warm_up);
		if progress.interrupted() {
			break Ended::Interrupted;
		}
		if counted >= 1 {
			if counted >= next_look {
				if taken.iter().all(|cell| precise(cell, effort.precision)) {
					break Ended::Precise;
				}
				// The interval costs more than a round of fast cells: it is looked at after every tenth more.
				next_look = counted + counted.div_ceil(10);
			}
			if counted >= effort.most {
				break Ended::Rounds;
			}
			if elapsed() >= effort.cap {
				break Ended::Time;
			}
		}
		for cell in shuffled_round(cells, &mut random) {
			if progress.interrupted() {
				break 'rounds Ended::Interrupted;
			}
			let visited = match visit(cell, made) {
				Ok(visited) => visited,
				Err(error) => {
					failure = Err(error);
					break 'rounds Ended::Failed;
				}
			};
			for (measure, samples) in visited {
				keep(&mut taken[cell], measure, samples, made < effort.warm_up);
			}
		}
		made += 1;
		progress.step();
	};
	(made..effort.warm_up + effort.most).for_each(|_| progress.step());
	(Sampled { cells: taken, ended }, failure)
}

fn keep<M: Copy + PartialEq>(cell: &mut Vec<Series<M>>, measure: M, samples: Vec<f64>, warm_up: bool) {
	let found = cell.iter().position(|series| series.measure == measure);
	let index = found.unwrap_or_else(|| {
		cell.push(Series { measure, warm_up: Vec::new(), rounds: Rounds::default() });
		cell.len() - 1
	});
	if warm_up { cell[index].warm_up.extend(samples) } else { cell[index].rounds.push(samples) }
}

/// Whether the first measure of a cell is precise. A cell without samples has nothing more to gain.
fn precise<M>(cell: &[Series<M>], precision: f64) -> bool {
	let Some(series) = cell.first() else { return true };
	let Some(interval) = median_interval(&series.rounds) else { return true };
	let middle = median(&mut series.rounds.flat());
	(interval.high - interval.low) / 2.0 <= precision * middle.abs()
}

#[cfg(test)]
mod tests {
	use super::*;
	use crate::Silent;

	const EFFORT: Effort =
		Effort { warm_up: 1, least: 5, most: 400, precision: 0.02, cap: Duration::from_secs(1_000_000) };

	/// Counts steps; asks to stop after so many.
	struct StopAfter(u64, u64);

	impl Progress for StopAfter {
		fn step(&mut self) {
			self.1 += 1;
		}
		fn interrupted(&self) -> bool {
			self.1 >= self.0
		}
	}

	/// A sample that is `mean` give or take `noise`, evenly.
	fn noisy(mean: f64, noise: f64, random: &mut fastrand::Rng) -> f64 {
		mean * (1.0 + noise * (2.0 * random.f64() - 1.0))
	}

	fn run(effort: &Effort, cells: &[(f64, f64)]) -> Sampled<()> {
		let mut random = fastrand::Rng::with_seed(9);
		sample(cells.len(), effort, 1, &mut Silent, |cell, _| {
			let (mean, noise) = cells[cell];
			Ok(vec![((), vec![noisy(mean, noise, &mut random)])])
		})
		.0
	}

	fn rounds(sampled: &Sampled<()>, cell: usize) -> usize {
		sampled.cells[cell][0].rounds.0.len()
	}

	#[test]
	fn single_samples_become_those_of_each_measure_in_the_order_these_came() {
		let samples = [("exit", 2.0), ("cycle", 5.0), ("exit", 4.0), ("cycle", 9.0)];
		assert_eq!(by_measure(samples), [("exit", vec![2.0, 4.0]), ("cycle", vec![5.0, 9.0])]);
		assert!(by_measure::<&str>([]).is_empty());
	}

	#[test]
	fn steady_cells_end_at_the_least_and_noisy_ones_go_on_until_they_are_precise() {
		let steady = run(&EFFORT, &[(10.0, 0.001), (99.0, 0.001)]);
		assert_eq!((steady.ended, rounds(&steady, 0)), (Ended::Precise, 5));
		let noisy = run(&EFFORT, &[(10.0, 0.001), (99.0, 0.1)]);
		assert_eq!(noisy.ended, Ended::Precise);
		// Even noise of 10 %: the median of n has a standard error of 0.1 / sqrt(n), so 96 are due; luck ends it
		// sooner.
		assert!((12..200).contains(&rounds(&noisy, 1)), "{}", rounds(&noisy, 1));
		assert_eq!(rounds(&noisy, 0), rounds(&noisy, 1), "cells stay side by side");
		let interval = median_interval(&noisy.cells[1][0].rounds).unwrap();
		assert!(interval.high - interval.low <= 0.04 * 99.0 * 1.01 && (95.0..101.0).contains(&interval.low));
	}

	#[test]
	fn what_cannot_become_precise_ends_at_the_most_rounds_or_when_time_is_up() {
		let effort = Effort { most: 8, precision: 0.0, ..EFFORT };
		let sampled = run(&effort, &[(10.0, 0.5)]);
		assert_eq!((sampled.ended, rounds(&sampled, 0)), (Ended::Rounds, 8));
		let (mut clock, mut steps) = (0, StopAfter(u64::MAX, 0));
		let late = sample_by(
			2,
			&Effort { cap: Duration::from_secs(4), ..effort },
			1,
			&mut steps,
			&mut || {
				clock += 2;
				Duration::from_secs(clock)
			},
			|_, round| Ok(vec![((), vec![round as f64])]),
		)
		.0;
		assert_eq!((late.ended, rounds(&late, 0)), (Ended::Time, 2));
		assert_eq!(steps.1, 9, "what was left out is stepped over");
	}

	#[test]
	fn a_first_round_is_made_even_when_time_is_up_and_warm_up_is_kept_apart() {
		let effort = Effort { warm_up: 2, cap: Duration::ZERO, ..EFFORT };
		let (sampled, done) =
			sample(1, &effort, 1, &mut Silent, |_, round| Ok(vec![('x', vec![round as f64, 10.0 + round as f64])]));
		done.unwrap();
		assert_eq!(sampled.ended, Ended::Time);
		let series = sampled.series(0, 'x').unwrap();
		assert_eq!(series.warm_up, [0.0, 10.0, 1.0, 11.0]);
		assert_eq!(series.rounds.0, [[2.0, 12.0]]);
		assert!(sampled.series(0, 'y').is_none() && sampled.series(1, 'x').is_none());
	}

	#[test]
	fn an_interrupted_run_keeps_what_it_has() {
		let mut steps = StopAfter(4, 0);
		let (sampled, done) = sample(3, &EFFORT, 1, &mut steps, |cell, _| Ok(vec![((), vec![cell as f64 + 1.0])]));
		done.unwrap();
		assert_eq!(sampled.ended, Ended::Interrupted);
		assert!((0..3).all(|cell| rounds(&sampled, cell) == 3), "4 rounds, one of them warm-up");
	}

	#[test]
	fn an_outlier_is_kept_and_does_not_move_the_median() {
		let sampled = sample(1, &Effort { least: 21, ..EFFORT }, 1, &mut Silent, |_, round| {
			Ok(vec![((), vec![if round == 7 { 1e6 } else { 50.0 }])])
		})
		.0;
		let flat = sampled.cells[0][0].rounds.flat();
		assert_eq!(flat.len(), 21);
		assert!(flat.contains(&1e6));
		assert_eq!(median(&mut flat.clone()), 50.0);
	}

	#[test]
	fn drift_hits_all_cells_alike() {
		// Everything becomes three times slower meanwhile; the second cell costs exactly twice the first.
		let mut now = 0.0;
		let effort = Effort { warm_up: 0, least: 60, most: 60, ..EFFORT };
		let sampled = sample(2, &effort, 5, &mut Silent, |cell, _| {
			now += 1.0;
			Ok(vec![((), vec![(cell as f64 + 1.0) * (1.0 + now / 60.0)])])
		})
		.0;
		let of = |cell: usize| &sampled.cells[cell][0].rounds;
		let found = crate::stats::ratio_of_medians(of(1), of(0)).unwrap();
		assert!((found.value - 2.0).abs() < 0.03, "{found:?}");
		assert!(found.interval.high - found.interval.low < 0.1, "{found:?}");
	}

	#[test]
	fn a_failed_visit_ends_it_and_what_was_taken_is_kept() {
		let mut steps = StopAfter(u64::MAX, 0);
		let (sampled, failed) = sample(2, &EFFORT, 1, &mut steps, |cell, round| match round {
			4 => Err(crate::unable!("the worker is gone")),
			_ => Ok(vec![((), vec![cell as f64 + 1.0])]),
		});
		assert_eq!(failed.unwrap_err().to_string(), "the worker is gone");
		assert_eq!((sampled.ended, rounds(&sampled, 0), rounds(&sampled, 1)), (Ended::Failed, 3, 3));
		assert_eq!(steps.1, EFFORT.steps());
	}

	#[test]
	fn a_deadline_shortens_the_time_and_never_lengthens_it() {
		let second = Deadline::after(Duration::from_secs(1));
		assert!(EFFORT.until(second).cap <= Duration::from_secs(1));
		assert_eq!(EFFORT.until(Deadline::NEVER), EFFORT);
		assert_eq!(Effort { cap: Duration::ZERO, ..EFFORT }.until(second).cap, Duration::ZERO);
	}
}
