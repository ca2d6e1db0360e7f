//! What to beware of in a run, shown beside the figures; nothing is thrown away because of it.

use crate::{
	host::HostCard,
	record::Record,
	stats::{Outlier, Summary, fences},
};
use flashfork_terminal::table::counted;

/// Fewer samples than this have no useful 90 % quantile.
const FEW: usize = 10;
/// Fewer rounds than this have no interval of 95 %: even their whole range holds the median less often.
const FEW_ROUNDS: usize = 6;
/// From this spread (p10 to p90 relative to the median) on, a cell is called noisy.
const NOISY: f64 = 1.0;

/// What the machine's state, when the run began, means for the figures.
pub fn of_host(host: &HostCard) -> Vec<String> {
	let mut warnings: Vec<String> = host.warning().into_iter().collect();
	if let Some(governor) = host.governor.as_deref().filter(|&governor| governor != "performance") {
		warnings.push(format!(
			"The CPU's frequency follows its load (governor {governor}): short measurements are slower than long ones; \
			 `cpupower frequency-set -g performance` keeps it steady."
		));
	}
	match host.thp_enabled.as_deref() {
		Some("never") => warnings.push(
			"Transparent huge pages are off: the figures for them are missing; \
			 `echo madvise > /sys/kernel/mm/transparent_hugepage/enabled` brings them."
				.to_owned(),
		),
		None => {
			warnings.push("This kernel has no transparent huge pages: the figures for them are missing.".to_owned())
		}
		Some(_) => {}
	}
	if host.swap_total > 0 && host.memory_available < host.memory_total / 10 {
		warnings.push(format!(
			"Only {} of {} memory were free and the machine has swap: large parents may have been swapped; free memory, or \
			 `swapoff -a`.",
			flashfork_terminal::size::show(host.memory_available),
			flashfork_terminal::size::show(host.memory_total)
		));
	}
	warnings
}

/// What samples of times warn of: too few, or so spread out that only their median says something. One line each,
/// naming how many records and the worst of them.
pub fn of_records<'a>(records: impl IntoIterator<Item = &'a Record>) -> Vec<String> {
	let (mut few, mut short, mut noisy, mut late) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
	for record in records.into_iter().filter(|record| record.unit == "us") {
		let Some(summary) = Summary::of(&record.samples) else { continue };
		if summary.n < FEW {
			few.push((summary.n as f64, record));
		}
		let rounds = record.rounds().0.iter().filter(|round| !round.is_empty()).count();
		if summary.n >= FEW && rounds < FEW_ROUNDS {
			short.push((rounds as f64, record));
		}
		if summary.n >= FEW && summary.spread() > NOISY {
			noisy.push((summary.spread(), record));
		}
		let severe = fences(&record.samples).iter().filter(|label| **label == Some(Outlier::HighSevere)).count();
		if severe * 10 > summary.n {
			late.push((severe as f64 / summary.n as f64, record));
		}
	}
	let mut warnings = Vec::new();
	if let Some((n, record)) = few.iter().min_by(|a, b| a.0.total_cmp(&b.0)) {
		warnings.push(format!(
			"Fewer than {FEW} samples: {} (least: {n}, {}).",
			counted(few.len(), "cell"),
			record.label()
		));
	}
	if let Some((n, record)) = short.iter().min_by(|a, b| a.0.total_cmp(&b.0)) {
		warnings.push(format!(
			"Fewer than {FEW_ROUNDS} rounds, so intervals of less than 95 %: {} (least: {n}, {}).",
			counted(short.len(), "cell"),
			record.label()
		));
	}
	if let Some((spread, record)) = largest(&noisy) {
		warnings.push(format!(
			"Noisy: {} (10–90 % span up to {spread:.1} × the median, {}).",
			counted(noisy.len(), "cell"),
			record.label()
		));
	}
	if let Some((share, record)) = largest(&late) {
		warnings.push(format!(
			"More than a tenth of the samples far above the rest: {} (most: {:.0} %, {}).",
			counted(late.len(), "cell"),
			share * 100.0,
			record.label()
		));
	}
	warnings
}

fn largest<'a>(found: &[(f64, &'a Record)]) -> Option<(f64, &'a Record)> {
	found.iter().copied().max_by(|a, b| a.0.total_cmp(&b.0))
}

#[cfg(test)]
mod tests {
	use super::*;

	fn quiet() -> HostCard {
		HostCard {
			cpus: 4,
			load: [0.1; 3],
			governor: None,
			thp_enabled: Some("madvise".into()),
			swap_total: 0,
			..HostCard::read().unwrap()
		}
	}

	fn record(samples: Vec<f64>) -> Record {
		Record::new("fork", "seal", [], "us", samples).unwrap()
	}

	#[test]
	fn a_quiet_host_is_not_warned_of_and_each_trouble_has_its_advice() {
		assert_eq!(of_host(&quiet()), Vec::<String>::new());
		for (card, advice) in [
			(HostCard { load: [3.0; 3], ..quiet() }, "the ratios hold better"),
			(HostCard { governor: Some("powersave".into()), ..quiet() }, "cpupower"),
			(HostCard { thp_enabled: Some("never".into()), ..quiet() }, "transparent_hugepage/enabled"),
			(HostCard { swap_total: 1 << 30, memory_available: 0, ..quiet() }, "swapoff"),
		] {
			let warnings = of_host(&card);
			assert_eq!(warnings.len(), 1, "{warnings:?}");
			assert!(warnings[0].contains(advice), "{warnings:?}");
		}
	}

	#[test]
	fn steady_samples_are_not_warned_of() {
		assert!(of_records(&[record((0..50).map(|i| 100.0 + f64::from(i % 7)).collect())]).is_empty());
	}

	#[test]
	fn few_noisy_and_disturbed_samples_are_told_apart() {
		let few = of_records(&[record(vec![1.0; 3])]);
		assert!(few.len() == 1 && few[0].contains("least: 3, fork seal"), "{few:?}");
		let mut short = record((0..50).map(|i| 100.0 + f64::from(i % 7)).collect());
		short.observed.insert("samples_per_round".into(), serde_json::json!([10, 20, 20]));
		let short = of_records(&[short]);
		assert!(short.len() == 1 && short[0].contains("least: 3, fork seal"), "{short:?}");
		let noisy = of_records(&[record((1..=40).map(|i| f64::from(i * i)).collect())]);
		assert!(noisy.len() == 1 && noisy[0].contains("Noisy"), "{noisy:?}");
		let disturbed = of_records(&[record((0..40).map(|i| if i % 8 == 0 { 900.0 } else { 100.0 }).collect())]);
		assert!(disturbed.iter().any(|line| line.contains("far above the rest")), "{disturbed:?}");
	}
}
