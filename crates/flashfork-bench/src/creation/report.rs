//! The tables of `bench creation`.

use super::options::{CreationOptions, Touch};
use super::rounds::{Cell, Results};
use super::way::{PROGRAM, Phase, Then, Way};
use crate::host::HostCard;
use crate::size::show;
use crate::stats::{Summary, ratio_of_medians};
use crate::table::{ratio, render, time, time_range};
use crate::warnings;

/// Everything, for people.
pub(super) fn render_all(host: &HostCard, options: &CreationOptions, results: &Results) -> String {
    let mut sizes: Vec<u64> = results.cells.iter().map(|cell| cell.size).collect();
    sizes.dedup();
    let touched = match options.touch {
        Touch::All => "The parent has written all its memory.",
        Touch::None => {
            "The parent has mapped its memory and not touched it: there are no pages to copy entries of, and the size changes \
             nothing. What costs is memory in use, not memory asked for."
        }
    };
    let more = match (options.fds, options.vmas) {
        (0, 0) => String::new(),
        (fds, vmas) => format!(" It has {fds} more open files and {vmas} more mappings."),
    };
    let mut parts = vec![format!(
        "{}\n{touched}{more} Medians; ways visited in random order, parent and children on one CPU. exec: of {}.",
        host.line(),
        PROGRAM.to_string_lossy()
    )];
    parts.extend(sizes.iter().map(|&size| of_size(results, size)));
    parts.extend(against(results, &sizes));
    parts.extend(warnings::of_host(host));
    parts.extend(warnings::of_records(&results.records));
    parts.extend(results.missing.iter().map(|missing| format!("left out: {}: {}", missing.cell, missing.reason)));
    parts.join("\n\n")
}

fn of_size(results: &Results, size: u64) -> String {
    let mut rows = Vec::new();
    for then in [Then::Exit, Then::Exec] {
        for way in Way::ALL {
            let Some(cycle) = results.cell(size, way, then, Phase::Cycle) else { continue };
            let Some(whole) = summary(cycle) else { continue };
            let of = |phase| {
                let found = results.cell(size, way, then, phase).and_then(summary);
                found.map_or(String::new(), |summary| time(summary.p50))
            };
            rows.push(vec![
                way.name().to_owned(),
                then.name().to_owned(),
                time(whole.p50),
                time_range(whole.p10, whole.p90),
                format!("{:.0}", 1e6 / whole.p50),
                of(Phase::Call),
                of(Phase::First),
                of(Phase::Exit),
                of(Phase::Reap),
            ]);
        }
    }
    let headers =
        ["way", "then", "whole", "p10–p90", "per second", "call returns", "child's first", "exit seen", "reap"];
    format!("Parent with {}\n{}", show(size), render(&headers, &rows, 2))
}

/// "1 GB: fork-4k takes 700 × (690–710) as long as vfork; ...".
fn against(results: &Results, sizes: &[u64]) -> Vec<String> {
    let line = |size: u64, then: Then| {
        let cell = |way| results.cell(size, way, then, Phase::Cycle);
        let vfork = cell(Way::Vfork)?;
        let parts: Vec<String> = [Way::Fork, Way::ForkThp, Way::Seal, Way::Odf]
            .into_iter()
            .filter_map(|way| Some((way, ratio_of_medians(&cell(way)?.rounds, &vfork.rounds)?)))
            .map(|(way, found)| format!("{way} {}", ratio(&found)))
            .collect();
        Some(format!("{}, {}, times vfork: {}", show(size), then.name(), parts.join(", ")))
    };
    let lines = sizes.iter().flat_map(|&size| [line(size, Then::Exit), line(size, Then::Exec)]).flatten();
    vec![lines.collect::<Vec<_>>().join("\n")]
}

fn summary(cell: &Cell) -> Option<Summary> {
    Summary::of(&cell.rounds.flat())
}
