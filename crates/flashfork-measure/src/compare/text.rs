//! A comparison in words.

use super::{Cell, Comparison, NEGLIGIBLE, Verdict};
use crate::{record::Values, stats::median};
use flashfork_terminal::table::{self, counted, render, three_figures};

impl Verdict {
	/// For a table.
	fn words(self) -> &'static str {
		match self {
			Self::Lower => "second is lower",
			Self::Higher => "second is higher",
			Self::Negligible => "differs, too little to matter",
			Self::Same => "no difference seen",
			Self::TooFew => "too few rounds to tell",
		}
	}

	/// Whether the two figures differ by what matters.
	fn is_difference(self) -> bool {
		matches!(self, Self::Lower | Self::Higher)
	}
}

impl Comparison {
	/// How many cells have `verdict`.
	pub fn count(&self, verdict: Verdict) -> usize {
		self.cells.iter().filter(|cell| cell.verdict == verdict).count()
	}

	/// The verdict over all cells, in words.
	pub fn sentence(&self) -> String {
		let differ: Vec<&Cell> = self.cells.iter().filter(|cell| cell.verdict.is_difference()).collect();
		let all = counted(self.cells.len(), "cell");
		if differ.is_empty() {
			return match self.count(Verdict::TooFew) {
				0 => format!("No difference that matters in any of {all}."),
				1 => format!("No difference that matters seen; 1 of {all} has too few rounds to tell."),
				few => format!("No difference that matters seen; {few} of {all} have too few rounds to tell."),
			};
		}
		let most = differ.iter().max_by(|a, b| size_of_change(a).total_cmp(&size_of_change(b)));
		let largest = most.map_or(String::new(), |cell| {
			format!(" The largest: {} ({} × the first).", cell.cell, three_figures(cell.ratio.unwrap_or(f64::INFINITY)))
		});
		format!(
			"{} of {all} {}: in {} the second file is lower, in {} higher.{largest}",
			differ.len(),
			if differ.len() == 1 { "differs" } else { "differ" },
			self.count(Verdict::Lower),
			self.count(Verdict::Higher)
		)
	}

	/// For people: the cells that differ, or `all`.
	pub fn table(&self, all: bool) -> String {
		let shown: Vec<&Cell> = self.cells.iter().filter(|cell| all || cell.verdict.is_difference()).collect();
		let mut parts = vec![self.sentence()];
		if !self.hosts.is_empty() {
			parts.push(format!("Beware, the hosts differ: {}.", self.hosts.join("; ")));
		}
		parts.extend(self.drift());
		if !shown.is_empty() {
			let common = common(&shown);
			let rows: Vec<_> = shown.iter().map(|cell| row(cell, &common)).collect();
			parts.push(render(&["cell", "verdict", "first", "second", "second ÷ first (95 %)", "chance"], &rows, 2));
			if !common.is_empty() {
				parts.push(format!("In all of them: {}.", crate::record::words(&common)));
			}
		}
		parts.extend(self.left_out(shown.len()));
		if self.unmatched != [0, 0] {
			let [first, second] = self.unmatched.map(|n| counted(n, "record"));
			parts.push(format!(
				"Not compared: {first} of the first file and {second} of the second, which the other lacks."
			));
		}
		parts.join("\n\n")
	}

	/// Where most figures moved one way: as likely the machine's doing as the code's.
	fn drift(&self) -> Option<String> {
		let mut ratios: Vec<f64> = self.cells.iter().filter_map(|cell| cell.ratio).filter(|r| r.is_finite()).collect();
		let middle = (ratios.len() > 1).then(|| median(&mut ratios))?;
		((middle - 1.0).abs() > NEGLIGIBLE).then(|| {
			format!(
				"Over all cells the second file's figures are {} × the first's (median): a machine that was slower or \
				 faster as a whole makes every cell differ by as much.",
				three_figures(middle)
			)
		})
	}

	fn left_out(&self, shown: usize) -> Option<String> {
		let [same, negligible, few] =
			[Verdict::Same, Verdict::Negligible, Verdict::TooFew].map(|verdict| self.count(verdict));
		(shown < self.cells.len()).then(|| {
			format!(
				"Not shown: {} without a difference, {negligible} with one too small to matter, {few} with too few \
				 rounds to tell; --all shows them.",
				counted(same, "cell")
			)
		})
	}
}

/// What was chosen alike for each of these, of which there are several.
fn common(cells: &[&Cell]) -> Values {
	let [first, rest @ ..] = cells else { return Values::new() };
	if rest.is_empty() {
		return Values::new();
	}
	let everywhere = |name: &str, value| rest.iter().all(|cell| cell.chosen.get(name) == Some(value));
	let alike = first.chosen.iter().filter(|(name, value)| everywhere(name, value));
	alike.map(|(name, value)| (name.clone(), value.clone())).collect()
}

fn row(cell: &Cell, common: &Values) -> Vec<String> {
	let figure = |value: f64| match cell.unit.as_str() {
		"us" => table::time(value),
		"ratio" | "fraction" => table::share(value),
		unit => format!("{} {unit}", three_figures(value)),
	};
	let ratio = match (cell.ratio, cell.interval) {
		(Some(ratio), Some([low, high])) => {
			format!("{} × ({}–{})", three_figures(ratio), three_figures(low), three_figures(high))
		}
		_ => String::new(),
	};
	let p = cell.p.map_or(String::new(), |p| if p < 0.0001 { "< 0.0001".into() } else { format!("{p:.4}") });
	let own: Values = cell
		.chosen
		.iter()
		.filter(|(name, _)| !common.contains_key(*name))
		.map(|(n, v)| (n.clone(), v.clone()))
		.collect();
	let name =
		if own.is_empty() { cell.what.clone() } else { format!("{}: {}", cell.what, crate::record::words(&own)) };
	vec![name, cell.verdict.words().to_owned(), figure(cell.first), figure(cell.second), ratio, p]
}

fn size_of_change(cell: &Cell) -> f64 {
	cell.ratio.map_or(f64::INFINITY, |ratio| ratio.ln().abs())
}
