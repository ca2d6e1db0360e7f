//! Fork and go through the memory: one small diagram for each mix of reads and writes.

use super::super::plot::{Axis, Ink, Plot, Series, Style, decades, time_tick};
use super::{Figure, distinct, drawn, number, of};
use crate::BenchError;
use crate::access::{ACCESS_MIX, MIXES};
use crate::fork::Method;
use crate::record::Document;

pub(super) fn figure(document: &Document) -> Result<Option<Figure>, BenchError> {
    let wanted = [("measure", "fork_and_access")];
    let walks = || of(document, ACCESS_MIX, &wanted).filter(|record| record.p50 > 0.0);
    let shares = distinct(walks().filter_map(|record| number(record, "accessed_percent")));
    if shares.is_empty() {
        return Ok(None);
    }
    let times = decades(walks().map(|record| record.p50));
    let mut plots = Vec::new();
    for mix in MIXES {
        let mut series = Vec::new();
        for method in Method::ALL {
            let of_mix = walks().filter(|record| {
                // Where nothing is accessed one mix stands for all.
                let same = number(record, "read_percent") == Some(f64::from(mix));
                record.method == method.name() && (same || number(record, "accessed_percent") == Some(0.0))
            });
            let mut points: Vec<(f64, f64)> =
                of_mix.filter_map(|record| Some((number(record, "accessed_percent")?, record.p50))).collect();
            points.sort_by(|a, b| a.0.total_cmp(&b.0));
            if !points.is_empty() {
                series.push(Series {
                    name: method.name().into(),
                    ink: Ink::of(method.name()),
                    style: Style::Line,
                    points,
                });
            }
        }
        plots.push(Plot {
            title: format!("{mix} % read, {} % written", 100 - mix),
            x: Axis {
                title: "part of the memory gone through".into(),
                log: false,
                ticks: shares.clone(),
                range: -4.0..104.0,
                label: |percent| format!("{percent:.0} %"),
            },
            y: Axis {
                title: String::new(),
                log: true,
                range: times[0]..times[times.len() - 1],
                ticks: times.clone(),
                label: time_tick,
            },
            series,
            size: (370, 260),
            names: 74,
        });
    }
    Ok(Some(Figure {
        name: "mixes".into(),
        title: "Fork, then use the memory".into(),
        caption: "Time from before the fork until the parent has gone through a part of its memory, the child alive. What a cheap \
                  fork saves is spent again page by page where the parent writes."
            .into(),
        pictures: drawn(plots)?,
    }))
}
