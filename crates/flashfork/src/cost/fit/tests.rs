use super::*;

fn sample<const N: usize>(amounts: [f64; N], truth: [f64; N], error: f64) -> Sample<N> {
	let cost: f64 = amounts.iter().zip(truth).map(|(a, c)| a * c).sum();
	Sample { amounts, cost: cost * (1.0 + error) }
}

const TRUTH: [f64; 4] = [21_000.0, 22.5, 410.0, 1_900.0];
const AMOUNTS: [[f64; 4]; 8] = [
	[1.0, 0.0, 0.0, 0.0],
	[1.0, 4096.0, 0.0, 0.0],
	[1.0, 16384.0, 0.0, 0.0],
	[1.0, 0.0, 8.0, 0.0],
	[1.0, 0.0, 32.0, 0.0],
	[1.0, 0.0, 0.0, 32.0],
	[1.0, 500.0, 0.0, 32.0],
	[1.0, 0.0, 500.0, 0.0],
];

#[test]
fn known_coefficients_are_recovered() {
	let (found, residual) = fit(&AMOUNTS.map(|a| sample(a, TRUTH, 0.0)));
	for (f, t) in found.iter().zip(TRUTH) {
		assert!((f / t - 1.0).abs() < 1e-6, "{found:?}");
	}
	assert!(residual < 1e-6);
}

#[test]
fn noise_shows_in_the_residual_and_bends_coefficients_no_more_than_that() {
	let noise = [0.04, -0.03, 0.05, -0.05, 0.02, 0.03, -0.04, 0.01];
	let mut i = 0;
	let samples = AMOUNTS.map(|a| {
		i += 1;
		sample(a, TRUTH, noise[i - 1])
	});
	let (found, residual) = fit(&samples);
	for (f, t) in found.iter().zip(TRUTH) {
		assert!((f / t - 1.0).abs() < 0.2, "{found:?}");
	}
	assert!((0.005..0.06).contains(&residual), "{residual}");
}

#[test]
fn no_coefficient_is_negative() {
	// Noise makes more pages look cheaper.
	let samples = [
		Sample { amounts: [1.0, 0.0], cost: 100.0 },
		Sample { amounts: [1.0, 10.0], cost: 96.0 },
		Sample { amounts: [1.0, 20.0], cost: 98.0 },
	];
	let (found, _) = fit(&samples);
	assert_eq!(found[1], 0.0);
	assert!((found[0] - 98.0).abs() < 2.0);
}

#[test]
fn what_no_sample_tells_is_zero() {
	let (found, _) = fit(&[Sample { amounts: [1.0, 0.0], cost: 50.0 }]);
	assert!((found[0] - 50.0).abs() < 1e-9 && found[1] == 0.0);
	assert_eq!(fit::<2>(&[]).0, [0.0, 0.0]);
}
