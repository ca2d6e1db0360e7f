//! The tables of `bench fuzz`.

use super::FuzzOptions;
use super::measured::Results;
use crate::fork::Method;
use crate::host::HostCard;
use crate::size::show;
use crate::stats::{Summary, median};
use crate::table::{ratio, three_figures, time};
use crate::target::{Bound, Target, Unit};
use crate::{table, target};

/// The size the project's promise is about.
const PROMISED: u64 = 1 << 30;

/// Everything, for people.
pub(super) fn render(host: &HostCard, options: &FuzzOptions, results: &Results) -> String {
    let mut parts = vec![heading(host, options, results), throughput(results), coverage(results), speedups(results)];
    if options.size.0 == PROMISED {
        let promise = Target {
            what: "executions per second: seal ÷ fork-4k".to_owned(),
            bound: Bound::AtLeast(10.0),
            unit: Unit::Times,
            measured: results.ratio(Method::Seal, Method::Fork4k),
        };
        parts.push(format!("Promises\n{}", target::render(&[promise])));
    }
    parts.extend(results.notes.iter().cloned());
    parts.retain(|part| !part.is_empty());
    parts.join("\n\n")
}

fn heading(host: &HostCard, options: &FuzzOptions, results: &Results) -> String {
    let afl = results.slices.first().map_or("", |slice| slice.campaign.afl.version.as_str());
    format!(
        "{}\nAFL {afl}, deferred fork server, SQLite {} with a database of {} in memory, pinned to CPU {}.\n\
         {} s per method in {} interleaved slices, each from the same seeds and the same random seed.",
        host.line(),
        rusqlite::version(),
        show(results.database_bytes),
        results.cpu,
        options.seconds,
        options.slices,
    )
}

/// One row per method: how fast.
fn throughput(results: &Results) -> String {
    let row = |method: Method| {
        let rates = Summary::of(&results.rates(method).flat());
        let middle = |mut figures: Vec<f64>| (!figures.is_empty()).then(|| median(&mut figures));
        let shim = || results.of(method).filter_map(|campaign| campaign.shim);
        let huge = match method {
            Method::Seal => shim().map(|shim| shim.huge_bytes as f64 / shim.sealed_bytes as f64).collect(),
            Method::Fork4k | Method::ForkThp | Method::Hugetlb | Method::Odf => {
                results.of(method).map(|campaign| campaign.pages.huge_fraction()).collect()
            }
        };
        vec![
            method.name().to_owned(),
            rates.map_or(String::new(), |rates| three_figures(rates.p50)),
            rates.map_or(String::new(), |rates| format!("{}–{}", three_figures(rates.p10), three_figures(rates.p90))),
            three_figures(results.mean_rate(method)),
            middle(shim().map(|shim| shim.fork_us).collect()).map_or(String::new(), time),
            middle(results.of(method).map(|campaign| campaign.startup * 1e6).collect()).map_or(String::new(), time),
            middle(shim().map(|shim| shim.seal_seconds * 1e6).collect()).map_or(String::new(), time),
            middle(huge).map_or(String::new(), |share| format!("{:.0} %", share * 100.0)),
        ]
    };
    let rows: Vec<Vec<String>> = results.methods().map(row).collect();
    let headers =
        ["method", "executions/s", "p10–p90", "mean", "fork call (mean)", "start-up", "of it sealing", "on 2 MB pages"];
    format!("Throughput, by the second\n{}", table::render(&headers, &rows, 1))
}

/// One row per method: what was found, in all slices and for equal work.
fn coverage(results: &Results) -> String {
    let row = |method: Method| {
        let most = |figure: fn(&super::campaign::Campaign) -> u64| results.of(method).map(figure).max().unwrap_or(0);
        let all = |figure: fn(&super::campaign::Campaign) -> u64| results.of(method).map(figure).sum::<u64>();
        let equal = results.equal.iter().find(|equal| equal.method == method);
        let percent = results.of(method).map(|campaign| campaign.afl.coverage_percent).fold(0.0, f64::max);
        vec![
            method.name().to_owned(),
            all(|campaign| campaign.executions).to_string(),
            most(|campaign| campaign.afl.edges).to_string(),
            format!("{percent:.2} %"),
            most(|campaign| campaign.afl.corpus).to_string(),
            all(|campaign| campaign.afl.crashes).to_string(),
            all(|campaign| campaign.afl.hangs).to_string(),
            equal.map_or(String::new(), |equal| equal.afl.edges.to_string()),
            equal.map_or(String::new(), |equal| equal.executions.to_string()),
        ]
    };
    let rows: Vec<Vec<String>> = results.methods().map(row).collect();
    let headers =
        ["method", "executions", "edges", "map", "corpus", "crashes", "hangs", "equal work: edges", "executions"];
    format!("Coverage: the best slice, and after equally many executions\n{}", table::render(&headers, &rows, 1))
}

/// "seal against fork-4k: 30 × (28–32) the executions per second"
fn speedups(results: &Results) -> String {
    let line = |plain: Method| {
        let found = results.ratio(Method::Seal, plain)?;
        Some(format!("seal against {plain}: {} the executions per second", ratio(&found)))
    };
    [Method::Fork4k, Method::ForkThp].into_iter().filter_map(line).collect::<Vec<_>>().join("\n")
}
