//! The figures as Vega-Lite specifications over `data.csv` (schema v5), for those who want to draw them otherwise.

use serde_json::{Value, json};

use crate::record::Document;

/// A file name and its specification for each kind of figure that has records.
pub(super) fn all(document: &Document) -> Vec<(String, Value)> {
    let has = |experiment: &str| document.records.iter().any(|record| record.experiment == experiment);
    let figures = [
        ("creation", "datum.measure === 'cycle'", "size", "Memory of the parent (bytes)", "then"),
        (
            "fork",
            "datum.measure === 'call' && datum.parent === 'idle' && datum.size > 0",
            "size",
            "Memory of the parent (bytes)",
            "concurrent",
        ),
        ("cow-model", "datum.measure === 'cycle' && datum.size > 0", "size", "Memory of the parent (bytes)", "share"),
        (
            "access-mix",
            "datum.measure === 'fork_and_access'",
            "accessed_percent",
            "Part of the memory gone through (%)",
            "read_percent",
        ),
        ("write-fraction", "true", "granule", "Counted in blocks of (bytes)", ""),
    ];
    let made = figures.into_iter().filter(|(experiment, ..)| has(experiment));
    made.map(|(experiment, filter, x, title, facet)| {
        let log = x != "accessed_percent";
        let y = if experiment == "write-fraction" { "Share changed" } else { "Median (µs)" };
        let mut spec = json!({
            "$schema": "https://vega.github.io/schema/vega-lite/v5.json",
            "description": format!("flashfork bench {experiment}: {}", document.host.line()),
            "data": { "url": "data.csv", "format": { "type": "csv" } },
            "transform": [{ "filter": format!("datum.experiment === '{experiment}' && {filter}") }],
            "mark": { "type": "line", "point": true, "tooltip": true },
            "encoding": {
                "x": { "field": x, "type": "quantitative", "title": title, "scale": { "type": if log { "log" } else { "linear" } } },
                "y": {
                    "field": "p50", "type": "quantitative", "title": y,
                    "scale": { "type": if experiment == "write-fraction" { "linear" } else { "log" } }
                },
                "color": { "field": "method", "type": "nominal" }
            }
        });
        if !facet.is_empty() {
            spec["encoding"]["facet"] = json!({ "field": facet, "type": "nominal", "columns": 3 });
        }
        (format!("{experiment}.vl.json"), spec)
    })
    .collect()
}
