//! The table of `bench check`, from the records.

use serde_json::Value;

use super::tool::{Checked, Tool};
use flashfork_measure::experiment::page;
use flashfork_measure::record::{Document, Record};
use flashfork_measure::stats::ratio_of_medians;
use flashfork_terminal::table::{render, three_figures, time};

/// Everything, for people.
pub(super) fn render_all(document: &Document) -> String {
    let of = |tool: Tool, who: &str| {
        let said =
            |record: &&Record, name: &str, value: &str| record.chosen.get(name).and_then(Value::as_str) == Some(value);
        document.records.iter().find(|record| said(record, "beside", tool.name()) && said(record, "who", who))
    };
    let mut rows = Vec::new();
    for tool in Tool::ALL {
        let (Some(theirs), Some(ours)) = (of(tool, "theirs"), of(tool, "ours")) else { continue };
        let figure = |record: &Record| match tool.checked() {
            Checked::Copy => format!("{} GB/s", three_figures(record.p50 / 1e3)),
            _ => time(record.p50),
        };
        let what = match tool.checked() {
            Checked::Fork => "fork, exit, reap",
            Checked::Vfork => "vfork, exit, reap",
            Checked::Spawn => "start and end of /bin/true",
            Checked::Copy => "copying 64 MB",
        };
        let found = ratio_of_medians(&theirs.rounds(), &ours.rounds());
        rows.push(vec![
            tool.name().to_owned(),
            what.to_owned(),
            tool.why().to_owned(),
            figure(theirs),
            figure(ours),
            found.map_or(String::new(), |found| found.to_string()),
        ]);
    }
    let headers = ["program", "what", "why they differ", "theirs", "ours", "theirs ÷ ours"];
    page(document, [render(&headers, &rows, 3)])
}
