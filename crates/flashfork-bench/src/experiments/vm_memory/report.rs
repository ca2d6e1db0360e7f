//! The table of `bench vm-memory`.

use super::{
	EXPERIMENT,
	code::Access,
	found::{Cell, Pass, touched},
};
use crate::{prelude::*, subjects::vm_host::MemoryPages};

pub fn render_all(document: &Document) -> String {
	let Some(size) = document.of(EXPERIMENT).find_map(|record| record.number("size")) else {
		return page(document, []);
	};
	let heading = format!(
		"Guests of {}, one word in each of {} pages of 4 KB; medians a page, each pass in a virtual machine of its own kind: a guest\n\
		 just booted (1), once more (2), its clone (3), once more (4).",
		show(size),
		touched(size)
	);
	let all = Access::all().flat_map(|access| MemoryPages::all().map(move |pages| Cell { access, pages }));
	let cells = all.filter(|cell| Pass::all().any(|pass| cell.find(document, pass).is_some()));
	let row = |cell: Cell| {
		let mut row = vec![cell.access.as_ref().to_owned(), cell.pages.as_ref().to_owned()];
		row.extend(Pass::all().map(|pass| median_time(cell.find(document, pass))));
		let pairs =
			[(Pass::Shared, Pass::Unbacked), (Pass::Shared, Pass::BackedClone), (Pass::BackedClone, Pass::Backed)];
		row.extend(pairs.map(|(pass, other)| shown(cell.ratio(document, pass, other))));
		row
	};
	let table = table("access | pages || 1 | 2 | 3 | 4 | 3 ÷ 1 | 3 ÷ 4 | 4 ÷ 2", cells.map(row));
	let table: Vec<&str> = table.lines().map(str::trim_end).collect();
	page(document, [heading, table.join("\n")])
}
