//! SVG in fewer bytes that look the same: pictures are kept beside the records they are drawn from.

use plotters::prelude::*;
use std::fmt::Write;

/// The opacity by which a line says that it is dashed: plotters would draw it dash by dash.
const DASHED: f64 = 0.99;

/// Of a dashed line in a picture that becomes [`compact`].
pub fn dashed(ink: RGBColor) -> ShapeStyle {
	ink.mix(DASHED).stroke_width(2)
}

/// What labels are written in, unless something else is said.
const FONT: [&str; 2] = [r#" font-family="sans-serif""#, r##" fill="#222""##];

/// What is so unless something else is said.
const DEFAULTS: [&str; 4] = [r#" opacity="1""#, r#" stroke-width="1""#, r#" text-anchor="start""#, r#" stroke="none""#];

/// Leaves out of plotters' SVG what says nothing: attributes that are so anyway, digits behind a hundredth of a pixel,
/// line ends around a label. What it says many times is said once: font and color of labels, lines of one look, a box
/// with a border, which comes as two, and what boxes or labels in a row look like. [`dashed`] lines become so.
pub fn compact(svg: &str) -> String {
	let mut out = String::with_capacity(svg.len());
	let of_dashed = format!(r#" opacity="{DASHED}""#);
	let short = |line: &str| {
		let line = line.replace("#222222", "#222").replace("#FFFFFF", "#FFF");
		let line = line.replace(&of_dashed, r#" stroke-dasharray="6 4""#);
		DEFAULTS.iter().chain(&FONT).fold(line, |line, default| line.replace(default, ""))
	};
	let mut lines = svg.lines().map(|line| hundredths(&short(line))).peekable();
	while let Some(line) = lines.next() {
		if let Some((style, first)) = stroke(&line) {
			let mut path = format!("M{first}");
			while let Some(next) = lines.peek().and_then(|line| stroke(line)).filter(|(other, _)| *other == style) {
				path.extend(["M", &next.1]);
				lines.next();
			}
			let _ = writeln!(out, r#"<path {style} d="{path}"/>"#);
		} else if let Some(border) = lines.peek().and_then(|next| border(&line, next)) {
			let filled = line.trim_end_matches("/>");
			let _ = writeln!(out, "{filled} {border}");
			lines.next();
		} else if let Some(rest) = line.strip_prefix("<svg ") {
			let _ = writeln!(out, "<svg{} {rest}", FONT.concat());
		} else if line.starts_with("<text") && !line.ends_with("</text>") {
			let rest: String = lines.by_ref().take_while(|line| line != "</text>").collect();
			let _ = writeln!(out, "{line}{rest}</text>");
		} else {
			let _ = writeln!(out, "{line}");
		}
	}
	rows(&out)
}

/// Boxes in a row, which lie beside each other, become a path for each look, and labels or points of one look a group.
fn rows(svg: &str) -> String {
	let mut out = String::with_capacity(svg.len());
	let mut lines = svg.lines().peekable();
	while let Some(line) = lines.next() {
		if let Some(first) = outline(line) {
			let mut paths = vec![first];
			while let Some((look, next)) = lines.peek().and_then(|line| outline(line)) {
				match paths.iter_mut().find(|(other, _)| *other == look) {
					Some((_, path)) => *path += &next,
					None => paths.push((look, next)),
				}
				lines.next();
			}
			for (look, path) in paths {
				let _ = writeln!(out, r#"<path {look} d="{path}"/>"#);
			}
		} else if let Some((look, element)) = label(line) {
			let mut labels = vec![element];
			while let Some((_, next)) = lines.peek().and_then(|line| label(line)).filter(|(other, _)| *other == look) {
				labels.push(next);
				lines.next();
			}
			let _ = match labels.len() {
				1 => writeln!(out, "{line}"),
				_ => writeln!(out, "<g {look}>\n{}\n</g>", labels.join("\n")),
			};
		} else {
			let _ = writeln!(out, "{line}");
		}
	}
	out
}

/// How a box looks, and the path around it.
fn outline(line: &str) -> Option<(&str, String)> {
	let mut rest = line.strip_prefix("<rect ")?;
	let [x, y, width, height] = ["x", "y", "width", "height"].map(|name| attribute(&mut rest, name));
	let (x, y, width, height) = (x?, y?, width?, height?);
	Some((rest.strip_suffix("/>")?, format!("M{x},{y}h{width}v{height}h-{width}z")))
}

/// How a label or point looks, and the element without that.
fn label(line: &str) -> Option<(&str, String)> {
	let (attributes, text) = line.strip_suffix("/>").map_or_else(|| line.split_once('>'), |line| Some((line, "/")))?;
	let name = ["<text ", "<circle "].into_iter().find(|name| line.starts_with(name))?;
	let mut look = &attributes[name.len()..];
	for place in ["x", "y", "cx", "cy", "r", "dy"] {
		attribute(&mut look, place);
	}
	let text = if text == "/" { "/>".to_owned() } else { format!(">{text}") };
	let at = attributes[..attributes.len() - look.len()].trim_end();
	(!look.is_empty()).then(|| (look, format!("{at}{text}")))
}

/// Takes the attribute off `rest` if that begins with it, and gives its value.
fn attribute<'a>(rest: &mut &'a str, name: &str) -> Option<&'a str> {
	let (value, after) = rest.strip_prefix(name)?.strip_prefix("=\"")?.split_once('"')?;
	*rest = after.trim_start();
	Some(value)
}

fn stroke(line: &str) -> Option<(String, String)> {
	if let Some((style, ends)) = line.strip_prefix("<line ").and_then(|rest| rest.split_once(" x1=\"")) {
		let numbers: Vec<&str> = ends.split('"').step_by(2).collect();
		let [x1, y1, x2, y2] = numbers[..] else { return None };
		return Some((format!("fill=\"none\" {style}"), format!("{x1},{y1} {x2},{y2}")));
	}
	let (style, points) = line.strip_prefix("<polyline ")?.split_once(r#" points=""#)?;
	Some((style.to_owned(), points.strip_suffix(r#""/>"#)?.trim_end().to_owned()))
}

fn border<'a>(line: &str, next: &'a str) -> Option<&'a str> {
	let (place, fill) = line.strip_prefix("<rect ")?.strip_suffix("/>")?.split_once(" fill=")?;
	if fill.contains(' ') {
		return None;
	}
	next.strip_prefix("<rect ")?.strip_prefix(place)?.strip_prefix(r#" fill="none" "#)
}

/// Cuts numbers in attributes behind the second digit of their fraction; text is no attribute.
fn hundredths(line: &str) -> String {
	let Some((tag, text)) = line.strip_prefix('<').and_then(|rest| rest.split_once('>')) else {
		return line.to_owned();
	};
	let (mut out, mut fraction) = (String::from("<"), None);
	for c in tag.chars() {
		fraction = match (c, fraction) {
			('.', None) => Some(0),
			(digit, Some(n)) if digit.is_ascii_digit() => Some(n + 1),
			_ => None,
		};
		if fraction.is_none_or(|n| n <= 2) {
			out.push(c);
		}
	}
	out + ">" + text
}

#[cfg(test)]
mod tests {
	use super::*;

	#[test]
	fn says_the_same_in_fewer_elements() {
		let svg = r##"<svg width="9" height="9">
<rect x="1" y="2" width="3" height="4" opacity="1" fill="#FFECBE" stroke="none"/>
<rect x="1" y="2" width="3" height="4" opacity="1" fill="none" stroke="#C8C8C8"/>
<text x="8" y="8" text-anchor="start" font-family="sans-serif" font-size="9.67741935483871" opacity="1" fill="#222222">
1.2345 ms
</text>
<polyline fill="none" opacity="1" stroke="#595959" stroke-width="1" points="90,332 90,337 "/>
<polyline fill="none" opacity="1" stroke="#595959" stroke-width="1" points="95,332 95,337 "/>
<polyline fill="none" opacity="1" stroke="#000000" stroke-width="1" points="95,332 95,337 "/>
<line opacity="1" stroke="#000000" stroke-width="1" x1="1" y1="2" x2="3" y2="4"/>
<polyline fill="none" opacity="0.99" stroke="#000000" stroke-width="2" points="1,2 3,4 "/>
<circle cx="1" cy="4" r="3" opacity="1" fill="#222222" stroke="none"/>
<circle cx="2" cy="4" r="3" opacity="1" fill="#222222" stroke="none"/>
<circle cx="3" cy="4" r="3" opacity="0.5" fill="#222222"/>
<rect x="1" y="2" width="3" height="4" opacity="1" fill="#FFFFFF" stroke="none"/>
<rect x="5" y="2" width="3" height="4" opacity="1" fill="#FFFFFF" stroke="none"/>
<text x="1" y="8" dy="0.5ex" font-family="sans-serif" font-size="9" opacity="1" fill="#222222">
1
</text>
<text x="5" y="8" dy="0.5ex" font-family="sans-serif" font-size="9" opacity="1" fill="#222222">
2 &gt; 1
</text>
</svg>
"##;
		let want = r##"<svg font-family="sans-serif" fill="#222" width="9" height="9">
<path fill="#FFECBE" stroke="#C8C8C8" d="M1,2h3v4h-3z"/>
<text x="8" y="8" font-size="9.67">1.2345 ms</text>
<path fill="none" stroke="#595959" d="M90,332 90,337M95,332 95,337"/>
<path fill="none" stroke="#000000" d="M95,332 95,337M1,2 3,4"/>
<path fill="none" stroke-dasharray="6 4" stroke="#000000" stroke-width="2" d="M1,2 3,4"/>
<circle cx="1" cy="4" r="3"/>
<circle cx="2" cy="4" r="3"/>
<circle cx="3" cy="4" r="3" opacity="0.5"/>
<path fill="#FFF" d="M1,2h3v4h-3zM5,2h3v4h-3z"/>
<g font-size="9">
<text x="1" y="8" dy="0.5ex">1</text>
<text x="5" y="8" dy="0.5ex">2 &gt; 1</text>
</g>
</svg>
"##;
		assert_eq!(compact(svg), want);
		assert_eq!(compact(want), want, "nothing is left to be said shorter");
	}
}
