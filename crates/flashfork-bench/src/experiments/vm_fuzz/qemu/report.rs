//! The table of `bench vm-fuzz --qemu`.

use super::{super::EXPERIMENT, EXECUTION, FORK};
use crate::prelude::*;

/// What the promise is about.
const SIZE: u64 = 1 << 30;

/// Everything, for people, if these are such records.
pub fn render(document: &Document) -> Option<String> {
	let find =
		|method: Method, measure| document.find(EXPERIMENT, method, json!({ "machine": "qemu", "measure": measure }));
	let any = Method::all().find_map(|method| find(method, EXECUTION))?;
	let (size, resident) = (any.number("size")?, any.observed.get("resident_bytes").and_then(Value::as_u64)?);
	// How many times as many executions as plain forks on 4 KB pages.
	let faster = |method| ratio_of(find(Method::Fork4k, EXECUTION), find(method, EXECUTION));
	let row = |method: Method| {
		let execution = find(method, EXECUTION)?;
		Some(vec![
			method.as_ref().to_owned(),
			median_time(find(method, FORK)),
			time(execution.p50),
			time_range(execution.min, execution.p90),
			format!("{:.0}", 1e6 / execution.p50),
			shown(faster(method)),
			execution.n.to_string(),
		])
	};
	let heading = format!(
		"System calls of a Linux guest of {} in QEMU (TCG), which had {} in memory: a child of QEMU makes those of each input.\n\
		 On-demand-fork (EuroSys 2021), figure 10, with 188 MB: 91 executions a second by fork, 145 by theirs, × 1.59.",
		show(size),
		show(resident)
	);
	let found = if size == SIZE { faster(Method::Seal) } else { None };
	let what = "QEMU with a guest of 1G, executions a second: sealed ÷ fork on 4 KB pages";
	let headers = "way || fork | execution | least–90 % | a second | ÷ fork-4k | n";
	let table = titled(&heading, headers, Method::all().filter_map(row));
	Some(page(document, [table, promises(&[Target::at_least(what, 1.6, found)])]))
}
