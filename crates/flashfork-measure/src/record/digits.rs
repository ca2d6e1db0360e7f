//! How exactly samples are kept.

/// The sample as records keep it: to within a thousandth of itself, in four digits, of which the last is even, a
/// multiple of five or zero, as far as that allows. Noise is larger than that by far, and digits of noise can't be
/// packed.
pub fn kept(sample: f64) -> f64 {
    let scientific = format!("{sample:e}");
    // What is no finite number has no exponent.
    let Some(exponent) = scientific.split_once('e').and_then(|(_, exponent)| exponent.parse::<i32>().ok()) else {
        return sample;
    };
    let last = exponent - 3;
    let digits = sample / 10_f64.powi(last);
    let step = match digits.abs() {
        ..2500.0 => 2.0,
        ..5000.0 => 5.0,
        _ => 10.0,
    };
    // By way of text: it is the number nearest to these digits, which is written by no others.
    format!("{}e{last}", (digits / step).round() * step).parse().unwrap_or(sample)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_digit_is_as_coarse_as_a_thousandth_allows() {
        for (sample, expected) in [
            (22.314, 22.32),
            (24.447, 24.44),
            (-24.447, -24.44),
            (26.113, 26.1),
            (26.138, 26.15),
            (584.068, 584.0),
            (9.9961, 10.0),
            (0.001_234_5, 0.001_234),
            (1_782_579.0, 1_782_000.0),
            (1.0 / 3.0, 0.3335),
            (25.0, 25.0),
            (0.0, 0.0),
        ] {
            assert_eq!(kept(sample), expected, "{sample}");
        }
        assert!(kept(f64::NAN).is_nan());
        assert_eq!(kept(f64::INFINITY), f64::INFINITY);
    }

    #[test]
    fn no_sample_changes_by_more_than_a_thousandth_and_none_twice() {
        let mut random = fastrand::Rng::with_seed(1);
        for _ in 0..100_000 {
            let sample = random.f64() * 10_f64.powi(random.i32(-9..12));
            let once = kept(sample);
            assert!((once - sample).abs() <= sample * 0.001_000_001, "{sample} is kept as {once}");
            assert_eq!(kept(once), once, "{sample}");
            assert!(once == 0.0 || format!("{once:e}").split('e').next().unwrap().len() <= 5, "{sample}: {once}");
        }
    }
}
