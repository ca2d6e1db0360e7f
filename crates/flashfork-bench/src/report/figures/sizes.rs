//! The fork call by the parent's memory, one line for each engine.

use super::super::plot::{Axis, Ink, Plot, Series, Style, decades, size_tick, time_tick};
use super::{Figure, distinct, drawn, number, of};
use crate::BenchError;
use crate::fork::{EXPERIMENT, Method};
use crate::record::Document;

pub(super) fn figure(document: &Document) -> Result<Option<Figure>, BenchError> {
    let wanted = [("measure", "call"), ("parent", "idle")];
    let calls = || {
        of(document, EXPERIMENT, &wanted)
            .filter(|record| number(record, "concurrent") == Some(1.0) && record.p50 > 0.0)
            .filter_map(|record| Some((record, number(record, "size")?)))
            .filter(|&(_, size)| size > 0.0)
    };
    let sizes = distinct(calls().map(|(_, size)| size));
    let (Some(&first), Some(&last)) = (sizes.first(), sizes.last()) else { return Ok(None) };
    let mut series = Vec::new();
    for method in Method::ALL {
        let mut points: Vec<(f64, f64)> = calls()
            .filter(|(record, _)| record.method == method.name())
            .map(|(record, size)| (size, record.p50))
            .collect();
        points.sort_by(|a, b| a.0.total_cmp(&b.0));
        if !points.is_empty() {
            series.push(Series { name: method.name().into(), ink: Ink::of(method.name()), style: Style::Line, points });
        }
    }
    let times = decades(series.iter().flat_map(|series| series.points.iter().map(|&(_, time)| time)));
    let plot = Plot {
        title: String::new(),
        x: Axis {
            title: "memory of the parent".into(),
            log: true,
            ticks: sizes.clone(),
            range: first / 1.2..last * 1.2,
            label: size_tick,
        },
        y: Axis {
            title: "the fork call".into(),
            log: true,
            range: times[0]..times[times.len() - 1],
            ticks: times,
            label: time_tick,
        },
        series,
        size: (760, 400),
        names: 100,
    };
    Ok(Some(Figure {
        name: "sizes".into(),
        title: "What a fork call costs by engine".into(),
        caption:
            "Medians, the parent idle since it was prepared. Huge pages are the baseline to beat: they divide the page \
                  tables by 512; sealed memory has none to copy."
                .into(),
        pictures: drawn([plot])?,
    }))
}
