//! Whether two series differ, without assuming how they are distributed.
//!
//! H. B. Mann and D. R. Whitney, "On a Test of Whether one of Two Random Variables is Stochastically Larger than the
//! Other", The Annals of Mathematical Statistics 18(1), 1947. Normal approximation with correction for ties and
//! continuity, as in E. L. Lehmann, "Nonparametrics", 1975, section 1.4. Several tests together: S. Holm, "A Simple
//! Sequentially Rejective Multiple Test Procedure", Scandinavian Journal of Statistics 6(2), 1979.

/// The outcome of a rank test.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct RankTest {
	/// How likely a difference of ranks as large as this is when there is none: two-sided, 0 to 1.
	pub p: f64,
	/// How likely a sample of the second series is larger than one of the first, ties counted half: 0.5 when equal.
	pub second_larger: f64,
}

/// Compares two series of independent samples; `None` with fewer than four on either side, where the approximation
/// fails.
pub fn rank_test(first: &[f64], second: &[f64]) -> Option<RankTest> {
	let (n, m) = (first.len() as f64, second.len() as f64);
	if first.len() < 4 || second.len() < 4 {
		return None;
	}
	let mut all: Vec<(f64, bool)> =
		first.iter().map(|&v| (v, false)).chain(second.iter().map(|&v| (v, true))).collect();
	all.sort_by(|a, b| a.0.total_cmp(&b.0));
	let (mut ranks_of_second, mut ties, mut at) = (0.0, 0.0, 0);
	while at < all.len() {
		let run = all[at..].iter().take_while(|(value, _)| *value == all[at].0).count();
		// Equal samples share the mean of their ranks, which count from 1.
		let rank = at as f64 + (run as f64 + 1.0) / 2.0;
		ranks_of_second += rank * all[at..at + run].iter().filter(|(_, second)| *second).count() as f64;
		ties += (run as f64).powi(3) - run as f64;
		at += run;
	}
	let u = ranks_of_second - m * (m + 1.0) / 2.0;
	let total = n + m;
	let variance = n * m / 12.0 * (total + 1.0 - ties / (total * (total - 1.0)));
	let distance = ((u - n * m / 2.0).abs() - 0.5).max(0.0);
	let p = if variance > 0.0 { (2.0 * upper_tail(distance / variance.sqrt())).min(1.0) } else { 1.0 };
	Some(RankTest { p, second_larger: u / (n * m) })
}

/// The smallest probability that [`rank_test`] can give for so many samples: when all of one side lie above all the
/// other. What is not below it can't be told however large the difference is. 1 with fewer than four on either side.
pub fn smallest_p(first: usize, second: usize) -> f64 {
	let series = |count: usize, from: f64| (0..count).map(|i| from + i as f64).collect::<Vec<f64>>();
	rank_test(&series(first, 0.0), &series(second, first as f64)).map_or(1.0, |test| test.p)
}

/// Holm's adjustment: probabilities that hold for all tests together, in the order given.
pub fn holm(probabilities: &[f64]) -> Vec<f64> {
	let mut order: Vec<usize> = (0..probabilities.len()).collect();
	order.sort_by(|&a, &b| probabilities[a].total_cmp(&probabilities[b]));
	let mut adjusted = vec![0.0; probabilities.len()];
	let mut largest: f64 = 0.0;
	for (done, &index) in order.iter().enumerate() {
		largest = largest.max(probabilities[index] * (probabilities.len() - done) as f64).min(1.0);
		adjusted[index] = largest;
	}
	adjusted
}

/// The probability that a standard normal deviate exceeds `z` ≥ 0.
///
/// M. Abramowitz and I. A. Stegun, "Handbook of Mathematical Functions", 1964, formula 26.2.17; error below 7.5e-8.
/// Beyond 4 the asymptotic series 26.2.12, whose error there is less than one in a hundred of the value.
fn upper_tail(z: f64) -> f64 {
	let density = (-z * z / 2.0).exp() / std::f64::consts::TAU.sqrt();
	if z > 4.0 {
		return density / z * (1.0 - 1.0 / (z * z) + 3.0 / z.powi(4) - 15.0 / z.powi(6));
	}
	const B: [f64; 5] = [0.319_381_530, -0.356_563_782, 1.781_477_937, -1.821_255_978, 1.330_274_429];
	let t = 1.0 / (1.0 + 0.231_641_9 * z);
	density * t * B.iter().rev().fold(0.0, |sum, b| sum * t + b)
}

