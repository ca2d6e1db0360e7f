//! Linear fits with bootstrap intervals and residuals.
//!
//! Least squares by relative error: a fork of nothing and one of a gigabyte should be met equally well. Intervals:
//! whole rounds are drawn anew for every cell, the medians taken again and the line fitted again (see
//! [`median_interval`]).
//!
//! [`median_interval`]: super::median_interval

use super::{
	Interval, Rounds,
	bootstrap::{draw, filled, percentile_interval, redrawn_median},
	median,
};

/// How many times the samples are redrawn.
const REDRAWS: usize = 1000;
const SEED: u64 = 0x1988;

/// One cell: how much there was of what each coefficient is the price of, and what it cost.
#[derive(Debug, Clone)]
pub struct Observation<const N: usize> {
	/// The amounts, one per coefficient.
	pub amounts: [f64; N],
	/// The samples of the cost; all above zero.
	pub cost: Rounds,
}

/// The coefficients that meet the medians of all cells best.
#[derive(Debug, Clone, PartialEq)]
pub struct Fit<const N: usize> {
	/// The coefficients.
	pub coefficients: [f64; N],
	/// Where each lies with 95 % confidence.
	pub intervals: [Interval; N],
	/// For each observation, how much dearer it was than the fit says, relative to what was measured: 0.1 is 10 %.
	pub residuals: Vec<f64>,
}

impl<const N: usize> Fit<N> {
	/// What the fit says about these amounts.
	pub fn predict(&self, amounts: [f64; N]) -> f64 {
		amounts.iter().zip(&self.coefficients).map(|(amount, price)| amount * price).sum()
	}
}

/// Fits cost = Σ coefficient · amount; `None` with too few or too similar observations, or a cost that is not above
/// zero.
pub fn fit<const N: usize>(observations: &[Observation<N>]) -> Option<Fit<N>> {
	let rounds: Vec<Vec<&[f64]>> = observations.iter().map(|observation| filled(&observation.cost)).collect();
	if rounds.iter().any(Vec::is_empty) {
		return None;
	}
	let medians: Vec<f64> = rounds.iter().map(|rounds| median(&mut rounds.concat())).collect();
	let amounts: Vec<[f64; N]> = observations.iter().map(|observation| observation.amounts).collect();
	let coefficients = solve(&amounts, &medians)?;
	let mut random = fastrand::Rng::with_seed(SEED);
	let mut redrawn: [Vec<f64>; N] = std::array::from_fn(|_| Vec::with_capacity(REDRAWS));
	for _ in 0..REDRAWS {
		let costs: Vec<f64> =
			rounds.iter().map(|rounds| redrawn_median(rounds, &draw(rounds.len(), &mut random))).collect();
		let found = solve(&amounts, &costs)?;
		redrawn.iter_mut().zip(found).for_each(|(values, value)| values.push(value));
	}
	let intervals = redrawn.map(|mut values| percentile_interval(&mut values));
	let mut fit = Fit { coefficients, intervals, residuals: Vec::new() };
	fit.residuals = amounts.iter().zip(&medians).map(|(&amounts, cost)| (cost - fit.predict(amounts)) / cost).collect();
	Some(fit)
}

