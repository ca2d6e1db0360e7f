//! The tables of `bench fork`.

use super::Method;
use super::measured::{Cell, Results};
use super::plan::Plan;
use super::probe::Measure;
use super::targets::{self, faster, to_empty};
use super::touch::ParentState;
use crate::engine::Pages;
use crate::experiment::page;
use crate::record::Document;
use crate::size::{Size, show};
use crate::stats::Summary;
use crate::table::{ratio, render, three_figures, time, time_range};
use crate::target;

/// Everything, for people.
pub(super) fn render_all(document: &Document, plan: &Plan, results: &Results) -> String {
    let mut parts = vec![
        format!("Medians of at most {} interleaved rounds, parent and clones pinned to CPU {}.", plan.rounds, plan.cpu),
        idle(plan, results),
        speedups(plan, results),
        touched(plan, results),
        concurrent(plan, results),
        sealing(results),
        promises(results),
    ];
    parts.extend(results.notes.iter().cloned());
    page(document, parts)
}

/// One row per size and method: the call and what the clone costs afterwards.
fn idle(plan: &Plan, results: &Results) -> String {
    let mut rows = Vec::new();
    for (size, method) in configurations(plan) {
        let cell = |measure| results.cell(method, size, ParentState::Idle, measure);
        let Some(call) = cell(Measure::Call) else { continue };
        let median = |measure| cell(measure).and_then(summary).map_or(String::new(), |summary| time(summary.p50));
        rows.push(vec![
            Size(size).to_string(),
            method.name().to_owned(),
            median(Measure::Call),
            spread(call),
            against_empty(results, call),
            median(Measure::Cycle),
            median(Measure::FirstWrite),
            median(Measure::Reads),
            median(Measure::MixedCycle),
        ]);
    }
    let headers = [
        "size",
        "method",
        "fork call",
        "p10–p90",
        "÷ empty process",
        "fork+exit+reap",
        "first write",
        "100 reads",
        "25r+25w cycle",
    ];
    titled("Idle parent", render(&headers, &rows, 2))
}

/// "1G: the fork call of seal is 270 × (251–291) as fast as fork-4k, ..."; the same for odf.
fn speedups(plan: &Plan, results: &Results) -> String {
    let line = |size: u64, engine: Method| {
        let parts: Vec<String> = [Method::Fork4k, Method::ForkThp]
            .into_iter()
            .filter_map(|plain| Some((plain, faster(results, plain, engine, size, Measure::Call)?)))
            .map(|(plain, found)| format!("{} as fast as {plain}", ratio(&found)))
            .collect();
        (size > 0 && !parts.is_empty())
            .then(|| format!("{}: the fork call of {engine} is {}", Size(size), parts.join(", ")))
    };
    let lines = plan.sizes.iter().flat_map(|&size| [line(size, Method::Seal), line(size, Method::Odf)]);
    lines.flatten().collect::<Vec<_>>().join("\n")
}

/// One row per size and method, one column per state of the parent.
fn touched(plan: &Plan, results: &Results) -> String {
    let states = &plan.states[1..];
    let mut rows = Vec::new();
    for (size, method) in configurations(plan) {
        let cells: Vec<Option<&Cell>> =
            states.iter().map(|&state| results.cell(method, size, state, Measure::Call)).collect();
        if cells.iter().all(Option::is_none) {
            continue;
        }
        let figure = |cell: &Option<&Cell>| {
            let median = cell.and_then(summary).map(|summary| time(summary.p50));
            let empty = cell.and_then(|cell| to_empty(results, cell));
            match (median, empty) {
                (Some(median), Some(empty)) => format!("{median} ({} ×)", three_figures(empty.value)),
                (median, _) => median.unwrap_or_default(),
            }
        };
        let name = [Size(size).to_string(), method.name().to_owned()];
        rows.push(name.into_iter().chain(cells.iter().map(figure)).collect());
    }
    if rows.is_empty() {
        return String::new();
    }
    let states: Vec<String> = states.iter().map(ParentState::to_string).collect();
    let headers: Vec<&str> = ["size", "method"].into_iter().chain(states.iter().map(String::as_str)).collect();
    titled("Fork call, parent read everything and then (times the empty process)", render(&headers, &rows, 2))
}

fn concurrent(plan: &Plan, results: &Results) -> String {
    let cells = |measure| results.cells.iter().filter(move |cell| cell.group.copies > 1 && cell.measure == measure);
    let rows: Vec<Vec<String>> = cells(Measure::Call)
        .zip(cells(Measure::Cycle))
        .filter(|(call, _)| call.size == call.group.size)
        .map(|(call, cycle)| {
            vec![
                Size(call.size).to_string(),
                call.method.name().to_owned(),
                summary(call).map_or(String::new(), |summary| time(summary.p50)),
                spread(call),
                against_empty(results, call),
                summary(cycle).map_or(String::new(), |summary| time(summary.p50)),
            ]
        })
        .collect();
    if rows.is_empty() {
        return String::new();
    }
    let headers = ["size", "method", "fork call", "p10–p90", "÷ empty processes", "fork+exit+reap"];
    let title = format!("{} processes at once on {} CPUs, idle", plan.concurrent, plan.cpus.len());
    titled(&title, render(&headers, &rows, 2))
}

fn sealing(results: &Results) -> String {
    let rows: Vec<Vec<String>> = results
        .seals
        .iter()
        .filter_map(|sealing| {
            let seconds = Summary::of(&sealing.seconds_per_gb())?;
            let reported: Vec<f64> =
                sealing.samples.iter().map(|sample| sample.sealed.peak_extra_bytes as f64).collect();
            let seen: Vec<f64> = sealing.samples.iter().map(|sample| sample.rise as f64).collect();
            let huge: Vec<f64> = sealing.samples.iter().map(|sample| sample.sealed.huge_fraction()).collect();
            let pages = match sealing.pages {
                Pages::Small => "4 KB",
                Pages::Auto => "2 MB",
            };
            Some(vec![
                Size(sealing.size).to_string(),
                pages.to_owned(),
                format!("{} s/GB", three_figures(seconds.p50)),
                format!("{}–{}", three_figures(seconds.min), three_figures(seconds.max)),
                format!("{:.0} %", Summary::of(&huge)?.p50 * 100.0),
                show(Summary::of(&reported)?.max as u64),
                show(Summary::of(&seen)?.max as u64),
            ])
        })
        .collect();
    if rows.is_empty() {
        return String::new();
    }
    let headers = ["size", "pages", "time", "min–max", "on 2 MB pages", "extra at the peak", "seen from outside"];
    titled("Sealing", render(&headers, &rows, 2))
}

fn promises(results: &Results) -> String {
    titled("Promises", target::render(&targets::check(results)))
}

/// Every size and method, in table order.
fn configurations(plan: &Plan) -> impl Iterator<Item = (u64, Method)> {
    plan.sizes.iter().flat_map(|&size| Method::ALL.map(|method| (size, method)))
}

fn summary(cell: &Cell) -> Option<Summary> {
    Summary::of(&cell.rounds.flat())
}

fn spread(cell: &Cell) -> String {
    summary(cell).map_or(String::new(), |summary| time_range(summary.p10, summary.p90))
}

fn against_empty(results: &Results, cell: &Cell) -> String {
    to_empty(results, cell).map_or(String::new(), |found| ratio(&found))
}

fn titled(title: &str, table: String) -> String {
    format!("{title}\n{table}")
}
