//! How exactly samples are kept.

/// From which four digits on kept numbers lie how far apart, and how many come before these, of those that begin with
/// the same power of ten.
const PARTS: [(i32, i32, i32); 3] = [(1000, 4, 0), (2500, 10, 375), (5000, 20, 625)];
const IN_A_DECADE: i32 = 875;

/// The sample as records keep it: to within a five-hundredth of itself (docs/MEASURING.md).
pub fn kept(sample: f64) -> f64 {
	let scientific = format!("{sample:e}");
	// What is no finite number has no exponent.
	let Some(exponent) = scientific.split_once('e').and_then(|(_, exponent)| exponent.parse::<i32>().ok()) else {
		return sample;
	};
	let last = exponent - 3;
	let digits = sample / 10_f64.powi(last);
	let part = PARTS.into_iter().rfind(|(first, ..)| digits.abs() >= f64::from(*first));
	let step = f64::from(part.unwrap_or(PARTS[0]).1);
	number((digits / step).round() * step, last).unwrap_or(sample)
}

/// The place of a positive number among those that can be [`kept`], 1 being at 0; none where it isn't one of them.
pub fn place(kept: f64) -> Option<i32> {
	let scientific = format!("{kept:e}");
	let (digits, exponent) = scientific.split_once('e')?;
	let digits = format!("{:0<4}", digits.replacen('.', "", 1));
	let (digits, exponent): (i32, i32) = (digits.parse().ok()?, exponent.parse().ok()?);
	let (first, step, before) = PARTS.into_iter().rfind(|(first, ..)| (*first..10_000).contains(&digits))?;
	let steps = digits - first;
	(steps % step == 0).then_some(exponent * IN_A_DECADE + before + steps / step)
}

/// The number at a place; none where that is no number.
pub fn at_place(place: i32) -> Option<f64> {
	let (exponent, place) = (place.div_euclid(IN_A_DECADE), place.rem_euclid(IN_A_DECADE));
	let (first, step, before) = PARTS.into_iter().rfind(|(.., before)| *before <= place)?;
	number(f64::from(first + (place - before) * step), exponent - 3)
}

/// So many times a power of ten; none where that is no finite number. By way of text: it is the number nearest to these
/// digits, which is written by no others.
fn number(digits: f64, exponent: i32) -> Option<f64> {
	format!("{digits}e{exponent}").parse().ok().filter(|number: &f64| number.is_finite())
}

#[cfg(test)]
mod tests {
	use super::*;

	#[test]
	fn digits_are_as_coarse_as_a_five_hundredth_allows() {
		for (sample, expected) in [
			(22.314, 22.32),
			(24.447, 24.44),
			(-24.447, -24.44),
			(26.113, 26.1),
			(26.138, 26.1),
			(584.068, 584.0),
			(9.9961, 10.0),
			(0.001_234_5, 0.001_236),
			(1_782_579.0, 1_784_000.0),
			(1.0 / 3.0, 0.333),
			(25.0, 25.0),
			(0.0, 0.0),
		] {
			assert_eq!(kept(sample), expected, "{sample}");
		}
		assert!(kept(f64::NAN).is_nan());
		assert_eq!(kept(f64::INFINITY), f64::INFINITY);
	}

	#[test]
	fn no_sample_changes_by_more_than_a_five_hundredth_and_none_twice() {
		let mut random = fastrand::Rng::with_seed(1);
		for _ in 0..100_000 {
			let sample = random.f64() * 10_f64.powi(random.i32(-9..12));
			let once = kept(sample);
			assert!((once - sample).abs() <= sample * 0.002_000_001, "{sample} is kept as {once}");
			assert_eq!(kept(once), once, "{sample}");
			assert!(once == 0.0 || format!("{once:e}").split('e').next().unwrap().len() <= 5, "{sample}: {once}");
		}
	}

	#[test]
	fn every_kept_number_has_a_place_and_is_found_there() {
		let mut before = place(1e-3).unwrap();
		for digits in 1000..100_000 {
			let sample = kept(f64::from(digits) / 1e6);
			let at = place(sample).unwrap();
			assert!(at == before || at == before + 1, "{sample}");
			assert_eq!(at_place(at), Some(sample));
			before = at;
		}
		assert_eq!(
			(place(1.0), place(0.0), place(-1.0), place(1.001), place(f64::NAN)),
			(Some(0), None, None, None, None)
		);
		assert_eq!((at_place(i32::MAX), at_place(i32::MIN)), (None, Some(0.0)));
	}
}
