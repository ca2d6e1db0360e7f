//! Linear least squares with coefficients that can't be negative, by relative error.
//!
//! Relative: a fork of nothing and one of 64 MB differ by a factor of twenty and should be met equally well. Not
//! negative: no page makes a fork faster, only noise does.

/// An equation: what was measured under which conditions.
#[derive(Clone, Copy, Debug)]
pub(super) struct Sample<const N: usize> {
    /// How much there was of what each coefficient is the price of.
    pub amounts: [f64; N],
    /// What it cost in all; more than 0.
    pub cost: f64,
}

/// The coefficients that meet the samples best, and the largest relative error they leave.
pub(super) fn fit<const N: usize>(samples: &[Sample<N>]) -> ([f64; N], f64) {
    let mut free = [true; N];
    // A coefficient that no sample tells anything about is zero.
    for (i, f) in free.iter_mut().enumerate() {
        *f = samples.iter().any(|s| s.amounts[i] != 0.0);
    }
    loop {
        let found = solve(samples, &free);
        // One at a time: without it the others may change sign.
        let worst = (0..N).filter(|i| found[*i] < 0.0).min_by(|a, b| found[*a].total_cmp(&found[*b]));
        match worst {
            Some(i) => free[i] = false,
            None => return (found, residual(samples, &found)),
        }
    }
}

/// The normal equations of the free coefficients, by Gaussian elimination with pivoting; the others are zero.
fn solve<const N: usize>(samples: &[Sample<N>], free: &[bool; N]) -> [f64; N] {
    let mut a = [[0.0; N]; N];
    let mut b = [0.0; N];
    for s in samples {
        let weight = 1.0 / (s.cost * s.cost);
        for i in (0..N).filter(|i| free[*i]) {
            b[i] += weight * s.amounts[i] * s.cost;
            for j in (0..N).filter(|j| free[*j]) {
                a[i][j] += weight * s.amounts[i] * s.amounts[j];
            }
        }
    }
    // Columns of very different size (pages, mappings) are brought to one scale first.
    let scale: [f64; N] = std::array::from_fn(|i| if a[i][i] > 0.0 { a[i][i].sqrt() } else { 1.0 });
    for i in 0..N {
        b[i] /= scale[i];
        for j in 0..N {
            a[i][j] /= scale[i] * scale[j];
        }
    }
    let mut used = [false; N];
    let mut pivot_of = [None; N];
    for column in 0..N {
        let pivot = (0..N).filter(|r| !used[*r]).max_by(|x, y| a[*x][column].abs().total_cmp(&a[*y][column].abs()));
        let Some(pivot) = pivot.filter(|r| a[*r][column].abs() > 1e-9) else { continue };
        used[pivot] = true;
        pivot_of[column] = Some(pivot);
        for row in (0..N).filter(|r| *r != pivot) {
            let factor = a[row][column] / a[pivot][column];
            let of_pivot = a[pivot];
            a[row].iter_mut().zip(of_pivot).for_each(|(cell, p)| *cell -= factor * p);
            b[row] -= factor * b[pivot];
        }
    }
    std::array::from_fn(|i| pivot_of[i].map_or(0.0, |p| b[p] / a[p][i] / scale[i]))
}

fn residual<const N: usize>(samples: &[Sample<N>], found: &[f64; N]) -> f64 {
    let error = |s: &Sample<N>| {
        let met: f64 = s.amounts.iter().zip(found).map(|(a, c)| a * c).sum();
        ((met - s.cost) / s.cost).abs()
    };
    samples.iter().map(error).fold(0.0, f64::max)
}

#[cfg(test)]
mod tests {
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
}
