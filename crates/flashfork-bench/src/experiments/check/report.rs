//! The table of `bench check`, from the records.

use super::tool::{Checked, Tool};
use crate::prelude::*;

pub fn render_all(document: &Document) -> String {
	let of = |tool: Tool, who: &str| {
		let is = |record: &&Record| record.text("beside") == Some(tool.as_ref()) && record.text("who") == Some(who);
		document.records.iter().find(is)
	};
	let mut rows = Vec::new();
	for tool in Tool::all() {
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
		rows.push(vec![
			tool.as_ref().to_owned(),
			what.to_owned(),
			tool.why().to_owned(),
			figure(theirs),
			figure(ours),
			shown(ratio_of(Some(theirs), Some(ours))),
		]);
	}
	page(document, [table("program | what | why they differ || theirs | ours | theirs ÷ ours", rows)])
}
