use super::*;
use crate::survey::Dirtied;

fn forecast(costs: [Option<f64>; 4]) -> Forecast {
	let engines = [Engine::Now, Engine::Thp, Engine::Seal, Engine::Odf];
	let outlooks = engines
		.into_iter()
		.zip(costs)
		.map(|(engine, cost)| Outlook {
			engine,
			unavailable: cost.is_none().then(|| "not here".to_owned()),
			fork_us: cost,
			writes_us: cost.map(|_| 1.0),
		})
		.collect();
	Forecast { outlooks, dirtied: Dirtied { pages: 1, regions: 1, measured: false }, seal_us: Some(500_000.0) }
}

#[test]
fn the_cheapest_engine_is_recommended_when_it_is_worth_it() {
	let engine = |costs, headroom| recommend(&forecast(costs), headroom).engine;
	let big = 1 << 30;
	assert_eq!(engine([Some(20_000.0), Some(400.0), Some(60.0), None], big), Engine::Seal);
	assert_eq!(engine([Some(20_000.0), Some(400.0), Some(60.0), None], 1 << 20), Engine::Thp, "no room for a seal");
	assert_eq!(engine([Some(20_000.0), Some(400.0), None, Some(90.0)], big), Engine::Odf);
	assert_eq!(engine([Some(90.0), Some(70.0), Some(55.0), None], big), Engine::Now, "35 µs are not worth it");
	assert_eq!(engine([Some(9000.0), Some(8000.0), None, None], big), Engine::Now, "a ninth is not worth it");
	assert_eq!(engine([Some(9000.0), None, None, None], big), Engine::Now);
	assert_eq!(engine([Some(9000.0), Some(9500.0), None, None], big), Engine::Now);
}

#[test]
fn the_sentence_names_both_costs() {
	let said = recommend(&forecast([Some(20_000.0), Some(400.0), Some(60.0), None]), 1 << 30).sentence;
	assert!(said.contains("flashfork run") && said.contains("61.0 µs") && said.contains("20.0 ms"), "{said}");
	let nothing = recommend(&forecast([Some(50.0), None, None, None]), 1 << 30).sentence;
	assert!(nothing.starts_with("Change nothing"), "{nothing}");
}
#[test]
fn a_seal_s_price_is_told_in_forks() {
	let said = recommend(&forecast([Some(20_000.0), Some(400.0), Some(60.0), None]), 1 << 30).sentence;
	// 500 ms against 19,940 µs and 340 µs a fork.
	assert!(said.contains("500 ms") && said.contains("26 forks") && said.contains("1471"), "{said}");
}

#[test]
fn where_fork_calls_get_no_shorter_the_default_engine_is_contradicted_by_counted_writes_alone() {
	let mut huge = forecast([Some(250.0), Some(250.0), Some(270.0), None]);
	for (outlook, writes) in huge.outlooks.iter_mut().zip([750.0, 750.0, 200.0]) {
		outlook.writes_us = Some(writes);
	}
	let assumed = recommend(&huge, 1 << 30);
	assert_eq!(assumed.engine, Engine::Now);
	assert!(
		assumed.sentence.contains("the default engine of `flashfork run` doesn't either")
			&& assumed.sentence.contains("--watch")
	);
	huge.dirtied.measured = true;
	let counted = recommend(&huge, 1 << 30);
	assert_eq!(counted.engine, Engine::Seal);
	assert!(counted.sentence.contains("--engine seal") && counted.sentence.contains("would not seal it"));
	assert_eq!(recommend(&huge, 0).engine, Engine::Now, "no room for a seal");
}
