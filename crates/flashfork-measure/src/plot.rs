//! One diagram: lines, points and bars over two axes, as SVG whose colours the page can change.

mod compact;
mod labels;

pub use compact::{compact, dashed};
pub use labels::apart;

use std::{error::Error, ops::Range};

use plotters::{
	coord::{
		Shift,
		ranged1d::{DefaultFormatting, KeyPointHint, Ranged},
	},
	prelude::*,
	style::text_anchor::{HPos, Pos, VPos},
};

/// A colour with a meaning: the page shows each as it fits its background.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ink {
	/// Titles and labels.
	Text,
	/// What is beside the point, and names with no colour of their own.
	Faint,
	/// Lines behind the figure.
	Grid,
	/// Plain forks on 4 KB pages.
	Fork4k,
	/// Plain forks on transparent huge pages.
	ForkThp,
	/// Plain forks on the host's pool of huge pages.
	Hugetlb,
	/// Sealed memory.
	Seal,
	/// Forks on demand.
	Odf,
	/// `vfork`.
	Vfork,
	/// `clone` in the same memory.
	Clone,
	/// `clone3`.
	Clone3,
	/// `posix_spawn`.
	Spawn,
	/// Threads.
	Thread,
}

impl Ink {
	/// All of them, with the colour on a light and on a dark page. Okabe and Ito's palette, darkened or lightened so
	/// that text in them can be read.
	pub const ALL: [(Self, &'static str, u32, u32); 13] = [
		(Self::Text, "text", 0x22_22_22, 0xe8_e8_e8),
		(Self::Faint, "faint", 0x59_59_59, 0xa8_a8_a8),
		(Self::Grid, "grid", 0xe4_e4_e4, 0x3a_3a_3a),
		(Self::Fork4k, "fork-4k", 0xb9_4a_00, 0xff_8c_42),
		(Self::ForkThp, "fork-thp", 0x00_72_b2, 0x5b_b5_f0),
		(Self::Hugetlb, "fork-hugetlb", 0x1f_80_a0, 0x8c_d8_f0),
		(Self::Seal, "seal", 0x00_7a_5a, 0x2f_d0_a0),
		(Self::Odf, "odf", 0x8a_3f_9e, 0xd0_90_e0),
		(Self::Vfork, "vfork", 0x7a_6a_00, 0xe0_cc_40),
		(Self::Clone, "clone-vm", 0x6b_4a_2f, 0xd0_a8_88),
		(Self::Clone3, "clone3", 0xb0_72_30, 0xff_c0_90),
		(Self::Spawn, "posix_spawn", 0xa0_28_58, 0xf0_80_a8),
		(Self::Thread, "pthread_create", 0x4a_5a_6a, 0x9a_b0_c4),
	];

	/// On a light page.
	pub fn rgb(self) -> RGBColor {
		let light = Self::ALL.iter().find(|(ink, ..)| *ink == self).map_or(0, |&(_, _, light, _)| light);
		RGBColor((light >> 16) as u8, (light >> 8) as u8, light as u8)
	}

	/// The ink of a method or way by its name in records.
	pub fn of(name: &str) -> Self {
		Self::ALL.iter().find(|(_, known, ..)| *known == name).map_or(Self::Faint, |&(ink, ..)| ink)
	}
}

/// How a series is drawn.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Style {
	/// A line with points.
	Line,
	/// A dashed line without points.
	Dashed,
	/// Points alone.
	Points,
	/// A line alone: many points.
	Curve,
	/// Bars from the lower edge.
	Bars,
}

/// A named series.
#[derive(Debug, Clone)]
pub struct Series {
	/// Beside its end; empty for none.
	pub name: String,
	/// Its colour.
	pub ink: Ink,
	/// How it is drawn.
	pub style: Style,
	/// In data units, all finite, and above zero on a logarithmic axis.
	pub points: Vec<(f64, f64)>,
}

/// An axis.
pub struct Axis {
	/// What it shows, and the unit.
	pub title: String,
	/// Whether it is logarithmic.
	pub log: bool,
	/// Where ticks are, in data units.
	pub ticks: Vec<f64>,
	/// From one end to the other, in data units.
	pub range: Range<f64>,
	/// What a tick says.
	pub label: fn(f64) -> String,
}

impl Axis {
	fn place(&self, value: f64) -> f64 {
		if self.log { value.log10() } else { value }
	}
}

/// An axis as plotters wants it: ticks exactly where they are asked for.
#[derive(Clone)]
struct Ticked {
	range: Range<f64>,
	ticks: Vec<f64>,
}

impl Ranged for Ticked {
	type FormatOption = DefaultFormatting;
	type ValueType = f64;

