//! The report of the committed records: its files, and the page in a browser without a screen.

use std::{path::Path, process::Command};

use flashfork_bench::report;
use flashfork_measure::{Document, record::Missing};
use serde_json::{Value, json};

/// The records of `bench all` in docs/records, with something left out that HTML must quote.
fn document() -> Document {
	let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/records/all.json.lz");
	let reason = "this kernel is not patched for <it> & more".into();
	let missing = vec![Missing { experiment: "creation".into(), cell: "odf".into(), reason }];
	Document { missing, ..Document::read(&path).unwrap() }
}

const FIGURES: [&str; 7] = ["ladder", "sizes", "model", "merit", "mixes", "writes", "samples"];

#[test]
fn every_figure_is_there_with_its_data() {
	let document = document();
	let figures = report::figures(&document).unwrap();
	assert_eq!(figures.iter().map(|figure| figure.name.as_str()).collect::<Vec<_>>(), FIGURES);
	for figure in &figures {
		assert!(!figure.caption.is_empty() && !figure.pictures.is_empty());
		for svg in &figure.pictures {
			let tree = roxmltree::Document::parse(svg).unwrap();
			let marks = ["circle", "path", "rect"];
			let drawn = tree.descendants().filter(|node| marks.contains(&node.tag_name().name())).count();
			assert!(drawn >= 2, "{} shows nothing", figure.name);
			assert!(!svg.contains("NaN") && !svg.contains("inf"), "{}", figure.name);
		}
	}
	// Five small ones, one for each mix; fit and residuals; exit and exec.
	let count = |name: &str| figures.iter().find(|figure| figure.name == name).unwrap().pictures.len();
	assert_eq!((count("mixes"), count("model"), count("ladder")), (5, 2, 2));
}

#[test]
fn the_files_are_whole_and_readable() {
	let dir = tempfile::tempdir().unwrap();
	let place = dir.path().join("a/report");
	let document = document();
	report::write(&document, &place).unwrap();
	assert_eq!(Document::read(&place.join("data.json")).unwrap(), document);
	let csv = std::fs::read_to_string(place.join("data.csv")).unwrap();
	assert_eq!(csv.lines().count(), 1 + document.records.len());
	let names: Vec<String> =
		std::fs::read_dir(&place).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
	for name in ["ladder-1.svg", "ladder-2.svg", "model-2.svg", "merit-1.svg", "mixes-5.svg"] {
		let svg = std::fs::read_to_string(place.join(name)).unwrap();
		let tree = roxmltree::Document::parse(&svg).unwrap();
		assert!(tree.descendants().any(|node| node.text().is_some_and(|text| text.contains(&document.host.kernel))));
	}
	assert!(!names.iter().any(|name| name.starts_with('.')), "something is left over: {names:?}");
	let page = std::fs::read_to_string(place.join("index.html")).unwrap();
	assert!(page.contains("this kernel is not patched for &lt;it&gt; &amp; more"));
	assert!(!page.contains("http://") || !page.contains("src="), "the page needs nothing from elsewhere");
	for file in &names {
		use std::os::unix::fs::PermissionsExt;
		assert_eq!(std::fs::metadata(place.join(file)).unwrap().permissions().mode() & 0o777, 0o644);
	}
}

#[test]
fn no_records_are_still_a_page_and_a_bad_place_is_an_error() {
	let dir = tempfile::tempdir().unwrap();
	let empty = Document::here(Vec::new()).unwrap();
	assert!(report::findings(&empty).is_empty());
	report::write(&empty, dir.path()).unwrap();
	assert!(dir.path().join("index.html").exists());
	assert!(
		flashfork_measure::report::try_place(Path::new("/proc/nowhere"))
			.unwrap_err()
			.to_string()
			.contains("/proc/nowhere")
	);
	assert!(report::write(&empty, Path::new("/proc/nowhere")).is_err());
}

