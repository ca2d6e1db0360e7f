//! Percentile bootstrap: B. Efron, "Bootstrap Methods: Another Look at the Jackknife", The Annals of Statistics 7(1),
//! 1979; whole rounds are drawn, as for clustered data in A. C. Davison and D. V. Hinkley, "Bootstrap Methods and their
//! Application", 1997, section 3.8.

use std::fmt;

use flashfork_terminal::table::three_figures;

use super::{Rounds, median, quantile};

/// How many times the samples are redrawn.
const REDRAWS: usize = 2000;
const CONFIDENCE: f64 = 0.95;
/// Fixed, so that the same samples always give the same interval.
const SEED: u64 = 0x1979;

/// A 95 % interval.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Interval {
	/// Lower end.
	pub low: f64,
	/// Upper end.
	pub high: f64,
}

/// A ratio of two medians, or another figure, and its 95 % interval.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Ratio {
	/// The first median divided by the second, or the figure.
	pub value: f64,
	/// Where the ratio lies with 95 % confidence.
	pub interval: Interval,
}

/// "1.05 × (1.03–1.08)".
impl fmt::Display for Ratio {
	fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
		let [value, low, high] = [self.value, self.interval.low, self.interval.high].map(three_figures);
		write!(f, "{value} × ({low}–{high})")
	}
}

/// The 95 % interval of the median; `None` without samples.
pub fn median_interval(rounds: &Rounds) -> Option<Interval> {
	let rounds = filled(rounds);
	if rounds.is_empty() {
		return None;
	}
	let mut random = fastrand::Rng::with_seed(SEED);
	let mut medians: Vec<f64> =
		(0..REDRAWS).map(|_| redrawn_median(&rounds, &draw(rounds.len(), &mut random))).collect();
	Some(percentile_interval(&mut medians))
}

/// The quantile `q` (0 to 1) of all samples with its 95 % interval; `None` without samples. Intervals of quantiles near
/// the ends are narrow if few samples lie beyond.
pub fn quantile_of(rounds: &Rounds, q: f64) -> Option<Ratio> {
	let rounds = filled(rounds);
	if rounds.is_empty() {
		return None;
	}
	let of = |mut samples: Vec<f64>| {
		samples.sort_unstable_by(f64::total_cmp);
		quantile(&samples, q)
	};
	let mut random = fastrand::Rng::with_seed(SEED);
	let mut values: Vec<f64> = (0..REDRAWS)
		.map(|_| of(draw(rounds.len(), &mut random).iter().flat_map(|&round| rounds[round]).copied().collect()))
		.collect();
	Some(Ratio { value: of(rounds.concat()), interval: percentile_interval(&mut values) })
}

/// The median of `a` divided by the median of `b`, with its 95 % interval; `None` without samples on either side.
///
/// With equally many rounds on both sides the same rounds are drawn for both: what was measured side by side stays side
/// by side, and drift common to both cancels.
pub fn ratio_of_medians(a: &Rounds, b: &Rounds) -> Option<Ratio> {
	let (a, b) = (filled(a), filled(b));
	if a.is_empty() || b.is_empty() {
		return None;
	}
	let all = |rounds: &[&[f64]]| median(&mut rounds.concat());
	let value = all(&a) / all(&b);
	let mut random = fastrand::Rng::with_seed(SEED);
	let mut ratios: Vec<f64> = (0..REDRAWS)
		.map(|_| {
			let drawn_a = draw(a.len(), &mut random);
			let drawn_b = if a.len() == b.len() { drawn_a.clone() } else { draw(b.len(), &mut random) };
			redrawn_median(&a, &drawn_a) / redrawn_median(&b, &drawn_b)
		})
		.collect();
	Some(Ratio { value, interval: percentile_interval(&mut ratios) })
}

/// The rounds to draw from. Of a single one the samples are drawn: the interval is then too narrow by what differs
/// between rounds, but it doesn't pretend to be a point.
pub(super) fn filled(rounds: &Rounds) -> Vec<&[f64]> {
	let filled: Vec<&[f64]> = rounds.0.iter().map(Vec::as_slice).filter(|samples| !samples.is_empty()).collect();
	match filled[..] {
		[only] => only.chunks(1).collect(),
		_ => filled,
	}
}

pub(super) fn draw(count: usize, random: &mut fastrand::Rng) -> Vec<usize> {
	(0..count).map(|_| random.usize(..count)).collect()
}

pub(super) fn redrawn_median(rounds: &[&[f64]], drawn: &[usize]) -> f64 {
	let mut samples: Vec<f64> = drawn.iter().flat_map(|&round| rounds[round]).copied().collect();
	median(&mut samples)
}

pub(super) fn percentile_interval(values: &mut [f64]) -> Interval {
	values.sort_unstable_by(f64::total_cmp);
	let tail = (1.0 - CONFIDENCE) / 2.0;
	Interval { low: quantile(values, tail), high: quantile(values, 1.0 - tail) }
}

#[cfg(test)]
mod tests {
	use super::*;

	#[test]
	fn ratios_show_their_interval() {
		let found = Ratio { value: 270.4, interval: Interval { low: 251.0, high: 290.9 } };
		assert_eq!(found.to_string(), "270 × (251–291)");
	}

	/// Standard normal deviates by the Box-Muller transform.
	fn normal(random: &mut fastrand::Rng) -> f64 {
		let (u, v) = (1.0 - random.f64(), random.f64());
		(-2.0 * u.ln()).sqrt() * (std::f64::consts::TAU * v).cos()
	}

