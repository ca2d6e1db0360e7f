//! The drawing itself.

use std::{
	error::Error,
	fmt::Write,
	ops::Range,
	time::{Duration, UNIX_EPOCH},
};

use plotters::{
	coord::{
		Shift,
		combinators::{BindKeyPoints, IntoLogRange, LogCoord, WithKeyPoints},
	},
	prelude::*,
	style::text_anchor::{HPos, Pos, VPos},
};

use super::series::{Line, Point, Series};
use flashfork_measure::{Result, host::HostCard, plot};
use flashfork_terminal::{size::show, table::time};

const WIDTH: u32 = 900;
const HEIGHT: u32 = 520;
const LEFT: i32 = 20;
/// Room right of the axes for the labels at the line ends.
const LABELS: u32 = 205;
/// From the first row of a label to its second.
const ROW: i32 = 18;
/// From one label to the next.
const LABEL: i32 = 2 * ROW + 4;

const INK: RGBColor = RGBColor(0x22, 0x22, 0x22);
const FAINT_INK: RGBColor = RGBColor(0x59, 0x59, 0x59);
const GRID: RGBColor = RGBColor(0xe4, 0xe4, 0xe4);

type Area<'a> = DrawingArea<SVGBackend<'a>, Shift>;
type Axis = WithKeyPoints<LogCoord<f64>>;
type Axes<'a> = ChartContext<'a, SVGBackend<'a>, Cartesian2d<Axis, Axis>>;
type Drawn = Result<(), Box<dyn Error>>;

/// A figure. All lengths in here are in pixels.
pub struct Chart<'a> {
	/// What is drawn.
	pub series: &'a Series,
	/// Where it was measured.
	pub host: &'a HostCard,
}

impl Chart<'_> {
	pub fn draw(&self) -> Result<String, Box<dyn Error>> {
		let mut svg = String::new();
		{
			let area = SVGBackend::with_string(&mut svg, (WIDTH, HEIGHT)).into_drawing_area();
			area.fill(&WHITE)?;
			self.captions(&area)?;
			let mut axes = self.axes(&area)?;
			if let Some(empty) = self.series.empty {
				let sizes = self.sizes();
				let ends = [(sizes.start, empty), (sizes.end, empty)];
				axes.draw_series(LineSeries::new(ends, plot::dashed(FAINT_INK)))?;
			}
			for line in &self.series.lines {
				draw_line(&mut axes, line)?;
			}
			self.labels(&area, &axes)?;
			area.present()?;
		}
		Ok(plot::compact(&svg))
	}

	fn captions(&self, area: &Area) -> Drawn {
		let row = |text: &str, size, ink, y| draw_text(area, text, size, ink, (LEFT, y));
		row(self.series.words.title, 22, INK, 28)?;
		row(
			&format!("{}. Medians, bars from p10 to p90, {}.", self.series.words.subject, self.counts()),
			14,
			FAINT_INK,
			53,
		)?;
		row(&self.host.line(), 11, FAINT_INK, HEIGHT as i32 - 31)?;
		let warning = self.host.warning().map_or(String::new(), |warning| format!(". {warning}"));
		let date = date(self.host.unix_time)?;
		row(&format!("flashfork {}, {date}{warning}", self.host.flashfork), 11, FAINT_INK, HEIGHT as i32 - 16)
	}

	/// "100 clones per point".
	fn counts(&self) -> String {
		let counted = self.series.words.counted;
		let counts = || self.series.points().map(|point| point.call.n);
		match (counts().min(), counts().max()) {
			(Some(least), Some(most)) if least < most => format!("{least} to {most} {counted} per point"),
			(least, _) => format!("{} {counted} per point", least.unwrap_or_default()),
		}
	}

	/// The range of the size axis: all sizes, and some space at both ends.
	fn sizes(&self) -> Range<f64> {
		let sizes = || self.series.points().map(|point| point.size as f64);
		sizes().fold(f64::INFINITY, f64::min) / 1.25..sizes().fold(0.0, f64::max) * 1.25
	}

	fn decades(&self) -> Vec<f64> {
		let calls = || self.series.points().map(|point| point.call);
		let empty = self.series.empty;
		let lowest = calls().map(|call| call.p10).chain(empty).fold(f64::INFINITY, f64::min).log10().floor() as i32;
		let highest = calls().map(|call| call.p90).chain(empty).fold(0.0, f64::max).log10().ceil() as i32;
		(lowest..=highest.max(lowest + 1)).map(|power| 10f64.powi(power)).collect()
	}

	fn axes<'b>(&self, area: &Area<'b>) -> Result<Axes<'b>, Box<dyn Error>> {
		let mut sizes: Vec<f64> = self.series.points().map(|point| point.size as f64).collect();
		sizes.sort_by(f64::total_cmp);
		sizes.dedup();
		let decades = self.decades();
		let times = decades[0]..decades[decades.len() - 1];
		let mut axes = ChartBuilder::on(area)
			.margin_top(76)
			.margin_right(LABELS)
			.margin_bottom(46)
			.margin_left(LEFT)
			.x_label_area_size(46)
			.y_label_area_size(70)
			.build_cartesian_2d(
				self.sizes().log_scale().with_key_points(sizes),
				times.log_scale().with_key_points(decades),
			)?;
		axes.configure_mesh()
			.bold_line_style(GRID)
			.axis_style(FAINT_INK)
			.label_style(font(13, INK))
			.axis_desc_style(font(14, INK))
			.x_label_formatter(&|&size| show(size as u64))
			.y_label_formatter(&|&microseconds| tick(microseconds))
			.x_desc(self.series.words.sizes)
			.y_desc(self.series.words.times)
			.draw()?;
		Ok(axes)
	}

	/// Beside each line's end its name, its last value and what it is.
	fn labels(&self, area: &Area, axes: &Axes) -> Drawn {
		let end = self.sizes().end;
		let mut labels = Vec::new();
		for line in &self.series.lines {
			let Some(last) = line.points.last() else { continue };
			let name = format!("{}: {} at {}", line.name, time(last.call.p50), show(last.size));
			labels.push((name, line.what, line.ink, last.call.p50));
		}
		if let Some(empty) = self.series.empty {
			labels.push((format!("empty process: {}", time(empty)), "the same program without data", FAINT_INK, empty));
		}
		let pixel = |value: f64| axes.backend_coord(&(end, value));
		let wanted: Vec<f64> = labels.iter().map(|&(.., value)| f64::from(pixel(value).1)).collect();
		for ((name, what, ink, value), y) in labels.iter().zip(plot::apart(&wanted, f64::from(LABEL))) {
			let x = pixel(*value).0 + 10;
			let y = y.round() as i32;
			draw_text(area, name, 15, *ink, (x, y - ROW / 2))?;
			draw_text(area, what, 12, FAINT_INK, (x, y + ROW / 2))?;
		}
		Ok(())
	}
}

