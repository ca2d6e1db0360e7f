//! The grid as a table.

use super::subject::Who;
use crate::prelude::*;

/// What `auto` promises: at most so many times the best, in the long run; and at most so many times a plain process's
/// memory.
pub const PROMISE: f64 = 1.1;
const MEMORY: f64 = 1.5;
/// And how long a fork waits for part of a seal at most, in microseconds.
const WAIT: f64 = 20_000.0;

#[derive(Clone, PartialEq)]
pub struct Cell {
	pub thp: bool,
	pub size: u64,
	pub dirty: f64,
	/// Whether what is written lies in a row.
	pub in_a_row: bool,
	pub forks: u64,
	/// Microseconds a cycle over all forks, and over the latest, in the order of [`Who`].
	pub all: [f64; 3],
	pub latest: [f64; 3],
}

impl Cell {
	/// How many times as long as the best engine without a policy one takes, by the latest cycles or by all.
	pub fn ratio(&self, who: Who, latest: bool) -> f64 {
		let times = if latest { &self.latest } else { &self.all };
		times[who as usize] / times[Who::Fork as usize].min(times[Who::Seal as usize])
	}
}

/// The cells of which every engine has a figure.
pub fn cells(document: &Document) -> Vec<Cell> {
	let mut cells: Vec<Cell> = Vec::new();
	for record in &document.records {
		let thp = record.chosen.get("thp").and_then(Value::as_bool);
		let numbers = (record.number("size"), record.float("dirty_percent"), record.number("forks"));
		let (Some(thp), (Some(size), Some(dirty), Some(forks))) = (thp, numbers) else { continue };
		let Some(who) = Who::all().find(|who| who.as_ref() == record.method) else { continue };
		let in_a_row = record.chosen.contains_key("in_a_row");
		let same = |c: &&mut Cell| {
			(c.thp, c.size, c.forks, c.in_a_row) == (thp, size, forks, in_a_row) && c.dirty.total_cmp(&dirty).is_eq()
		};
		if cells.iter_mut().find(same).is_none() {
			cells.push(Cell { thp, size, dirty, in_a_row, forks, all: [f64::NAN; 3], latest: [f64::NAN; 3] });
		}
		if let Some(cell) = cells.iter_mut().find(same) {
			let times = if record.text("measure") == Some("latest") { &mut cell.latest } else { &mut cell.all };
			times[who as usize] = record.p50;
		}
	}
	cells.retain(|cell| cell.all.iter().chain(&cell.latest).all(|time| time.is_finite()));
	cells
}

pub fn render_all(document: &Document) -> String {
	let cells = cells(document);
	let row = |c: &Cell| {
		let [fork, seal, auto] = c.all.map(time);
		let ratios = [false, true].map(|latest| format!("{:.2}", c.ratio(Who::Auto, latest)));
		let cell = [pages(c.thp).to_owned(), show(c.size), written(c), c.forks.to_string()];
		cell.into_iter().chain([fork, seal, auto]).chain(ratios).collect()
	};
	let parts = [
		"Time of a cycle (writes, fork, a clone that ends at once; seals included) over all forks so far; auto against the better of \
		 the other two, over all forks and over those since the row before. Medians."
			.to_owned(),
		table(
			"pages || size | written | forks | fork | seal | auto | auto : best, all | auto : best, latest",
			cells.iter().map(row),
		),
		kept(&cells),
		memory(document),
		longest_wait(document),
	];
	page(document, parts)
}

fn written(cell: &Cell) -> String {
	format!("{} %{}", cell.dirty, if cell.in_a_row { " in a row" } else { "" })
}

fn pages(thp: bool) -> &'static str {
	if thp { "THP" } else { "4 KB" }
}

/// In how many cells the promise was kept, and where it was missed by most: over all forks, and over the latest of the
/// cells with the most forks of their kind.
fn kept(cells: &[Cell]) -> String {
	let longest = |c: &&Cell| {
		let same = |o: &&Cell| {
			(o.thp, o.size, o.in_a_row) == (c.thp, c.size, c.in_a_row) && o.dirty.total_cmp(&c.dirty).is_eq()
		};
		cells.iter().filter(same).all(|other| other.forks <= c.forks)
	};
	let line = |what: &str, latest: bool, cells: &mut dyn Iterator<Item = &Cell>| {
		let cells: Vec<&Cell> = cells.collect();
		let ratio = |c: &&&Cell| c.ratio(Who::Auto, latest);
		let worst = cells.iter().max_by(|a, b| ratio(a).total_cmp(&ratio(b)))?;
		let over = cells.iter().filter(|c| ratio(c) > PROMISE).count();
		Some(format!(
			"auto {what}: above {PROMISE} times the best in {over} of {} cells; {:.2} times at worst ({}, {}, {} written, {} forks)",
			cells.len(),
			ratio(&worst),
			show(worst.size),
			pages(worst.thp),
			written(worst),
			worst.forks
		))
	};
	let lines = [
		line("over all forks", false, &mut cells.iter()),
		line("over the latest forks of each run", true, &mut cells.iter().filter(longest)),
	];
	lines.into_iter().flatten().collect::<Vec<_>>().join("\n")
}

/// Most memory after a fork, in times of a process with nothing sealed.
fn memory(document: &Document) -> String {
	let most = |who: Who| {
		let of = |r: &&Record| r.method == who.as_ref() && r.text("measure") == Some("extra_memory");
		document.records.iter().filter(of).map(|record| 1.0 + record.max).max_by(f64::total_cmp)
	};
	let (Some(auto), Some(seal)) = (most(Who::Auto), most(Who::Seal)) else { return String::new() };
	format!("most memory after a fork, times a plain process's: auto {auto:.2} (promised: {MEMORY}), seal {seal:.2}")
}

/// How long a fork waited for a part at most, and where.
fn longest_wait(document: &Document) -> String {
	let of_auto = |r: &&Record| r.method == Who::Auto.as_ref() && r.text("measure") == Some("longest_wait");
	let waits: Vec<&Record> = document.records.iter().filter(of_auto).collect();
	let Some(longest) = waits.iter().max_by(|a, b| a.max.total_cmp(&b.max)) else { return String::new() };
	let size = longest.number("size").unwrap_or(0);
	let thp = longest.chosen.get("thp").and_then(Value::as_bool).unwrap_or(false);
	format!(
		"longest wait of a fork for a part of a seal: {} ({}, {}; promised: {}); longer in {} of {} cells",
		time(longest.max),
		show(size),
		pages(thp),
		time(WAIT),
		waits.iter().filter(|r| r.max > WAIT).count(),
		waits.len(),
	)
}

#[cfg(test)]
mod tests {
	use super::*;

	#[test]
	fn auto_is_held_against_the_better_of_the_others() {
		let c = Cell {
			thp: false,
			size: 1,
			dirty: 0.0,
			in_a_row: false,
			forks: 1,
			all: [10.0, 20.0, 12.0],
			latest: [30.0, 20.0, 21.0],
		};
		assert!((c.ratio(Who::Auto, false) - 1.2).abs() < 1e-9 && (c.ratio(Who::Auto, true) - 1.05).abs() < 1e-9);
		assert!((c.ratio(Who::Seal, false) - 2.0).abs() < 1e-9);
		let early = Cell { latest: [1.0, 1.0, 9.0], forks: 0, ..c.clone() };
		let text = kept(&[early, c]);
		assert!(text.contains("in 2 of 2 cells; 1.20 times at worst"), "{text}");
		assert!(text.contains("latest forks of each run: above 1.1 times the best in 0 of 1 cells; 1.05"), "{text}");
	}
}
