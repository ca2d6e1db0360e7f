//! Outliers: labelled, never dropped.
//!
//! J. W. Tukey, "Exploratory Data Analysis", 1977: inner fences 1.5, outer fences 3 interquartile ranges beyond the
//! quartiles.

use super::quantile;

/// How far out a sample lies.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outlier {
	/// Below the lower outer fence.
	LowSevere,
	/// Between the lower fences.
	LowMild,
	/// Between the upper fences.
	HighMild,
	/// Above the upper outer fence.
	HighSevere,
}

/// Labels each of `samples`, in their order; `None` lies within the fences. Fewer than four samples have no outliers.
pub fn fences(samples: &[f64]) -> Vec<Option<Outlier>> {
	if samples.len() < 4 {
		return vec![None; samples.len()];
	}
	let mut sorted = samples.to_vec();
	sorted.sort_unstable_by(f64::total_cmp);
	let (first, third) = (quantile(&sorted, 0.25), quantile(&sorted, 0.75));
	let range = third - first;
	let label = |sample: f64| match sample {
		s if s < first - 3.0 * range => Some(Outlier::LowSevere),
		s if s < first - 1.5 * range => Some(Outlier::LowMild),
		s if s > third + 3.0 * range => Some(Outlier::HighSevere),
		s if s > third + 1.5 * range => Some(Outlier::HighMild),
		_ => None,
	};
	samples.iter().map(|&sample| label(sample)).collect()
}

#[cfg(test)]
mod tests {
	use super::*;

	#[test]
	fn labels_follow_the_fences_and_keep_the_order() {
		// Quartiles 10 and 20: fences at -5 and 35, -20 and 50.
		let mut samples: Vec<f64> = (0..21).map(|i| 5.0 + f64::from(i)).collect();
		let within = fences(&samples);
		assert!(within.iter().all(Option::is_none));
		samples.extend([-100.0, 44.0, 1e9]);
		let labels = fences(&samples);
		assert_eq!(labels.len(), samples.len());
		assert_eq!(labels[21..], [Some(Outlier::LowSevere), Some(Outlier::HighMild), Some(Outlier::HighSevere)]);
		samples.push(-10.0);
		assert_eq!(fences(&samples)[24], Some(Outlier::LowMild));
	}

	#[test]
	fn few_samples_have_none() {
		assert_eq!(fences(&[1.0, 1.0, 1e9]), [None; 3]);
		assert!(fences(&[]).is_empty());
	}
}