/// The normal equations, each observation weighted by 1 / cost², by Gaussian elimination with pivoting.
fn solve<const N: usize>(amounts: &[[f64; N]], costs: &[f64]) -> Option<[f64; N]> {
	let mut rows = [[0.0; N]; N];
	let mut right = [0.0; N];
	for (amounts, &cost) in amounts.iter().zip(costs) {
		if cost <= 0.0 || !cost.is_finite() {
			return None;
		}
		for i in 0..N {
			right[i] += amounts[i] / cost;
			for j in 0..N {
				rows[i][j] += amounts[i] * amounts[j] / (cost * cost);
			}
		}
	}
	// Amounts of very different size (processes, pages) are brought to one scale first.
	let scale: [f64; N] = std::array::from_fn(|i| rows[i][i].sqrt());
	if scale.iter().any(|&scale| scale <= 0.0) {
		return None;
	}
	for i in 0..N {
		right[i] /= scale[i];
		for j in 0..N {
			rows[i][j] /= scale[i] * scale[j];
		}
	}
	for column in 0..N {
		let pivot = (column..N).max_by(|&a, &b| rows[a][column].abs().total_cmp(&rows[b][column].abs()))?;
		if rows[pivot][column].abs() < 1e-10 {
			return None;
		}
		rows.swap(column, pivot);
		right.swap(column, pivot);
		let (of_pivot, right_of_pivot) = (rows[column], right[column]);
		for row in (0..N).filter(|&row| row != column) {
			let factor = rows[row][column] / of_pivot[column];
			rows[row].iter_mut().zip(of_pivot).for_each(|(cell, pivot)| *cell -= factor * pivot);
			right[row] -= factor * right_of_pivot;
		}
	}
	Some(std::array::from_fn(|i| right[i] / rows[i][i] / scale[i]))
}

#[cfg(test)]
mod tests {
	use super::*;

	/// The cost model of 1988 with prices known in advance: 60 µs, 0.0557 µs, 2.22 µs.
	const TRUTH: [f64; 3] = [60.0, 0.0557, 2.22];

	fn observations(noise: f64, seed: u64) -> Vec<Observation<3>> {
		let mut random = fastrand::Rng::with_seed(seed);
		let mut made = Vec::new();
		for pages in [0.0, 256.0, 4096.0, 65536.0] {
			for share in [0.0, 0.3, 1.0] {
				let amounts = [1.0, pages, pages * share];
				let cost: f64 = amounts.iter().zip(TRUTH).map(|(amount, price)| amount * price).sum();
				let samples: Vec<f64> = (0..15).map(|_| cost * (1.0 + noise * (2.0 * random.f64() - 1.0))).collect();
				made.push(Observation { amounts, cost: Rounds::independent(&samples) });
			}
		}
		made
	}

	#[test]
	fn known_prices_are_found_and_lie_within_their_intervals() {
		let exact = fit(&observations(0.0, 1)).unwrap();
		for (found, truth) in exact.coefficients.iter().zip(TRUTH) {
			assert!((found / truth - 1.0).abs() < 1e-9, "{exact:?}");
		}
		assert!(exact.residuals.iter().all(|residual| residual.abs() < 1e-9));
		let noisy = fit(&observations(0.2, 2)).unwrap();
		for ((found, interval), truth) in noisy.coefficients.iter().zip(noisy.intervals).zip(TRUTH) {
			assert!((found / truth - 1.0).abs() < 0.2, "{noisy:?}");
			assert!(interval.low < truth && truth < interval.high, "{noisy:?}");
			assert!(interval.high - interval.low > 0.005 * truth, "noise must show: {noisy:?}");
		}
		assert!(noisy.residuals.iter().any(|residual| residual.abs() > 0.005));
	}

	#[test]
	fn the_residual_names_the_cell_that_does_not_fit() {
		let mut observations = observations(0.0, 1);
		let odd = 7;
		observations[odd].cost.0.iter_mut().for_each(|round| round[0] *= 1.5);
		let fit = fit(&observations).unwrap();
		let worst = fit.residuals.iter().enumerate().max_by(|a, b| a.1.abs().total_cmp(&b.1.abs())).unwrap();
		assert_eq!(worst.0, odd, "{:?}", fit.residuals);
		assert!(*worst.1 > 0.2);
	}

	#[test]
	fn what_cannot_be_told_apart_is_not_fitted() {
		let same = vec![Observation { amounts: [1.0, 5.0], cost: Rounds::independent(&[3.0; 5]) }; 4];
		assert!(fit(&same).is_none());
		let free = [Observation { amounts: [1.0], cost: Rounds::independent(&[0.0]) }];
		assert!(fit(&free).is_none());
		assert!(fit::<2>(&[]).is_none());
	}
}