/// What the test adds to the page: it takes down errors, clicks, and writes what it finds into the document.
const BEFORE: &str = "<script>window.faults = []; addEventListener('error', e => faults.push(e.message));</script>";
const AFTER: &str = "<script>
addEventListener('load', () => {
  const figures = [...document.querySelectorAll('figure')].map(f => [f.id, [...f.querySelectorAll('svg')].every(s => {
    const box = s.getBoundingClientRect();
    return box.width > 100 && box.height > 50 && s.querySelectorAll('circle, path, rect').length > 1;
  })]);
  document.querySelectorAll('details').forEach(d => d.open = true);
  const table = document.querySelector('table');
  const values = () => [...table.tBodies[0].rows].map(r => Number(r.cells[4].dataset.value));
  const button = table.querySelectorAll('th button')[4];
  const before = values();
  button.click(); const up = values();
  button.click(); const down = values();
  const first = document.querySelector('#mixes circle');
  const ink = getComputedStyle(first).fill;
  const out = document.createElement('pre');
  out.id = 'found';
  out.textContent = JSON.stringify({ figures, before, up, down, ink, faults, wide: document.documentElement.scrollWidth > innerWidth });
  document.body.append(out);
});
</script>";

/// The page as a browser sees it on a screen of this width; `None` where there is no browser.
fn browse(page: &Path, width: u32) -> Option<Value> {
	let profile = tempfile::tempdir().unwrap();
	let done = Command::new("chromium")
		.args(["--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--dump-dom"])
		.arg(format!("--window-size={width},1000"))
		.arg(format!("--user-data-dir={}", profile.path().display()))
		.arg(format!("file://{}", page.display()))
		.output();
	let done = match done {
		Err(error) if error.kind() == std::io::ErrorKind::NotFound => return None,
		other => other.unwrap(),
	};
	let dom = String::from_utf8_lossy(&done.stdout).into_owned();
	let said = String::from_utf8_lossy(&done.stderr).into_owned();
	let begin = dom.find("<pre id=\"found\">").unwrap_or_else(|| panic!("no answer of the page:\n{said}\n{dom}"));
	let text = &dom[begin + 16..];
	let text = &text[..text.find("</pre>").unwrap()];
	Some(serde_json::from_str(&text.replace("&gt;", ">").replace("&lt;", "<").replace("&amp;", "&")).unwrap())
}

#[test]
fn the_page_works_in_a_browser() {
	let dir = tempfile::tempdir().unwrap();
	report::write(&document(), dir.path()).unwrap();
	let page = std::fs::read_to_string(dir.path().join("index.html")).unwrap();
	let page = page.replace("<head>", &format!("<head>{BEFORE}")).replace("</body>", &format!("{AFTER}</body>"));
	let tested = dir.path().join("tested.html");
	std::fs::write(&tested, page).unwrap();
	for width in [1200, 420] {
		let Some(found) = browse(&tested, width) else {
			eprintln!("skipped: chromium is not installed");
			return;
		};
		assert_eq!(found["faults"], json!([]), "{found}");
		let figures: Vec<(&str, bool)> = found["figures"]
			.as_array()
			.unwrap()
			.iter()
			.map(|figure| (figure[0].as_str().unwrap(), figure[1].as_bool().unwrap()))
			.collect();
		assert_eq!(figures, FIGURES.map(|name| (name, true)));
		let values = |name: &str| -> Vec<f64> {
			found[name].as_array().unwrap().iter().map(|value| value.as_f64().unwrap()).collect()
		};
		let (before, up, down) = (values("before"), values("up"), values("down"));
		assert!(before.len() > 5 && up.is_sorted() && down.iter().rev().is_sorted(), "{up:?} {down:?}");
		assert_ne!(before, up, "sorting changed nothing");
		assert!(
			found["ink"].as_str().unwrap().starts_with("rgb(") && found["ink"] != "rgb(0, 0, 0)",
			"{}",
			found["ink"]
		);
		assert_eq!(found["wide"], false, "the page is wider than a screen of {width}");
	}
}
