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
mod tests;
