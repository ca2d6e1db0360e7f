//! What to do, in words.

use serde::Serialize;

use crate::{
	forecast::{Engine, Forecast, Outlook},
	survey::Survey,
};
use flashfork_terminal::table::time;

/// Less of a gain than this share of a fork is not worth a change ...
const WORTH: f64 = 0.25;
/// ... nor is less than this, in microseconds.
const WORTH_US: f64 = 100.0;
/// The engine `auto` seals only what makes a cycle shorter than this share of it, going by fork calls (docs/POLICY.md).
const AUTO_SEALS: f64 = 0.9;
/// Extra memory a seal may take at its peak, in bytes.
const SEAL_EXTRA: u64 = 128 << 20;

/// Survey, forecast and recommendation.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Advice {
	/// The process.
	pub survey: Survey,
	/// What its forks cost.
	pub forecast: Forecast,
	/// Memory that can still be taken, in bytes.
	pub headroom: u64,
	/// What to do.
	pub recommendation: Recommendation,
}

/// What to do.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Recommendation {
	/// How to fork it; [`Engine::Now`] means: change nothing.
	pub engine: Engine,
	/// The same in words.
	pub sentence: String,
}

impl Advice {
	/// Chooses among the engines that are to be had.
	pub(crate) fn make(survey: Survey, forecast: Forecast, headroom: u64) -> Self {
		let recommendation = recommend(&forecast, headroom);
		Self { survey, forecast, headroom, recommendation }
	}
}

fn recommend(forecast: &Forecast, headroom: u64) -> Recommendation {
	let total = |engine| forecast.of(engine).and_then(Outlook::total_us);
	let now = total(Engine::Now).unwrap_or_default();
	let worth = |cost: f64| now - cost >= WORTH_US && now - cost >= WORTH * now;
	// Then `auto` doesn't seal, and an assumption is no reason to overrule it.
	let assumed_only = !auto_seals(forecast) && !forecast.dirtied.measured;
	let room = headroom >= SEAL_EXTRA;
	let best = [Engine::Thp, Engine::Seal, Engine::Odf]
		.into_iter()
		.filter(|&engine| engine != Engine::Seal || room && !assumed_only)
		.filter_map(|engine| Some((engine, total(engine)?)))
		.min_by(|a, b| a.1.total_cmp(&b.1));
	let (engine, sentence) = match (best, total(Engine::Seal).filter(|cost| room && assumed_only && worth(*cost))) {
		(Some((engine, cost)), _) if worth(cost) => {
			let gain = format!("a fork with its writes then costs about {} instead of {}", time(cost), time(now));
			let how = match engine {
				Engine::Thp => "Give it transparent huge pages (GLIBC_TUNABLES=glibc.malloc.hugetlb=1, or madvise)",
				Engine::Seal if auto_seals(forecast) => {
					"Run it under `flashfork run`, which seals its memory once it is warm"
				}
				Engine::Seal => "Run it under `flashfork run --engine seal`, which seals its memory before it forks",
				Engine::Odf => "Set vm.on_demand_fork=1 and run it under `flashfork run`",
				Engine::Now => "Leave it as it is",
			};
			let price = if engine == Engine::Seal { price(forecast) } else { String::new() };
			(engine, format!("{how}: {gain}.{price}"))
		}
		(_, Some(sealed)) => (
			Engine::Now,
			format!(
				"Change nothing; the default engine of `flashfork run` doesn't either, for a seal makes fork calls no shorter here. A \
				 fork with its writes costs about {}, and about {} under `flashfork run --engine seal` if as much is written as \
				 is assumed: count with --watch SECONDS.",
				time(now),
				time(sealed)
			),
		),
		(Some((_, cost)), _) if cost < now => (
			Engine::Now,
			format!(
				"Change nothing: a fork with its writes costs about {}, and at best {} otherwise.",
				time(now),
				time(cost)
			),
		),
		_ => (
			Engine::Now,
			format!(
				"Change nothing: a fork with its writes costs about {}, and nothing here makes it cheaper.",
				time(now)
			),
		),
	};
	Recommendation { engine, sentence }
}

fn auto_seals(forecast: &Forecast) -> bool {
	let call = |engine| forecast.of(engine)?.fork_us;
	matches!((call(Engine::Seal), call(Engine::Now)), (Some(seal), Some(now)) if seal < AUTO_SEALS * now)
}

/// What a seal costs, and from when on it has paid: `flashfork run` tells whoever forked less often.
fn price(forecast: &Forecast) -> String {
	let (Some(seal), Some(forks)) = (forecast.seal_us, forecast.seal_pays_after(Engine::Now)) else {
		return String::new();
	};
	let huge = match forecast.seal_pays_after(Engine::Thp).filter(|&against_huge| against_huge > forks) {
		Some(against_huge) => format!(", and against transparent huge pages from about {against_huge}"),
		None => String::new(),
	};
	let auto = if auto_seals(forecast) {
		"; the default engine, which seals part by part as forks lose time, comes to that later."
	} else {
		". The default engine would not seal it: it goes by fork calls, which get no shorter, and the gain is in writes."
	};
	format!(
		" The seal takes about {} once: with --engine seal it pays from about {forks} forks on{huge}{auto}",
		time(seal)
	)
}

#[cfg(test)]
mod tests;
