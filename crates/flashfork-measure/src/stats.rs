//! Quantiles, spread, bootstrap intervals, fits and rank tests. Nothing is thrown away as an outlier.

mod bootstrap;
mod fit;
mod outlier;
mod quantile;
mod rank;

pub use bootstrap::{Interval, Ratio, median_interval, quantile_of, ratio_of_medians};
pub use fit::{Fit, Observation, fit};
pub use outlier::{Outlier, fences};
pub use quantile::{Summary, median, quantile};
pub use rank::{RankTest, holm, rank_test, smallest_p};

/// Samples of one configuration, kept by the round in which they were taken.
///
/// Samples of one round share the state of the machine at that moment, so they are not independent: the intervals are
/// computed by drawing whole rounds.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Rounds(pub Vec<Vec<f64>>);

impl Rounds {
	/// Independent samples: each is its own round.
	pub fn independent(samples: &[f64]) -> Self {
		Self(samples.iter().map(|&sample| vec![sample]).collect())
	}

	/// Adds the samples of one more round.
	pub fn push(&mut self, samples: Vec<f64>) {
		self.0.push(samples);
	}

	/// All samples in the order they were taken.
	pub fn flat(&self) -> Vec<f64> {
		self.0.concat()
	}
}
