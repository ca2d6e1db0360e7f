//! Plain-text tables and figures as people read them.

use comfy_table::{CellAlignment, LineStyle, Table, TableStyle};

/// Renders `rows` under `headers`, two spaces between columns; the first `text_columns` are aligned left, the figures
/// after them right.
pub fn render(headers: &[&str], rows: &[Vec<String>], text_columns: usize) -> String {
	let mut table = Table::new();
	table
		.load_style(TableStyle::new().header_separator(LineStyle::none().fill('─')))
		.set_header(headers.iter().copied());
	for row in rows {
		table.add_row(row);
	}
	for column in table.column_iter_mut().skip(text_columns) {
		column.set_cell_alignment(CellAlignment::Right);
	}
	table.to_string()
}

/// A time in microseconds with three significant figures and a fitting unit: "22.3 µs", "5.98 ms", "1.20 s".
pub fn time(microseconds: f64) -> String {
	match microseconds {
		us if us < 999.5 => format!("{} µs", three_figures(us)),
		us if us < 999_500.0 => format!("{} ms", three_figures(us / 1e3)),
		us => format!("{} s", three_figures(us / 1e6)),
	}
}

/// A spread of times, both ends in the unit of the upper one: "21.9–30.2 µs".
pub fn time_range(low: f64, high: f64) -> String {
	let (divisor, unit) = match high {
		us if us < 999.5 => (1.0, "µs"),
		us if us < 999_500.0 => (1e3, "ms"),
		_ => (1e6, "s"),
	};
	format!("{}–{} {unit}", three_figures(low / divisor), three_figures(high / divisor))
}

/// A share of 1 in percent with two or three significant figures: "97.3 %", "0.040 %".
pub fn share(value: f64) -> String {
	let percent = value * 100.0;
	match percent.abs() {
		small if small > 0.0 && small < 0.1 => {
			let decimals = (1.0 - small.log10().floor()).min(12.0) as usize;
			format!("{percent:.decimals$} %")
		}
		_ => format!("{} %", three_figures(percent)),
	}
}

/// "1 cell", "2 cells": a number of what `one` is the singular of, with its plural where that ends in s.
pub fn counted(n: usize, one: &str) -> String {
	if n == 1 { format!("1 {one}") } else { format!("{n} {one}s") }
}

/// `value` with three significant figures, never in exponent form.
pub fn three_figures(value: f64) -> String {
	let decimals = match value.abs() {
		magnitude if magnitude >= 99.95 => 0,
		magnitude if magnitude >= 9.995 => 1,
		_ => 2,
	};
	format!("{value:.decimals$}")
}

#[cfg(test)]
mod tests {
	use super::*;

	#[test]
	fn times_take_a_fitting_unit() {
		for (us, text) in [
			(0.5, "0.50 µs"),
			(22.31, "22.3 µs"),
			(999.4, "999 µs"),
			(999.6, "1.00 ms"),
			(5981.0, "5.98 ms"),
			(66_860.0, "66.9 ms"),
			(1.2e6, "1.20 s"),
		] {
			assert_eq!(time(us), text);
		}
		assert_eq!(time_range(21.94, 30.2), "21.9–30.2 µs");
		assert_eq!(time_range(900.0, 1100.0), "0.90–1.10 ms");
	}

	#[test]
	fn small_shares_are_not_called_nothing() {
		let shares = [0.973, 0.0004, 0.000_012_3, 0.0, 1.0].map(share);
		assert_eq!(shares, ["97.3 %", "0.040 %", "0.0012 %", "0.00 %", "100 %"]);
	}

	#[test]
	fn a_table_holds_every_cell_on_lines_of_equal_width() {
		let rows = vec![vec!["1G".to_owned(), "22.3 µs".to_owned()], vec!["64M".to_owned(), "1 µs".to_owned()]];
		let text = render(&["size", "median"], &rows, 1);
		for cell in ["size", "median", "1G", "22.3 µs", "64M", "1 µs"] {
			assert!(text.contains(cell), "{cell} is missing in\n{text}");
		}
		let widths: Vec<usize> = text.lines().map(|line| line.chars().count()).collect();
		assert!(widths.windows(2).all(|pair| pair[0] == pair[1]), "{widths:?}");
		assert!(
			text.lines().any(|line| line.trim_end().ends_with("   1 µs")),
			"figures are not aligned right:\n{text}"
		);
	}
}
