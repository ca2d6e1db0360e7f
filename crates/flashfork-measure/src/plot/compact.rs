//! SVG in fewer bytes that look the same: pictures are kept beside the records they are drawn from.

use std::fmt::Write;

/// What all labels are written in.
const FONT: &str = r#" font-family="sans-serif""#;

/// Leaves out of plotters' SVG what says nothing: opacity 1, digits behind a hundredth of a pixel, line ends around a
/// label. What it says many times is said once: the font, a dashed line, which comes dash by dash, and a box with a
/// border, which comes as two.
pub fn compact(svg: &str) -> String {
    let mut out = String::with_capacity(svg.len());
    let mut lines =
        svg.lines().map(|line| hundredths(&line.replace(FONT, "").replace(r#" opacity="1""#, ""))).peekable();
    while let Some(line) = lines.next() {
        if let Some((style, first)) = dash(&line) {
            let mut path = format!("M{first}");
            while let Some(next) = lines.peek().and_then(|line| dash(line)).filter(|(other, _)| *other == style) {
                path.extend(["M", next.1]);
                lines.next();
            }
            let _ = writeln!(out, r#"<path {style} d="{path}"/>"#);
        } else if let Some(border) = lines.peek().and_then(|next| border(&line, next)) {
            let filled = line.replace(r#" stroke="none"/>"#, "");
            let _ = writeln!(out, "{filled} {border}");
            lines.next();
        } else if let Some(rest) = line.strip_prefix("<svg ") {
            let _ = writeln!(out, "<svg{FONT} {rest}");
        } else if line.starts_with("<text") && !line.ends_with("</text>") {
            let rest: String = lines.by_ref().take_while(|line| line != "</text>").collect();
            let _ = writeln!(out, "{line}{rest}</text>");
        } else {
            let _ = writeln!(out, "{line}");
        }
    }
    out
}

/// Style and points of a line without a fill.
fn dash(line: &str) -> Option<(&str, &str)> {
    let (style, points) = line.strip_prefix("<polyline ")?.split_once(r#" points=""#)?;
    Some((style, points.strip_suffix(r#""/>"#)?.trim_end()))
}

/// The stroke of `next` if that is the border of the box in `line`.
fn border<'a>(line: &str, next: &'a str) -> Option<&'a str> {
    let place = line.strip_prefix("<rect ")?.strip_suffix(r#" stroke="none"/>"#)?.split(" fill=").next()?;
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
<text x="8" y="8" font-family="sans-serif" font-size="9.67741935483871" opacity="1" fill="#222222">
1.2345 ms
</text>
<polyline fill="none" opacity="1" stroke="#595959" stroke-width="1" points="90,332 90,337 "/>
<polyline fill="none" opacity="1" stroke="#595959" stroke-width="1" points="95,332 95,337 "/>
<polyline fill="none" opacity="1" stroke="#000000" stroke-width="1" points="95,332 95,337 "/>
<circle cx="3" cy="4" r="3" opacity="0.5" fill="#222222"/>
</svg>
"##;
        let want = r##"<svg font-family="sans-serif" width="9" height="9">
<rect x="1" y="2" width="3" height="4" fill="#FFECBE" stroke="#C8C8C8"/>
<text x="8" y="8" font-size="9.67" fill="#222222">1.2345 ms</text>
<path fill="none" stroke="#595959" stroke-width="1" d="M90,332 90,337M95,332 95,337"/>
<path fill="none" stroke="#000000" stroke-width="1" d="M95,332 95,337"/>
<circle cx="3" cy="4" r="3" opacity="0.5" fill="#222222"/>
</svg>
"##;
        assert_eq!(compact(svg), want);
        assert_eq!(compact(want), want, "nothing is left to be said shorter");
    }
}
