//! The tables of `bench unit-test`.

use super::case::Case;
use super::measured::{Phase, Results};
use super::plan::{Plan, harnesses};
use crate::fork::Method;
use crate::host::HostCard;
use crate::size::show;
use crate::stats::{Summary, median};
use crate::table::{ratio, time, time_range};
use crate::target::{Bound, Target, Unit};
use crate::{table, target};

/// The size the project's promises are about.
const PROMISED: u64 = 1 << 30;

/// Everything, for people.
pub(super) fn render(host: &HostCard, plan: &Plan, results: &Results) -> String {
    let mut parts = vec![heading(host, plan, results), preparation(results), tests(results), speedups(results)];
    if plan.size.0 == PROMISED {
        parts.push(format!("Promises\n{}", target::render(&targets(results))));
    }
    parts.extend(results.notes.iter().cloned());
    parts.retain(|part| !part.is_empty());
    parts.join("\n\n")
}

fn heading(host: &HostCard, plan: &Plan, results: &Results) -> String {
    format!(
        "{}\nSQLite {}, database of {} in memory, {} per method{}, each pinned to one CPU. Medians of {} interleaved rounds.\n\
         Every clone found what its parent had counted; every database was unchanged afterwards (checksum over all tables).",
        host.line(),
        rusqlite::version(),
        show(results.database_bytes),
        harnesses(plan.jobs),
        if plan.jobs > 1 { " at the same time" } else { "" },
        plan.rounds,
    )
}

/// One row per method: what happens once.
fn preparation(results: &Results) -> String {
    let mut rows = Vec::new();
    for method in results.methods() {
        let own = || results.harnesses.iter().filter(|harness| harness.method == method).map(|harness| &harness.ready);
        let middle = |mut figures: Vec<f64>| (!figures.is_empty()).then(|| median(&mut figures));
        let seconds = |figures: Vec<f64>| middle(figures).map_or(String::new(), |seconds| time(seconds * 1e6));
        let percent =
            |figures: Vec<f64>| middle(figures).map_or(String::new(), |share| format!("{:.0} %", share * 100.0));
        let sealed = || own().filter_map(|ready| ready.sealed);
        let huge = match method {
            Method::Seal => percent(sealed().map(|sealed| sealed.huge_fraction()).collect()),
            Method::Fork4k | Method::ForkThp | Method::Hugetlb | Method::Odf => {
                percent(own().map(|ready| ready.pages.huge_fraction()).collect())
            }
        };
        rows.push(vec![
            method.name().to_owned(),
            seconds(own().map(|ready| ready.initialise).collect()),
            seconds(sealed().map(|sealed| sealed.seconds).collect()),
            middle(sealed().map(|sealed| sealed.bytes as f64).collect())
                .map_or(String::new(), |bytes| show(bytes as u64)),
            huge,
        ]);
    }
    let headers = ["method", "initialise (load)", "seal", "sealed", "on 2 MB pages"];
    format!("Once per harness\n{}", table::render(&headers, &rows, 1))
}

/// One row per test and method.
fn tests(results: &Results) -> String {
    let mut rows = Vec::new();
    for case in Case::ALL {
        for method in results.methods() {
            let summary = |phase| Summary::of(&results.rounds(method, case, phase).flat());
            let figure = |phase| summary(phase).map_or(String::new(), |summary| time(summary.p50));
            let mut row = vec![case.name().to_owned(), method.name().to_owned()];
            row.extend(Phase::ALL.map(figure));
            row.push(summary(Phase::Whole).map_or(String::new(), |summary| time_range(summary.p10, summary.p90)));
            rows.push(row);
        }
    }
    let headers = ["test", "method", "clone", "test", "reap", "whole", "p10–p90"];
    format!("Each test, in a clone\n{}", table::render(&headers, &rows, 2))
}

/// "seal against fork-4k: clone phase 270 × (251–291) faster, whole test 60 × (55–62)"; the same for odf.
fn speedups(results: &Results) -> String {
    let line = |engine: Method, plain: Method| {
        let times = |phase| results.ratio(plain, engine, &Case::ALL, phase).map(|found| ratio(&found));
        Some(format!(
            "{engine} against {plain}: clone phase {} as fast, whole test {} as fast",
            times(Phase::Clone)?,
            times(Phase::Whole)?
        ))
    };
    let pairs = [Method::Seal, Method::Odf]
        .into_iter()
        .flat_map(|engine| [Method::Fork4k, Method::ForkThp].into_iter().filter_map(move |plain| line(engine, plain)));
    let lines = pairs.chain(without_clones(results));
    lines.collect::<Vec<_>>().join("\n")
}

/// What cloning saves at all, as the paper's table 2 asks.
fn without_clones(results: &Results) -> Option<String> {
    let plain = results.harnesses.iter().filter(|harness| harness.method == Method::Fork4k);
    let mut loads: Vec<f64> = plain.map(|harness| harness.ready.initialise * 1e6).collect();
    let whole = Summary::of(&results.pooled(Method::Seal, &Case::ALL, Phase::Whole).flat())?;
    (!loads.is_empty()).then(|| {
        format!(
            "a test in a clone: {}; loading the database for it instead: {}",
            time(whole.p50),
            time(median(&mut loads))
        )
    })
}

fn targets(results: &Results) -> Vec<Target> {
    let faster = |what: &str, phase, times| Target {
        what: format!("{what}: fork-4k ÷ seal"),
        bound: Bound::AtLeast(times),
        unit: Unit::Times,
        measured: results.ratio(Method::Fork4k, Method::Seal, &Case::ALL, phase),
    };
    let mut targets = vec![faster("clone phase", Phase::Clone, 100.0), faster("whole test", Phase::Whole, 25.0)];
    targets.extend(Case::ALL.map(|case| Target {
        what: format!("test phase, {}: seal ÷ fork-4k", case.name()),
        bound: Bound::AtMost(2.0),
        unit: Unit::Times,
        measured: results.ratio(Method::Seal, Method::Fork4k, &[case], Phase::Test),
    }));
    targets
}
