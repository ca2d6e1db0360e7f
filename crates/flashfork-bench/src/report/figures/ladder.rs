//! All ways to make a process, by the parent's memory, on two logarithmic axes.

use super::super::plot::{Axis, Ink, Plot, Series, Style, decades, size_tick, time_tick};
use super::{Figure, distinct, drawn, number, of};
use crate::BenchError;
use crate::creation::{EXPERIMENT, Then, Way};
use crate::record::Document;

pub(super) fn figure(document: &Document) -> Result<Option<Figure>, BenchError> {
    let mut plots = Vec::new();
    for then in [Then::Exit, Then::Exec] {
        let wanted = [("measure", "cycle"), ("then", then.name())];
        let sizes = distinct(of(document, EXPERIMENT, &wanted).filter_map(|record| number(record, "size")));
        let (Some(&first), Some(&last)) = (sizes.first(), sizes.last()) else { continue };
        let mut series = Vec::new();
        for way in Way::ALL {
            let found = of(document, EXPERIMENT, &wanted).filter(|record| record.method == way.name());
            let mut points: Vec<(f64, f64)> = found
                .filter(|record| record.p50 > 0.0)
                .filter_map(|record| Some((number(record, "size")?, record.p50)))
                .collect();
            points.sort_by(|a, b| a.0.total_cmp(&b.0));
            if !points.is_empty() {
                series.push(Series {
                    name: way.name().to_owned(),
                    ink: Ink::of(way.name()),
                    style: Style::Line,
                    points,
                });
            }
        }
        let times = decades(series.iter().flat_map(|series| series.points.iter().map(|&(_, time)| time)));
        plots.push(Plot {
            title: match then {
                Then::Exit => "the child exits".to_owned(),
                Then::Exec => "the child becomes /bin/true".to_owned(),
            },
            x: Axis {
                title: "memory of the parent".into(),
                log: true,
                ticks: apart(&sizes),
                range: first.max(1.0) / 1.2..last.max(1.0) * 1.2,
                label: size_tick,
            },
            y: Axis {
                title: "made, ended, reaped".into(),
                log: true,
                range: times[0]..times[times.len() - 1],
                ticks: times,
                label: time_tick,
            },
            series,
            size: (545, 400),
            names: 120,
        });
    }
    if plots.is_empty() {
        return Ok(None);
    }
    let caption = "Medians of whole cycles. Ways that copy page tables climb with memory on 4 KB pages; those that share the \
                   parent's memory, and sealed memory, stay level. With exec the start of the program comes on top of all.";
    Ok(Some(Figure {
        name: "ladder".into(),
        title: "Every way to make a process".into(),
        caption: caption.into(),
        pictures: drawn(plots)?,
    }))
}

/// Ticks that can be told apart: those at least twice the one before.
fn apart(sizes: &[f64]) -> Vec<f64> {
    let mut ticks: Vec<f64> = Vec::new();
    for &size in sizes.iter().filter(|&&size| size > 0.0) {
        if ticks.last().is_none_or(|&last| size >= 2.0 * last) {
            ticks.push(size);
        }
    }
    ticks
}