	fn map(&self, value: &f64, limit: (i32, i32)) -> i32 {
		let share = (value - self.range.start) / (self.range.end - self.range.start);
		limit.0 + (share * f64::from(limit.1 - limit.0)).round() as i32
	}

	fn key_points<Hint: KeyPointHint>(&self, _: Hint) -> Vec<f64> {
		self.ticks.clone()
	}

	fn range(&self) -> Range<f64> {
		self.range.clone()
	}
}

/// A diagram.
pub struct Plot {
	/// Above it.
	pub title: String,
	/// To the right.
	pub x: Axis,
	/// Upwards.
	pub y: Axis,
	/// What is drawn, the last one on top.
	pub series: Vec<Series>,
	/// Width and height in pixels.
	pub size: (u32, u32),
	/// Room for the names on the right, in pixels.
	pub names: u32,
}

/// From one name to the next, and where the first may stand, in pixels.
const NAME: f64 = 16.0;
const TOP: f64 = 34.0;

type Area<'a> = DrawingArea<SVGBackend<'a>, Shift>;
type Axes<'a> = ChartContext<'a, SVGBackend<'a>, Cartesian2d<Ticked, Ticked>>;
type Drawn = Result<(), Box<dyn Error>>;

impl Plot {
	/// The diagram as SVG with the colours of a light page.
	pub fn draw(&self) -> Result<String, Box<dyn Error>> {
		let mut svg = String::new();
		{
			let area = SVGBackend::with_string(&mut svg, self.size).into_drawing_area();
			if !self.title.is_empty() {
				text(&area, &self.title, 15, Ink::Text, (8, 12))?;
			}
			let mut axes = self.axes(&area)?;
			for series in &self.series {
				self.draw_series(&mut axes, series)?;
			}
			self.draw_names(&area, &axes)?;
			area.present()?;
		}
		Ok(compact(&svg))
	}

	fn axes<'b>(&self, area: &Area<'b>) -> Result<Axes<'b>, Box<dyn Error>> {
		let coord = |axis: &Axis| {
			let range = axis.place(axis.range.start)..axis.place(axis.range.end);
			Ticked { range, ticks: axis.ticks.iter().map(|&tick| axis.place(tick)).collect() }
		};
		let mut axes = ChartBuilder::on(area)
			.margin_top(if self.title.is_empty() { 10 } else { 28 })
			.margin_right(self.names)
			.margin_bottom(6)
			.margin_left(6)
			.x_label_area_size(42)
			.y_label_area_size(66)
			.build_cartesian_2d(coord(&self.x), coord(&self.y))?;
		let said = |axis: &Axis, value: f64| (axis.label)(if axis.log { 10f64.powf(value) } else { value });
		axes.configure_mesh()
			.bold_line_style(Ink::Grid.rgb())
			.light_line_style(TRANSPARENT)
			.axis_style(Ink::Faint.rgb())
			.label_style(font(12, Ink::Text))
			.axis_desc_style(font(13, Ink::Text))
			.x_label_formatter(&|&value| said(&self.x, value))
			.y_label_formatter(&|&value| said(&self.y, value))
			.x_desc(&self.x.title)
			.y_desc(&self.y.title)
			.draw()?;
		Ok(axes)
	}

	fn draw_series(&self, axes: &mut Axes, series: &Series) -> Drawn {
		let ink = series.ink.rgb();
		let at = |&(x, y): &(f64, f64)| (self.x.place(x), self.y.place(y));
		let places = || series.points.iter().map(at);
		match series.style {
			Style::Line | Style::Curve => {
				axes.draw_series(LineSeries::new(places(), ink.stroke_width(2)))?;
			}
			Style::Dashed => {
				axes.draw_series(LineSeries::new(places(), dashed(ink)))?;
			}
			Style::Points => {}
			Style::Bars => {
				let floor = self.y.place(self.y.range.start);
				let width = self.x.place(self.x.range.end) - self.x.place(self.x.range.start);
				let half = width / self.x.ticks.len().max(1) as f64 * 0.3;
				axes.draw_series(
					places().map(|(x, y)| Rectangle::new([(x - half, floor), (x + half, y)], ink.filled())),
				)?;
			}
		}
		if matches!(series.style, Style::Line | Style::Points) {
			axes.draw_series(places().map(|place| Circle::new(place, 3, ink.filled())))?;
		}
		Ok(())
	}

	/// Beside each line's end its name, moved apart where they are close.
	fn draw_names(&self, area: &Area, axes: &Axes) -> Drawn {
		let named = self.series.iter().filter(|series| !series.name.is_empty());
		let mut names: Vec<(i32, f64, &Series)> = Vec::new();
		for series in named {
			let Some(&(x, y)) = series.points.last() else { continue };
			let (_, height) = axes.backend_coord(&(self.x.place(x), self.y.place(y)));
			names.push((0, f64::from(height), series));
		}
		let wanted: Vec<f64> = names.iter().map(|&(_, height, _)| height).collect();
		let left = self.size.0 as i32 - self.names as i32 + 8;
		let heights = apart(&wanted, NAME);
		// Names that all want to be at the top begin there.
		let above = heights.iter().fold(f64::INFINITY, |least, &height| least.min(height));
		let down = (TOP - above).max(0.0);
		for ((.., series), height) in names.iter().zip(heights) {
			text(area, &series.name, 13, series.ink, (left, (height + down).round() as i32))?;
		}
		Ok(())
	}
}