	fn series(n: usize, mean: f64, deviation: f64, random: &mut fastrand::Rng) -> Rounds {
		Rounds::independent(&(0..n).map(|_| mean + deviation * normal(random)).collect::<Vec<_>>())
	}

	#[test]
	fn the_interval_covers_the_true_median_about_95_times_in_100() {
		let mut random = fastrand::Rng::with_seed(5);
		let covered = (0..200)
			.filter(|_| {
				let interval = median_interval(&series(60, 100.0, 10.0, &mut random)).unwrap();
				interval.low <= 100.0 && 100.0 <= interval.high
			})
			.count();
		assert!((180..=199).contains(&covered), "covered {covered} of 200");
	}

	/// Of 100 series of so many rounds, how many have the true median in their interval. Rounds differ as much as the
	/// samples within them.
	fn coverage(rounds: usize, random: &mut fastrand::Rng) -> u32 {
		let mut covered = 0;
		for _ in 0..100 {
			let mut round = || {
				let level = 100.0 + 5.0 * normal(random);
				(0..4).map(|_| level + 5.0 * normal(random)).collect::<Vec<f64>>()
			};
			let interval = median_interval(&Rounds((0..rounds).map(|_| round()).collect())).unwrap();
			covered += u32::from(interval.low <= 100.0 && 100.0 <= interval.high);
		}
		covered
	}

	#[test]
	fn few_rounds_cover_less_and_that_is_why_they_are_warned_of() {
		let mut random = fastrand::Rng::with_seed(11);
		let of = [3, 6, 20].map(|rounds| coverage(rounds, &mut random));
		assert!((55..88).contains(&of[0]) && (78..98).contains(&of[1]) && (86..=100).contains(&of[2]), "{of:?}");
	}

	#[test]
	fn a_single_round_has_the_interval_of_its_samples() {
		let samples: Vec<f64> = (0..30).map(f64::from).collect();
		let [one, many] = [Rounds(vec![samples.clone()]), Rounds::independent(&samples)].map(|r| median_interval(&r));
		assert_eq!(one, many);
		assert!(one.unwrap().high > one.unwrap().low + 5.0);
	}

	#[test]
	fn the_interval_of_normal_samples_has_the_textbook_width() {
		// The median of n normal samples has the standard error 1.2533 s / sqrt(n).
		let interval = median_interval(&series(1000, 50.0, 4.0, &mut fastrand::Rng::with_seed(6))).unwrap();
		let expected = 2.0 * 1.96 * 1.2533 * 4.0 / 1000f64.sqrt();
		let width = interval.high - interval.low;
		assert!((0.6..1.5).contains(&(width / expected)), "width {width}, expected {expected}");
	}

	#[test]
	fn a_known_ratio_is_found() {
		let mut random = fastrand::Rng::with_seed(7);
		let (a, b) = (series(300, 300.0, 5.0, &mut random), series(200, 10.0, 0.2, &mut random));
		let ratio = ratio_of_medians(&a, &b).unwrap();
		assert!((ratio.value - 30.0).abs() < 0.5, "{ratio:?}");
		assert!(ratio.interval.low < 30.0 && 30.0 < ratio.interval.high, "{ratio:?}");
		assert!(ratio.interval.high - ratio.interval.low < 1.0, "{ratio:?}");
	}

	#[test]
	fn drift_common_to_both_sides_cancels_in_the_ratio() {
		// The machine slows down threefold over the rounds; the ratio is exactly 2 in each.
		let rounds = |factor: f64| Rounds((0..20).map(|i| vec![factor * (1.0 + f64::from(i) / 10.0); 5]).collect());
		let ratio = ratio_of_medians(&rounds(2.0), &rounds(1.0)).unwrap();
		assert!((ratio.interval.low - 2.0).abs() < 1e-9 && (ratio.interval.high - 2.0).abs() < 1e-9, "{ratio:?}");
	}

	#[test]
	fn samples_that_repeat_within_a_round_do_not_fake_certainty() {
		let mut random = fastrand::Rng::with_seed(8);
		let means: Vec<f64> = (0..10).map(|_| 100.0 + 10.0 * normal(&mut random)).collect();
		let once = median_interval(&Rounds::independent(&means)).unwrap();
		let repeated = median_interval(&Rounds(means.iter().map(|&mean| vec![mean; 50]).collect())).unwrap();
		assert!((repeated.high - repeated.low) > 0.8 * (once.high - once.low), "{repeated:?} {once:?}");
	}

	#[test]
	fn a_quantile_lies_in_its_interval() {
		let mut random = fastrand::Rng::with_seed(9);
		let found = quantile_of(&series(2000, 100.0, 10.0, &mut random), 0.99).unwrap();
		// 2.326 standard deviations above the mean.
		assert!((found.value - 123.3).abs() < 3.0, "{found:?}");
		assert!(found.interval.low < found.value && found.value < found.interval.high, "{found:?}");
	}

	#[test]
	fn nothing_comes_of_nothing() {
		assert!(median_interval(&Rounds::default()).is_none());
		assert!(quantile_of(&Rounds::default(), 0.99).is_none());
		assert!(ratio_of_medians(&Rounds::independent(&[1.0]), &Rounds(vec![vec![]])).is_none());
	}
}