fn draw_line(axes: &mut Axes, line: &Line) -> Drawn {
	let ink = line.ink;
	let medians = line.points.iter().map(|point| (point.size as f64, point.call.p50));
	axes.draw_series(LineSeries::new(medians, ink.stroke_width(2)))?;
	for Point { size, call } in &line.points {
		let at = |time| (*size as f64, time);
		axes.draw_series([PathElement::new([at(call.p10), at(call.p90)], ink.stroke_width(2))])?;
		axes.draw_series([Circle::new(at(call.p50), 4, ink.filled())])?;
	}
	Ok(())
}

fn draw_text(area: &Area, text: &str, size: i32, ink: RGBColor, at: (i32, i32)) -> Drawn {
	let style = font(size, ink).pos(Pos::new(HPos::Left, VPos::Center));
	area.draw(&Text::new(text, at, style))?;
	Ok(())
}

fn font(size: i32, ink: RGBColor) -> TextStyle<'static> {
	("sans-serif", size).into_font().color(&ink)
}

/// The day of a time in seconds since 1970: "2023-11-14".
fn date(unix_time: u64) -> Result<String, Box<dyn Error>> {
	let begun = UNIX_EPOCH.checked_add(Duration::from_secs(unix_time));
	let mut date = String::new();
	begun
		.and_then(|begun| write!(date, "{}", humantime::format_rfc3339_seconds(begun)).ok())
		.ok_or_else(|| format!("{unix_time} seconds since 1970 is no date of a measurement"))?;
	Ok(date.split('T').next().unwrap_or_default().to_owned())
}

/// A power of ten in microseconds, in a fitting unit: "10 µs", "1 ms".
fn tick(microseconds: f64) -> String {
	match microseconds {
		us if us < 1e3 => format!("{us} µs"),
		us if us < 1e6 => format!("{} ms", us / 1e3),
		us => format!("{} s", us / 1e6),
	}
}