fn text(area: &Area, text: &str, size: i32, ink: Ink, at: (i32, i32)) -> Drawn {
	area.draw(&Text::new(text, at, font(size, ink).pos(Pos::new(HPos::Left, VPos::Center))))?;
	Ok(())
}

fn font(size: i32, ink: Ink) -> TextStyle<'static> {
	("sans-serif", size).into_font().color(&ink.rgb())
}

/// The powers of ten that enclose `values`, all above zero; at least one decade.
pub fn decades(values: impl Iterator<Item = f64>) -> Vec<f64> {
	let (low, high) = values.fold((f64::INFINITY, 0.0_f64), |(low, high), value| (low.min(value), high.max(value)));
	if !low.is_finite() || low <= 0.0 {
		return vec![1.0, 10.0];
	}
	let (low, high) = (low.log10().floor() as i32, high.log10().ceil() as i32);
	(low..=high.max(low + 1)).map(|power| 10f64.powi(power)).collect()
}

/// A time in microseconds at a power of ten: "10 µs", "1 ms".
pub fn time_tick(microseconds: f64) -> String {
	match microseconds * 1.000_001 {
		us if us < 1.0 => format!("{} ns", (us * 1e3).round()),
		us if us < 1e3 => format!("{} µs", us.round()),
		us if us < 1e6 => format!("{} ms", (us / 1e3).round()),
		us => format!("{} s", (us / 1e6).round()),
	}
}

/// Bytes at a tick: "64 MB".
pub fn size_tick(bytes: f64) -> String {
	flashfork_terminal::size::show(bytes.round() as u64)
}

#[cfg(test)]
mod tests {
	use super::*;

	#[test]
	fn ticks_are_said_in_fitting_units() {
		for (us, said) in [(0.1, "100 ns"), (1.0, "1 µs"), (100.0, "100 µs"), (1e3, "1 ms"), (1e6, "1 s")] {
			assert_eq!(time_tick(10f64.powf(f64::log10(us))), said);
		}
		assert_eq!(decades([3.0, 42.0].into_iter()), [1.0, 10.0, 100.0]);
		assert_eq!(decades(std::iter::empty()), [1.0, 10.0]);
	}

	#[test]
	fn points_lie_where_their_values_are() {
		let axis =
			|log| Axis { title: "x".into(), log, ticks: vec![1.0, 10.0, 100.0], range: 1.0..100.0, label: time_tick };
		let series = Series {
			name: "fork".into(),
			ink: Ink::Fork4k,
			style: Style::Line,
			points: vec![(1.0, 1.0), (10.0, 10.0), (100.0, 100.0)],
		};
		let plot = Plot {
			title: "A <title> & more".into(),
			x: axis(true),
			y: axis(true),
			series: vec![series],
			size: (400, 300),
			names: 60,
		};
		let svg = plot.draw().unwrap();
		let tree = roxmltree::Document::parse(&svg).unwrap();
		let circles: Vec<(f64, f64)> = tree
			.descendants()
			.filter(|node| node.tag_name().name() == "circle")
			.map(|node| ["cx", "cy"].map(|name| node.attribute(name).unwrap().parse::<f64>().unwrap()).into())
			.collect();
		assert_eq!(circles.len(), 3);
		// Equal steps on logarithmic axes, upwards and to the right.
		assert!((circles[0].0 + circles[2].0 - 2.0 * circles[1].0).abs() <= 2.0, "{circles:?}");
		assert!(circles[0].0 < circles[1].0 && circles[0].1 > circles[1].1);
		let texts: String = tree.descendants().filter_map(|node| node.text()).collect();
		for said in ["A <title> & more", "fork", "10 µs"] {
			assert!(texts.contains(said), "{said} is missing in {texts}");
		}
	}
}
