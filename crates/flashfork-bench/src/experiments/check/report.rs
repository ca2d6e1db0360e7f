//! The table of `bench check`, from the records.

use super::tool::{Checked, Tool};
use crate::prelude::*;
use flashfork_terminal::table::render;

pub fn render_all(document: &Document) -> String {
    let of = |tool: Tool, who: &str| {
        let is = |record: &&Record| record.text("beside") == Some(tool.as_ref()) && record.text("who") == Some(who);
        document.records.iter().find(is)
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
            tool.as_ref().to_owned(),
            what.to_owned(),
            tool.why().to_owned(),
            figure(theirs),
            figure(ours),
            shown(found),
        ]);
    }
    let headers = ["program", "what", "why they differ", "theirs", "ours", "theirs ÷ ours"];
    page(document, [render(&headers, &rows, 3)])
}
