//! The tables of `bench vm-clone`.

use super::GuestKind;
use super::measured::{
    BOOT_STEPS, Bytes, CYCLE, Cell, FIRST_EXIT, FIRST_REPLY, Method, PREPARE, READY, Results, STEPS,
};
use super::plan::Plan;
use super::targets;
use crate::host::HostCard;
use crate::size::{Size, show};
use crate::stats::{Summary, median, ratio_of_medians};
use crate::table::{ratio, render as table, time};
use crate::target;
use crate::vm_host::MemoryPages;

/// Everything, for people.
pub(super) fn render(host: &HostCard, plan: &Plan, results: &Results) -> String {
    let mut parts = vec![host.line()];
    if plan.guests.contains(&GuestKind::Tiny) {
        parts.push(
            "Tiny guests: from the request until the client knows of the first exit; clones checked what they inherited.\n\
             All memory of a template is there. 4k, thp (made of 4 KB pages by MADV_COLLAPSE) and hugetlb are what it is made of."
                .into(),
        );
        parts.push(overview(results, GuestKind::Tiny));
        parts.push(comparisons(results, GuestKind::Tiny, FIRST_EXIT));
        parts.push(steps(results, GuestKind::Tiny));
        parts.push(density(results));
    }
    if plan.guests.contains(&GuestKind::Linux) {
        parts.push(
            "Linux guests: a cold boot begins with an empty process; clones run on, as their clocks show. thp: the template as the monitor\n\
             makes it, on 2 MB pages where half of one is there; 4k: the same on 4 KB pages, all of them there."
                .into(),
        );
        parts.push(overview(results, GuestKind::Linux));
        parts.push(comparisons(results, GuestKind::Linux, FIRST_REPLY));
        parts.push(steps(results, GuestKind::Linux));
    }
    let targets: Vec<_> = plan.guests.iter().flat_map(|guest| targets::check(results, *guest)).collect();
    if targets.iter().any(|target| target.measured.is_some()) {
        parts.push(format!("Promises\n{}", target::render(&targets)));
    }
    parts.extend(host.warning());
    parts.extend(results.notes.iter().cloned());
    parts.retain(|part| !part.is_empty());
    parts.join("\n\n")
}

fn cells(results: &Results, guest: GuestKind) -> Vec<&Cell> {
    let mut cells: Vec<&Cell> = results.cells.iter().filter(|cell| cell.guest == guest).collect();
    cells.sort_by_key(|cell| (cell.size, cell.method));
    cells
}

/// One row per size and method.
fn overview(results: &Results, guest: GuestKind) -> String {
    let measures = match guest {
        GuestKind::Tiny => vec![FIRST_EXIT, CYCLE, PREPARE],
        GuestKind::Linux => vec![FIRST_EXIT, READY, FIRST_REPLY],
    };
    let main = *if guest == GuestKind::Tiny { measures.first() } else { measures.last() }.unwrap_or(&FIRST_EXIT);
    let others: Vec<&str> = measures.into_iter().filter(|measure| *measure != main).collect();
    let row = |cell: &Cell| {
        let summary = |measure| Summary::of(&cell.rounds(measure).flat());
        let mut row = vec![Size(cell.size).to_string(), cell.method.name()];
        match summary(main) {
            Some(s) => row.extend([s.p50, s.p90, s.p99, s.max].map(time).into_iter().chain([s.n.to_string()])),
            None => row.extend(std::iter::repeat_n(String::new(), 5)),
        }
        row.extend(others.iter().map(|measure| summary(measure).map_or(String::new(), |s| time(s.p50))));
        row
    };
    let rows: Vec<Vec<String>> = cells(results, guest).into_iter().map(row).collect();
    let median = format!("{main}, median");
    let mut headers = vec!["size", "method", median.as_str(), "90 %", "99 %", "max", "n"];
    headers.extend(&others);
    table(&headers, &rows, 2)
}

/// Clones against boots of the same size, and the largest clones against the smallest.
fn comparisons(results: &Results, guest: GuestKind, measure: &str) -> String {
    let cells = cells(results, guest);
    let mut lines = Vec::new();
    for cell in &cells {
        let Method::Clone(pages) = cell.method else { continue };
        // What would have been booted instead.
        let booted = if pages == MemoryPages::Hugetlb { pages } else { MemoryPages::Small };
        let boot = results.rounds(guest, Method::ColdBoot(booted), cell.size, measure);
        if let Some(found) = boot.and_then(|boot| ratio_of_medians(&boot, &cell.rounds(measure))) {
            lines.push(format!("{}: {} is {} as fast as booting", Size(cell.size), cell.method.name(), ratio(&found)));
        }
    }
    for pages in MemoryPages::ALL {
        let mut own = cells.iter().filter(|cell| cell.method == Method::Clone(pages));
        if let (Some(least), Some(most)) = (own.next(), own.next_back())
            && let Some(found) = ratio_of_medians(&most.rounds(FIRST_EXIT), &least.rounds(FIRST_EXIT))
        {
            lines.push(format!(
                "{}: first exit at {} ÷ at {}: {}",
                most.method.name(),
                Size(most.size),
                Size(least.size),
                ratio(&found)
            ));
        }
    }
    lines.join("\n")
}

/// The medians of every step.
fn steps(results: &Results, guest: GuestKind) -> String {
    let rows_of = |names: &[&str], wanted: fn(Method) -> bool| -> Vec<Vec<String>> {
        let cells = cells(results, guest).into_iter().filter(|cell| wanted(cell.method));
        let row = |cell: &Cell| {
            let step = |name: &&str| Summary::of(&cell.rounds(name).flat()).map_or(String::new(), |s| time(s.p50));
            [Size(cell.size).to_string(), cell.method.name()].into_iter().chain(names.iter().map(step)).collect()
        };
        cells.map(row).collect()
    };
    let part = |title: &str, names: &[&str], wanted| {
        let headers: Vec<&str> = ["size", "method"].into_iter().chain(names.iter().copied()).collect();
        format!("{title}\n{}", table(&headers, &rows_of(names, wanted), 2))
    };
    [
        part("Steps of a clone, medians", &STEPS, |method| matches!(method, Method::Clone(_))),
        part("Steps of a cold boot, medians", &BOOT_STEPS, |method| matches!(method, Method::ColdBoot(_))),
    ]
    .join("\n\n")
}

/// What shells and clones hold.
fn density(results: &Results) -> String {
    let middle = |counts: &[Bytes], part: fn(&Bytes) -> f64| {
        let mut values: Vec<f64> = counts.iter().map(part).collect();
        match (!values.is_empty()).then(|| median(&mut values)) {
            Some(bytes) if bytes > 0.0 => show(bytes as u64),
            // Others took and gave back more meanwhile.
            _ => "lost in the noise".to_owned(),
        }
    };
    let row = |density: &super::measured::Density| {
        vec![
            Size(density.size).to_string(),
            density.count.to_string(),
            middle(&density.waiting, |b| b.total),
            middle(&density.alive, |b| b.total),
            middle(&density.alive, |b| b.user),
            middle(&density.alive, |b| b.total - b.user),
        ]
    };
    let rows: Vec<Vec<String>> = results.density.iter().map(row).collect();
    let Some(source) = results.density.first().map(|density| density.source) else { return String::new() };
    let headers = ["size", "at a time", "a shell that waits", "a clone alive", "of it the process", "of it the kernel"];
    format!("Memory by {source}; clones on 4 KB pages\n{}", table(&headers, &rows, 1))
}
