//! Figures drawn from records: self-contained SVG, readable on a light or a dark page.

mod chart;
mod series;

use crate::prelude::*;
use chart::Chart;
use flashfork_measure::host::HostCard;
use series::Series;

/// What a fork call of an idle parent costs by the parent's memory, as SVG: one line per method with medians and p10 to
/// p90, a dashed line for the empty process, both axes logarithmic, the host card below. Drawn from those of the
/// `records` of `bench fork` whose clones were made one at a time.
///
/// # Errors
/// There are none with memory, or one of them is zero or less, which has no place on a logarithmic axis.
pub fn of_forks(records: &[&Record], host: &HostCard) -> Result<String> {
	draw(&Series::of_forks(records)?, host)
}

/// The same of clones and boots of virtual machines with tiny guests, from `records` of `bench vm-clone`.
///
/// # Errors
/// As for [`of_forks`].
pub fn of_machines(records: &[&Record], host: &HostCard) -> Result<String> {
	draw(&Series::of_machines(records)?, host)
}

fn draw(series: &Series, host: &HostCard) -> Result<String> {
	let chart = Chart { series, host };
	chart.draw().map_err(|error| unable!("can't draw the figure: {error}"))
}

#[cfg(test)]
mod tests {
	use super::*;
	use crate::experiments::{self, fork::EXPERIMENT, vm_clone};
	use roxmltree::Node;

	const SIZES: [u64; 3] = [64 << 20, 256 << 20, 1 << 30];

	fn call(method: Method, size: u64, beside: u64, median: f64) -> Record {
		let chosen = [
			("measure", json!("call")),
			("parent", json!("idle")),
			("size", json!(size)),
			("beside_size", json!(beside)),
			("concurrent", json!(1)),
		];
		Record::new(EXPERIMENT, method.as_ref(), chosen, "us", vec![median * 0.8, median, median * 1.3]).unwrap()
	}

	fn document() -> Document {
		let mut records = Vec::new();
		for (size, by_4k, by_thp, sealed) in
			[(SIZES[0], 1400.0, 67.0, 52.0), (SIZES[1], 6e3, 120.0, 52.0), (SIZES[2], 25e3, 350.0, 53.0)]
		{
			records.push(call(Method::Fork4k, size, size, by_4k));
			records.push(call(Method::ForkThp, size, size, by_thp));
			records.push(call(Method::Seal, size, size, sealed));
			records.push(call(Method::Fork4k, 0, size, 49.0));
		}
		Document::here(records).unwrap()
	}

	fn drawn(document: &Document) -> Result<String> {
		experiments::figure(document)
	}

	/// The points drawn for `method`, in their order: pixels from the left and from the top.
	fn points(svg: &str, method: Method) -> Vec<(f64, f64)> {
		let plotters::style::RGBColor(red, green, blue) = series::colour(method);
		let fill = format!("#{red:02X}{green:02X}{blue:02X}");
		let tree = roxmltree::Document::parse(svg).unwrap();
		let number = |node: Node, name| node.attribute(name).unwrap().parse().unwrap();
		tree.descendants()
			.filter(|node| node.has_tag_name(("http://www.w3.org/2000/svg", "circle")))
			.filter(|node| node.attribute("fill") == Some(&fill))
			.map(|node| (number(node, "cx"), number(node, "cy")))
			.collect()
	}

	fn texts(svg: &str) -> Vec<String> {
		let tree = roxmltree::Document::parse(svg).unwrap();
		let texts = tree.descendants().filter(|node| node.has_tag_name(("http://www.w3.org/2000/svg", "text")));
		texts.map(|node| node.text().unwrap().trim().to_owned()).collect()
	}

	#[test]
	fn points_lie_where_their_values_are() {
		let svg = drawn(&document()).unwrap();
		let by_4k = points(&svg, Method::Fork4k);
		let by_thp = points(&svg, Method::ForkThp);
		let sealed = points(&svg, Method::Seal);
		for line in [&by_4k, &by_thp, &sealed] {
			assert_eq!(line.len(), SIZES.len());
			assert!(line.windows(2).all(|pair| pair[0].0 < pair[1].0), "sizes grow to the right: {line:?}");
			// Each size is four times the one before: equal steps on a logarithmic axis.
			assert!((line[0].0 + line[2].0 - 2.0 * line[1].0).abs() <= 2.0, "{line:?}");
		}
		for growing in [&by_4k, &by_thp] {
			assert!(growing.windows(2).all(|pair| pair[0].1 > pair[1].1), "dearer is higher: {growing:?}");
		}
		assert!((sealed[0].1 - sealed[1].1).abs() <= 1.0, "equal times, equal heights: {sealed:?}");
		for index in 0..SIZES.len() {
			assert!(by_4k[index].1 < by_thp[index].1 && by_thp[index].1 < sealed[index].1);
		}
	}

	#[test]
	fn other_records_are_not_mixed_in() {
		let alone = document();
		let mut with_others = alone.clone();
		for (key, value) in
			[("measure", json!("cycle")), ("parent", json!("read all, wrote some")), ("concurrent", json!(3))]
		{
			for size in [0, 1 << 30] {
				let mut other = call(Method::Fork4k, size, 1 << 30, 7e6);
				other.chosen.insert(key.to_owned(), value.clone());
				with_others.records.insert(0, other);
			}
		}
		// The process without memory that has nothing to seal.
		with_others.records.insert(0, call(Method::Seal, 0, 0, 7e6));
		assert_eq!(drawn(&with_others).unwrap(), drawn(&alone).unwrap());
	}

	#[test]
	fn clones_and_boots_of_machines_are_drawn_likewise() {
		let mut document = Document { records: Vec::new(), ..document() };
		for (method, guest, measure, median) in [
			("clone-4k", "tiny", "first exit", 300.0),
			("clone-4k", "linux", "first exit", 7e6),
			("clone-4k", "tiny", "cycle", 8e6),
			("cold-boot-4k", "tiny", "first exit", 10e3),
		] {
			for size in SIZES {
				let chosen = [("measure", json!(measure)), ("guest", json!(guest)), ("size", json!(size))];
				let samples = vec![median; 3];
				document.records.push(Record::new(vm_clone::EXPERIMENT, method, chosen, "us", samples).unwrap());
			}
		}
		let svg = drawn(&document).unwrap();
		let texts = texts(&svg);
		for wanted in
			["clone-4k: 300 µs at 1 GB", "cold-boot-4k: 10.0 ms at 1 GB", "memory of the guest", "3 samples per point"]
		{
			assert!(texts.iter().any(|text| text.contains(wanted)), "'{wanted}' is missing in {texts:#?}");
		}
		assert!(
			!texts.iter().any(|text| text.contains("fork") && !text.contains("flashfork")
				|| text.contains(" s") && text.contains("at 1 GB")),
			"{texts:#?}"
		);
	}

	#[test]
	fn refuses_what_cannot_be_drawn() {
		let mut none = document();
		none.records.retain(|record| record.chosen["size"] == 0);
		assert!(drawn(&none).unwrap_err().to_string().contains("bench fork"));
		let mut zero = document();
		zero.records.push(call(Method::Seal, 4 << 30, 4 << 30, 0.0));
		assert!(drawn(&zero).unwrap_err().to_string().contains("seal, 4G"));
		for seconds in [1 << 40, u64::MAX] {
			let mut undated = document();
			undated.host.unix_time = seconds;
			assert!(drawn(&undated).unwrap_err().to_string().contains("no date"));
		}
	}
}
