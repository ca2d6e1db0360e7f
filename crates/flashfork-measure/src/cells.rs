//! What stands in the cells of tables.

use std::fmt::Display;

use flashfork_terminal::table::{render, time, time_range};

use crate::{
	record::Record,
	stats::{Summary, quantile_of},
};

/// A table; nothing without rows. `headers` are those of columns of text, a double bar, and those of figures, with bars
/// between them: "size | method || time | memory".
pub fn table(headers: &str, rows: impl IntoIterator<Item = Vec<String>>) -> String {
	let rows: Vec<Vec<String>> = rows.into_iter().collect();
	if rows.is_empty() {
		return String::new();
	}
	let [text, figures]: [Vec<&str>; 2] = match headers.split_once(" || ") {
		Some((text, figures)) => [text, figures].map(|headers| headers.split(" | ").collect()),
		None => [headers.split(" | ").collect(), Vec::new()],
	};
	render(&[&text[..], &figures].concat(), &rows, text.len())
}

/// A table below its title; nothing without rows. See [`table`].
pub fn titled(title: &str, headers: &str, rows: impl IntoIterator<Item = Vec<String>>) -> String {
	let table = table(headers, rows);
	if table.is_empty() { table } else { format!("{title}\n{table}") }
}

/// What there is, or nothing.
pub fn shown(found: Option<impl Display>) -> String {
	found.map_or(String::new(), |found| found.to_string())
}

/// The median of times.
pub fn median_time(record: Option<&Record>) -> String {
	shown(record.map(|record| time(record.p50)))
}

/// Where the middle 80 % of times lie.
pub fn spread(record: Option<&Record>) -> String {
	shown(record.and_then(|record| Summary::of(&record.samples)).map(|summary| time_range(summary.p10, summary.p90)))
}

/// The same by rounds: [`quantile_of`].
pub fn spread_of_rounds(record: Option<&Record>) -> String {
	let ends = record.and_then(|record| {
		let at = |q| quantile_of(&record.rounds(), q).map(|found| found.value);
		Some((at(0.1)?, at(0.9)?))
	});
	shown(ends.map(|(low, high)| time_range(low, high)))
}

/// Whether a promise is kept that a table tells of.
pub fn met(is: bool) -> &'static str {
	if is { "met" } else { "missed" }
}

#[cfg(test)]
mod tests {
	use super::*;

	#[test]
	fn columns_before_the_double_bar_are_text() {
		let rows = [["seal", "1"], ["fork-4k", "22"]].map(|row| row.map(str::to_owned).to_vec());
		for (headers, text) in [("method || time", 1), ("method | time", 2)] {
			let rendered = render(&["method", "time"], &rows, text);
			assert_eq!(table(headers, rows.clone()), rendered);
			assert_eq!(titled("Forks", headers, rows.clone()), format!("Forks\n{rendered}"));
		}
		assert_eq!(titled("Forks", "method || time", []), "");
	}
}
