//! A report: one page that needs nothing else, and the data beside it.
//!
//! [`write`] makes the files that docs/MEASURING.md lists: the same data make the same page.

mod csv;
mod page;

use std::{fs, io::Write, path::Path};

use crate::{OrCant, Result, host::HostCard, record::Document};

/// A figure.
#[derive(Debug, Clone)]
pub struct Figure {
	/// Its place in the page: `ladder-exit`, `sizes` and the like.
	pub name: String,
	/// Its title.
	pub title: String,
	/// What to see in it.
	pub caption: String,
	/// The pictures, side by side or one below the other, as SVG.
	pub pictures: Vec<String>,
}

impl Figure {
	/// The pictures as files of their own, with a white ground and the host card below, and their names:
	/// `ladder-1.svg`.
	pub fn files(&self, host: &HostCard) -> Vec<(String, String)> {
		let numbered = self.pictures.iter().zip(1..);
		numbered.map(|(svg, number)| (format!("{}-{number}.svg", self.name), standalone(svg, host))).collect()
	}
}

/// What a picture needs outside the page: a ground, and a line that says where it was measured.
fn standalone(svg: &str, host: &HostCard) -> String {
	const LINE: u32 = 20;
	let body = svg.find('>').map_or(svg, |end| &svg[end + 1..]);
	let size = |name: &str| {
		let begin = svg.find(&format!("{name}=\""))? + name.len() + 2;
		svg[begin..].split('"').next()?.parse::<u32>().ok()
	};
	let (width, height) = (size("width").unwrap_or(0), size("height").unwrap_or(0));
	let card = host.line().replace('&', "&amp;").replace('<', "&lt;");
	let card = format!(
		"<text x=\"8\" y=\"{}\" font-family=\"sans-serif\" font-size=\"11\" fill=\"#595959\">{card}</text>",
		height + LINE - 8
	);
	format!(
		"<svg width=\"{width}\" height=\"{0}\" viewBox=\"0 0 {width} {0}\" xmlns=\"http://www.w3.org/2000/svg\">\n\
		 <rect width=\"100%\" height=\"100%\" fill=\"#ffffff\"/>\n{card}{body}",
		height + LINE
	)
}

/// Writes the report about `document`, with its `findings` in a few sentences and its `figures`, into `dir`, which is
/// made if it isn't there. Each file is put in place whole; the page comes last.
pub fn write(document: &Document, findings: &[String], figures: &[Figure], dir: &Path) -> Result {
	let doing = format!("write the report in {}", dir.display());
	let data = serde_json::to_vec(document).or_cant(&doing)?;
	let mut files: Vec<(String, Vec<u8>)> =
		vec![("data.json".to_owned(), data), ("data.csv".to_owned(), csv::text(document).into_bytes())];
	for figure in figures {
		files.extend(figure.files(&document.host).into_iter().map(|(name, svg)| (name, svg.into_bytes())));
	}
	files.push(("index.html".to_owned(), page::html(document, findings, figures).into_bytes()));
	fs::create_dir_all(dir).or_cant(&doing)?;
	for (name, content) in files {
		let mut file = tempfile::Builder::new().prefix(".flashfork-").tempfile_in(dir).or_cant(&doing)?;
		file.write_all(&content).or_cant(&doing)?;
		let everyone_reads = std::os::unix::fs::PermissionsExt::from_mode(0o644);
		file.as_file().set_permissions(everyone_reads).or_cant(&doing)?;
		file.persist(dir.join(name)).map_err(|error| error.error).or_cant(&doing)?;
	}
	Ok(())
}

/// Finds out whether a report can be written into `dir`, before anything is measured.
pub fn try_place(dir: &Path) -> Result {
	let doing = format!("write a report in {}", dir.display());
	fs::create_dir_all(dir).or_cant(&doing)?;
	tempfile::Builder::new().prefix(".flashfork-").tempfile_in(dir).or_cant(&doing)?;
	Ok(())
}
