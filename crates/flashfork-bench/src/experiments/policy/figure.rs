//! Where each engine loses: a panel for each engine, kind of memory and number of forks; in it sizes over written
//! shares.

use plotters::{
	prelude::*,
	style::text_anchor::{HPos, Pos, VPos},
};

use super::{
	report::{Cell, PROMISE},
	subject::Who,
};
use crate::once::{All, ascending};
use flashfork_measure::{Result, unable};
use flashfork_terminal::size::show;
use strum::VariantArray;

const BOX: (i32, i32) = (38, 22);
const GAP: i32 = 26;
const LEFT: i32 = 96;
const TOP: i32 = 64;

pub fn draw(cells: &[Cell]) -> Result<String> {
	paint(cells).map_err(|e| unable!("can't draw the figure: {e}"))
}

fn paint(cells: &[Cell]) -> Result<String, Box<dyn std::error::Error>> {
	let sizes = ascending(cells.iter().map(|c| c.size));
	let dirty = ascending(cells.iter().map(|c| c.dirty));
	let columns = ascending(cells.iter().map(|c| (c.thp, c.forks)));
	let panel = (BOX.0 * dirty.len() as i32 + GAP, BOX.1 * sizes.len() as i32 + GAP);
	let width = LEFT + panel.0 * columns.len() as i32;
	let height = TOP + panel.1 * Who::VARIANTS.len() as i32 + 24;
	let mut svg = String::new();
	// Over the boxes: what stands in a row and looks alike takes fewer bytes.
	let mut ratios = Vec::new();
	{
		let area = SVGBackend::with_string(&mut svg, (width.max(420) as u32, height as u32)).into_drawing_area();
		area.fill(&WHITE)?;
		let font = |size: i32| ("sans-serif", size).into_font().color(&RGBColor(34, 34, 34));
		let centred = |size: i32| font(size).pos(Pos::new(HPos::Center, VPos::Center));
		let title = "Time of all cycles, seals included: times the better of fork and seal (white: at most 1.1)";
		area.draw(&Text::new(title, (8, 8), font(14)))?;
		for (column, &(thp, forks)) in columns.iter().enumerate() {
			let left = LEFT + panel.0 * column as i32;
			let head = format!("{}, {forks} forks", if thp { "THP" } else { "4 KB" });
			area.draw(&Text::new(head, (left, 36), font(12)))?;
			for (row, who) in Who::all().enumerate() {
				let top = TOP + panel.1 * row as i32;
				if column == 0 {
					area.draw(&Text::new(who.as_ref(), (8, top), font(14)))?;
				}
				for (y, &size) in sizes.iter().enumerate() {
					let at = top + BOX.1 * y as i32;
					if column == 0 {
						area.draw(&Text::new(show(size), (46, at + 5), font(11)))?;
					}
					for (x, &percent) in dirty.iter().enumerate() {
						let found = cells.iter().find(|c| {
							(c.thp, c.forks, c.size) == (thp, forks, size) && c.dirty.total_cmp(&percent).is_eq()
						});
						let from = (left + BOX.0 * x as i32, at);
						let to = (from.0 + BOX.0 - 1, from.1 + BOX.1 - 1);
						let ratio = found.map(|c| c.ratio(who, false));
						area.draw(&Rectangle::new([from, to], colour(ratio).filled()))?;
						area.draw(&Rectangle::new([from, to], RGBColor(200, 200, 200).stroke_width(1)))?;
						// White says it.
						let loses = ratio.filter(|ratio| *ratio > PROMISE);
						ratios.extend(loses.map(|ratio| (ratio, (from.0 + BOX.0 / 2, from.1 + BOX.1 / 2))));
					}
				}
				if row + 1 == Who::VARIANTS.len() {
					for (x, percent) in dirty.iter().enumerate() {
						let at = (left + BOX.0 * x as i32 + BOX.0 / 2, top + panel.1 - GAP + 8);
						area.draw(&Text::new(format!("{percent} %"), at, centred(10)))?;
					}
				}
			}
		}
		for (ratio, middle) in ratios {
			area.draw(&Text::new(format!("{ratio:.1}"), middle, centred(11)))?;
		}
		area.present()?;
	}
	Ok(flashfork_measure::plot::compact(&svg))
}

/// The worse the darker; grey where nothing was measured.
fn colour(ratio: Option<f64>) -> RGBColor {
	match ratio {
		None => RGBColor(225, 225, 225),
		Some(r) if r <= PROMISE => WHITE,
		Some(r) if r <= 2.0 => RGBColor(255, 236, 190),
		Some(r) if r <= 5.0 => RGBColor(255, 196, 130),
		Some(_) => RGBColor(240, 140, 110),
	}
}
