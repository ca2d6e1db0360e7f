//! What to do, in one sentence.

use serde::Serialize;

use super::{Engine, Forecast, Survey};
use crate::table::time;

/// Less of a gain than this share of a fork is not worth a change ...
const WORTH: f64 = 0.25;
/// ... nor is less than this, in microseconds.
const WORTH_US: f64 = 100.0;
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
    /// The same in one sentence.
    pub sentence: String,
}

impl Advice {
    /// Chooses among the engines that are to be had.
    pub(super) fn make(survey: Survey, forecast: Forecast, headroom: u64) -> Self {
        let recommendation = recommend(&forecast, headroom);
        Self { survey, forecast, headroom, recommendation }
    }
}

fn recommend(forecast: &Forecast, headroom: u64) -> Recommendation {
    let total = |engine| forecast.of(engine).and_then(super::Outlook::total_us);
    let now = total(Engine::Now).unwrap_or_default();
    let enough = |engine: Engine| engine != Engine::Seal || headroom >= SEAL_EXTRA;
    let best = [Engine::Thp, Engine::Seal, Engine::Odf]
        .into_iter()
        .filter(|&engine| enough(engine))
        .filter_map(|engine| Some((engine, total(engine)?)))
        .min_by(|a, b| a.1.total_cmp(&b.1));
    let (engine, sentence) = match best {
        Some((engine, cost)) if now - cost >= WORTH_US && now - cost >= WORTH * now => {
            let gain = format!("a fork with its writes then costs about {} instead of {}", time(cost), time(now));
            let how = match engine {
                Engine::Thp => "Give it transparent huge pages (GLIBC_TUNABLES=glibc.malloc.hugetlb=1, or madvise)",
                Engine::Seal => "Run it under `flashfork run`, which seals its memory once it is warm",
                Engine::Odf => "Set vm.on_demand_fork=1 and run it under `flashfork run`",
                Engine::Now => "Leave it as it is",
            };
            (engine, format!("{how}: {gain}."))
        }
        Some((_, cost)) if cost < now => (
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

#[cfg(test)]
mod tests {
    use super::super::{Dirtied, Outlook};
    use super::*;

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
        Forecast { outlooks, dirtied: Dirtied { pages: 1, regions: 1, measured: false } }
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
}