#[cfg(test)]
mod tests {
	use super::*;

	#[test]
	fn agrees_with_published_values() {
		for (z, tail) in [(0.0, 0.5), (1.0, 0.158_655), (1.959_964, 0.025), (3.0, 0.001_349_9), (5.0, 2.8665e-7)] {
			assert!((upper_tail(z) / tail - 1.0).abs() < 1e-3, "{z}: {}", upper_tail(z));
		}
		// R: wilcox.test(c(1.1,2.2,3.3,4.4,5.5), c(2.5,3.5,4.5,5.6,6.5,7.5), exact = FALSE): W = 6, p-value = 0.1207
		let test = rank_test(&[1.1, 2.2, 3.3, 4.4, 5.5], &[2.5, 3.5, 4.5, 5.6, 6.5, 7.5]).unwrap();
		assert!((test.p - 0.1207).abs() < 5e-4, "{test:?}");
		assert!((test.second_larger - 24.0 / 30.0).abs() < 1e-12, "{test:?}");
	}

	#[test]
	fn equal_series_seldom_differ_and_shifted_ones_do() {
		let mut random = fastrand::Rng::with_seed(3);
		let mut series = |shift: f64| (0..40).map(|_| random.f64() + shift).collect::<Vec<f64>>();
		let false_alarms = (0..400).filter(|_| rank_test(&series(0.0), &series(0.0)).unwrap().p < 0.05).count();
		assert!((4..40).contains(&false_alarms), "{false_alarms} of 400, about 20 are due");
		let shifted = rank_test(&series(0.0), &series(0.5)).unwrap();
		assert!(shifted.p < 1e-6 && shifted.second_larger > 0.8, "{shifted:?}");
	}

	#[test]
	fn all_ties_are_no_difference_and_few_samples_no_answer() {
		let test = rank_test(&[5.0; 10], &[5.0; 9]).unwrap();
		assert_eq!((test.p, test.second_larger), (1.0, 0.5));
		assert!(rank_test(&[1.0, 2.0, 3.0], &[9.0; 50]).is_none());
	}

	#[test]
	fn the_smallest_probability_is_that_of_complete_separation() {
		// Exact: 2 of the 70 ways to choose 4 of 8 ranks; the approximation is a little above.
		assert!((smallest_p(4, 4) - 2.0 / 70.0).abs() < 0.003, "{}", smallest_p(4, 4));
		assert!(smallest_p(10, 10) < 0.0003 && smallest_p(3, 100) == 1.0);
	}

	#[test]
	fn ties_are_counted_as_the_textbooks_do() {
		// By hand: mid-ranks 1.5 1.5 5 5 5 | 5 5 8.5 8.5 10, so U = 22 (of 25); ties 6 + 120 + 6, variance 25/12 (11 -
		// 132/90).
		let test = rank_test(&[1.0, 1.0, 2.0, 2.0, 2.0], &[2.0, 2.0, 3.0, 3.0, 4.0]).unwrap();
		let z = (22.0 - 12.5 - 0.5) / (25.0 / 12.0 * (11.0 - 132.0 / 90.0_f64)).sqrt();
		assert!(
			(test.p - 2.0 * upper_tail(z)).abs() < 1e-12 && (test.second_larger - 22.0 / 25.0).abs() < 1e-12,
			"{test:?}"
		);
	}

	#[test]
	fn several_tests_are_judged_together() {
		// R: p.adjust(c(0.01, 0.04, 0.03, 0.005), "holm"): 0.03 0.06 0.06 0.02
		let adjusted = holm(&[0.01, 0.04, 0.03, 0.005]);
		for (found, expected) in adjusted.iter().zip([0.03, 0.06, 0.06, 0.02]) {
			assert!((found - expected).abs() < 1e-12, "{adjusted:?}");
		}
		assert_eq!(holm(&[0.9, 0.8]), [1.0, 1.0]);
	}
}
