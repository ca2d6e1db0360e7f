//! The page itself: host card, findings, figures, tables.

use std::fmt::Write;

use super::Figure;
use crate::{
	plot::Ink,
	record::{Document, Missing, Record},
	stats::fences,
	warnings,
};
use flashfork_terminal::{
	size::show,
	table::{three_figures, time},
};

const STYLE: &str = include_str!("page.css");
const SCRIPT: &str = include_str!("page.js");

pub(super) fn html(document: &Document, findings: &[String], figures: &[Figure]) -> String {
	let mut page = String::new();
	let mut add = |text: &str| {
		page.push_str(text);
		page.push('\n');
	};
	add("<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">");
	add("<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">");
	add("<title>What process creation costs here</title>");
	add(&format!("<style>\n{}{STYLE}</style>\n</head>\n<body>\n<main>", colours()));
	add("<h1>What process creation costs here</h1>");
	add(&host(document));
	if !findings.is_empty() {
		add("<section id=\"findings\">\n<h2>In short</h2>\n<ul>");
		findings.iter().for_each(|finding| add(&format!("<li>{}</li>", escaped(finding))));
		add("</ul>\n</section>");
	}
	let beware: Vec<String> =
		warnings::of_host(&document.host).into_iter().chain(warnings::of_records(&document.records)).collect();
	if !beware.is_empty() {
		add("<section id=\"warnings\">\n<h2>Beware</h2>\n<ul>");
		beware.iter().for_each(|line| add(&format!("<li>{}</li>", escaped(line))));
		add("</ul>\n</section>");
	}
	figures.iter().for_each(|figure| add(&of_figure(figure)));
	add("<section id=\"tables\">\n<h2>Every cell</h2>");
	add(
		"<p>A click on a column's head sorts by it. All samples are in <a href=\"data.json\">data.json</a>, these rows in \
		 <a href=\"data.csv\">data.csv</a>.</p>",
	);
	let mut experiments: Vec<&str> = Vec::new();
	for record in &document.records {
		if !experiments.contains(&record.experiment.as_str()) {
			experiments.push(&record.experiment);
		}
	}
	experiments.iter().for_each(|experiment| add(&table(document, experiment)));
	add("</section>");
	if !document.missing.is_empty() {
		add("<section id=\"missing\">\n<h2>Left out</h2>\n<ul>");
		for (experiments, missing) in left_out(document) {
			let said = [&missing.cell, &missing.reason].map(|text| escaped(text));
			add(&format!("<li>{} ({}): {}</li>", said[0], escaped(&experiments.join(", ")), said[1]));
		}
		add("</ul>\n</section>");
	}
	add(&format!("</main>\n<script>\n{SCRIPT}</script>\n</body>\n</html>"));
	page
}

/// What is missing, that which several experiments miss for the same reason once.
fn left_out(document: &Document) -> Vec<(Vec<&str>, &Missing)> {
	let mut found: Vec<(Vec<&str>, &Missing)> = Vec::new();
	for missing in &document.missing {
		let same =
			|(_, other): &&mut (Vec<&str>, &Missing)| (&other.cell, &other.reason) == (&missing.cell, &missing.reason);
		match found.iter_mut().find(same) {
			Some((experiments, _)) => experiments.push(&missing.experiment),
			None => found.push((vec![&missing.experiment], missing)),
		}
	}
	found
}

/// The colours as variables, for a light page and a dark one.
fn colours() -> String {
	let of = |dark: bool| {
		Ink::ALL.iter().fold(String::new(), |mut list, &(_, name, on_light, on_dark)| {
			let colour = if dark { on_dark } else { on_light };
			// Writing to a string can't fail.
			let _ = write!(list, "--{name}: #{colour:06x}; ");
			list
		})
	};
	format!(":root {{ {}}}\n@media (prefers-color-scheme: dark) {{ :root {{ {}}} }}\n", of(false), of(true))
}

fn host(document: &Document) -> String {
	let host = &document.host;
	let when = std::time::UNIX_EPOCH.checked_add(std::time::Duration::from_secs(host.unix_time));
	// Later than the year 9999 the formatter refuses.
	let mut date = String::new();
	let shown = when.map(|when| write!(date, "{}", humantime::format_rfc3339_seconds(when)));
	if !matches!(shown, Some(Ok(()))) {
		date = format!("{} s since 1970", host.unix_time);
	}
	let rows = [
		("CPU", format!("{} × {}{}", host.cpus, host.cpu, if host.virtualised { " (virtual machine)" } else { "" })),
		("Kernel", format!("Linux {} {}", host.kernel, host.architecture)),
		("Memory", format!("{}, {} free", show(host.memory_total), show(host.memory_available))),
		("Huge pages", host.thp_enabled.clone().unwrap_or("unavailable".into())),
		("Load when it began", format!("{:.1} on {} CPUs", host.load[0], host.cpus)),
		("Measured", format!("{date} by flashfork {}", host.flashfork)),
	];
	let rows: String =
		rows.iter().map(|(what, value)| format!("<dt>{what}</dt><dd>{}</dd>\n", escaped(value))).collect();
	format!("<section id=\"host\">\n<dl>\n{rows}</dl>\n</section>")
}

fn of_figure(figure: &Figure) -> String {
	let pictures: String =
		figure.pictures.iter().map(|svg| format!("<div class=\"picture\">{}</div>\n", inline(svg))).collect();
	format!(
		"<figure id=\"{}\">\n<h2>{}</h2>\n<div class=\"pictures\">\n{pictures}</div>\n<figcaption>{}</figcaption>\n</figure>",
		figure.name,
		escaped(&figure.title),
		escaped(&figure.caption)
	)
}

/// A picture as part of the page: its colours become the page's, and it shrinks with it.
fn inline(svg: &str) -> String {
	let begin = svg.find("<svg").unwrap_or(0);
	let mut svg = svg[begin..].to_owned();
	for (_, name, on_light, _) in Ink::ALL {
		svg = svg.replace(&format!("\"#{on_light:06X}\""), &format!("\"var(--{name})\""));
	}
	svg
}

fn table(document: &Document, experiment: &str) -> String {
	let records: Vec<&Record> = document.records.iter().filter(|record| record.experiment == experiment).collect();
	let heads = ["method", "cell", "n", "min", "median", "p90", "p99", "max", "outliers"];
	let heads: String =
		heads.iter().map(|head| format!("<th scope=\"col\"><button type=\"button\">{head}</button></th>")).collect();
	let rows: String = records.iter().map(|record| row(record)).collect();
	format!(
		"<details>\n<summary>{} ({} cells)</summary>\n<div class=\"wide\"><table>\n<thead><tr>{heads}</tr></thead>\n<tbody>\n{rows}</tbody>\n</table></div>\n</details>",
		escaped(experiment),
		records.len()
	)
}

fn row(record: &Record) -> String {
	let outliers = fences(&record.samples).iter().flatten().count();
	let figure = |value: f64| {
		let shown = match record.unit.as_str() {
			"us" => time(value),
			unit => format!("{} {unit}", three_figures(value)),
		};
		format!("<td data-value=\"{value}\">{}</td>", escaped(&shown))
	};
	let figures: String = [record.min, record.p50, record.p90, record.p99, record.max].map(figure).concat();
	format!(
		"<tr><td>{}</td><td>{}</td><td data-value=\"{n}\">{n}</td>{figures}<td data-value=\"{outliers}\">{outliers}</td></tr>\n",
		escaped(&record.method),
		escaped(&record.cell()),
		n = record.n
	)
}

fn escaped(text: &str) -> String {
	text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}
