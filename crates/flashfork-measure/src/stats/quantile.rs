//! Sample quantiles.

/// The figures every record states about its samples.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Summary {
	/// How many samples.
	pub n: usize,
	/// The smallest sample.
	pub min: f64,
	/// The 10 % quantile.
	pub p10: f64,
	/// The median.
	pub p50: f64,
	/// The 90 % quantile.
	pub p90: f64,
	/// The 99 % quantile.
	pub p99: f64,
	/// The largest sample.
	pub max: f64,
}

impl Summary {
	/// Summarises `samples`; `None` when there are none or one is not a finite number.
	pub fn of(samples: &[f64]) -> Option<Self> {
		if samples.is_empty() || !samples.iter().all(|sample| sample.is_finite()) {
			return None;
		}
		let mut sorted = samples.to_vec();
		sorted.sort_unstable_by(f64::total_cmp);
		let at = |q| quantile(&sorted, q);
		Some(Self {
			n: sorted.len(),
			min: at(0.0),
			p10: at(0.1),
			p50: at(0.5),
			p90: at(0.9),
			p99: at(0.99),
			max: at(1.0),
		})
	}

	/// Width of the middle 80 % relative to the median: 0.2 means p10 to p90 span a fifth of the median. Infinite or
	/// NaN when the median is zero.
	pub fn spread(&self) -> f64 {
		(self.p90 - self.p10) / self.p50
	}
}

/// The quantile `q` (0 to 1) of ascending, non-empty `sorted` samples.
///
/// Definition 7 of R. J. Hyndman and Y. Fan, "Sample Quantiles in Statistical Packages", The American Statistician
/// 50(4), 1996: linear interpolation at position (n − 1)·q, what R and NumPy do unless told otherwise.
///
/// # Panics
/// When `sorted` is empty.
pub fn quantile(sorted: &[f64], q: f64) -> f64 {
	let position = (sorted.len() - 1) as f64 * q.clamp(0.0, 1.0);
	let below = position.floor() as usize;
	let above = (below + 1).min(sorted.len() - 1);
	sorted[below] + (sorted[above] - sorted[below]) * position.fract()
}

/// The median of `samples` in any order, reordering them.
///
/// # Panics
/// When `samples` is empty.
pub fn median(samples: &mut [f64]) -> f64 {
	let middle = samples.len() / 2;
	let odd = samples.len() % 2 == 1;
	let (below, &mut upper, _) = samples.select_nth_unstable_by(middle, f64::total_cmp);
	if odd { upper } else { (below.iter().copied().fold(f64::NEG_INFINITY, f64::max) + upper) / 2.0 }
}

#[cfg(test)]
mod tests {
	use super::*;

	#[test]
	fn agrees_with_the_published_definition() {
		// R: quantile(c(1, 2, 3, 4), c(0, .1, .25, .5, .9, .99, 1), type = 7)
		let samples = [1.0, 2.0, 3.0, 4.0];
		for (q, expected) in [(0.0, 1.0), (0.1, 1.3), (0.25, 1.75), (0.5, 2.5), (0.9, 3.7), (0.99, 3.97), (1.0, 4.0)] {
			assert!((quantile(&samples, q) - expected).abs() < 1e-12, "{q}");
		}
	}

	#[test]
	fn a_ramp_has_known_quantiles() {
		let mut samples: Vec<f64> = (0..=100).map(f64::from).collect();
		fastrand::Rng::with_seed(1).shuffle(&mut samples);
		let summary = Summary::of(&samples).unwrap();
		assert_eq!((summary.n, summary.min, summary.p10, summary.p50), (101, 0.0, 10.0, 50.0));
		assert_eq!((summary.p90, summary.p99, summary.max), (90.0, 99.0, 100.0));
		assert!((summary.spread() - 1.6).abs() < 1e-12);
	}

	#[test]
	fn one_sample_is_all_its_quantiles() {
		let summary = Summary::of(&[7.0]).unwrap();
		assert_eq!((summary.min, summary.p50, summary.p99, summary.max), (7.0, 7.0, 7.0, 7.0));
		assert_eq!(summary.spread(), 0.0);
	}

	#[test]
	fn refuses_what_cannot_be_summarised() {
		assert!(Summary::of(&[]).is_none());
		assert!(Summary::of(&[1.0, f64::NAN]).is_none());
		assert!(Summary::of(&[1.0, f64::INFINITY]).is_none());
	}

	#[test]
	fn the_median_needs_no_order() {
		assert_eq!(median(&mut [3.0, 1.0, 2.0]), 2.0);
		assert_eq!(median(&mut [4.0, 1.0, 3.0, 2.0]), 2.5);
		assert_eq!(median(&mut [-5.0, -1.0]), -3.0);
	}
}
