//! The tables of `bench cow-model`, all from the records.

use super::{
	grid::COPIES,
	model::{Model, PAPER, PAPER_MERIT, copy_rate, times_by_forks},
};
use crate::prelude::*;
use flashfork_measure::stats::Interval;

/// The shares of the paper's lines.
const SHARES: [f64; 3] = [0.1, 0.5, 0.9];

pub fn render_all(document: &Document) -> String {
	let models: Vec<Model> = [Method::Fork4k, Method::ForkThp, Method::Hugetlb]
		.into_iter()
		.filter_map(|method| Model::of(document, method))
		.collect();
	let mut parts = vec![prices(&models)];
	parts.extend(models.iter().map(grid));
	parts.extend([lines(&models), merit(document, &models), forks(document)]);
	page(document, parts)
}

fn prices(models: &[Model]) -> String {
	let rows = models.iter().map(|model| {
		let price = |index: usize| {
			let Interval { low, high } = model.fit.intervals[index];
			format!("{} µs ({}–{})", fine(model.fit.coefficients[index]), fine(low), fine(high))
		};
		let worst = model.fit.residuals.iter().fold(0.0_f64, |worst, residual| worst.max(residual.abs()));
		vec![model.method.as_ref().to_owned(), price(0), price(1), price(2), format!("{:.0} %", worst * 100.0)]
	});
	let title =
		"fork + writes of the child + exit + reap = a + b · pages + c · pages written (4 KB pages; 95 % intervals)";
	titled(title, "memory || a: a process | b: each page | c: each page written | largest residual", rows)
}

/// Medians, and in brackets how far the model is off.
fn grid(model: &Model) -> String {
	let sizes = ascending(model.cells.iter().map(|cell| cell.size));
	let shares = ascending(model.cells.iter().map(|cell| cell.share));
	let cell = |size: u64, share: f64| {
		let found =
			model.cells.iter().zip(&model.fit.residuals).find(|(cell, _)| (cell.size, cell.share) == (size, share));
		found.map_or(String::new(), |(cell, residual)| format!("{} ({:+.0} %)", time(cell.median), residual * 100.0))
	};
	let row = |&size: &u64| [show(size)].into_iter().chain(shares.iter().map(|&share| cell(size, share))).collect();
	let rows = sizes.iter().map(row);
	let columns: Vec<String> = shares.iter().map(|share| format!("wrote {share}")).collect();
	let title = format!("{}: medians (and what they are above the model)", model.method);
	titled(&title, &format!("memory || {}", columns.join(" | ")), rows)
}

fn lines(models: &[Model]) -> String {
	let row = |machine: &str, share: f64, slope: f64, intercept: f64| {
		vec![machine.to_owned(), format!("{share}"), time(intercept * 1e3), time(slope * 1e3 * f64::from(1 << 20))]
	};
	let mut rows: Vec<Vec<String>> =
		PAPER.iter().map(|line| row(line.machine, line.share, line.slope, line.intercept)).collect();
	for model in models {
		for share in SHARES {
			let line = model.line(share);
			rows.push(row(&format!("this host, {}", model.method), share, line.slope, line.intercept));
		}
	}
	titled("The paper's lines beside ours", "machine | share written || a fork of nothing | each MB more", rows)
}

/// Page faults served against bare copying.
fn merit(document: &Document, models: &[Model]) -> String {
	let rate = |bytes_per_second: f64| match bytes_per_second {
		rate if rate >= 1e9 => format!("{} GB/s", three_figures(rate / 1e9)),
		rate => format!("{} MB/s", three_figures(rate / 1e6)),
	};
	let mut rows: Vec<Vec<String>> = Vec::new();
	for (machine, merit) in PAPER_MERIT {
		let best =
			PAPER.iter().filter(|line| line.machine == machine).map(|line| line.fault_rate()).fold(0.0, f64::max);
		rows.push(vec![machine.to_owned(), rate(best), rate(best / merit), format!("{merit:.3}")]);
	}
	for model in models {
		let best = SHARES.iter().map(|&share| model.fault_rate(share)).fold(0.0, f64::max);
		for size in COPIES {
			let Some(copied) = copy_rate(document, size) else { continue };
			rows.push(vec![
				format!("this host, {}", model.method),
				rate(best),
				format!("{} ({} at a time)", rate(copied), show(size)),
				format!("{:.3}", best / copied),
			]);
		}
	}
	let title = "How much of a page fault is the copy: 1 when nothing but the copy costs time";
	titled(title, "machine || page faults served | memory copied | ratio", rows)
}

fn forks(document: &Document) -> String {
	let rows = times_by_forks(document).into_iter().map(|(forks, [real, user, system])| {
		let beyond = if system > 0.0 { format!("{:.2}", (real - system) / system) } else { String::new() };
		vec![forks.to_string(), time(real), time(user), time(system), beyond]
	});
	let title = "Real against processor time, 316,228 bytes, half of them written";
	titled(title, "forks || real | user | system | (real − system) ÷ system", rows)
}

/// A price in microseconds, small ones with more digits.
fn fine(value: f64) -> String {
	if value.abs() < 0.995 { format!("{value:.4}") } else { three_figures(value) }
}
