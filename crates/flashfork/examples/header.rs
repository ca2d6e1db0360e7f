//! Prints `flashfork.h`, which cbindgen makes of the C API; `install-c.sh` installs it.

use std::path::Path;

fn main() {
	let root = Path::new(env!("CARGO_MANIFEST_DIR"));
	let config = cbindgen::Config::from_file(root.join("cbindgen.toml")).unwrap();
	let mut builder = cbindgen::Builder::new().with_config(config);
	for source in ["c_api.rs", "c_api_region.rs", "c_api_snapshot.rs", "c_api_templates.rs", "c_api_clones.rs"] {
		builder = builder.with_src(root.join("src").join(source));
	}
	let mut made = Vec::new();
	builder.generate().unwrap().write(&mut made);
	print!("{}", without_rust_sections(&String::from_utf8(made).unwrap()));
}

/// Takes out the "# Safety" sections of doc comments: they tell Rust callers what C callers always answer for.
fn without_rust_sections(header: &str) -> String {
	let mut out = header.to_owned();
	while let Some(start) = out.find(" *\n * # Safety\n") {
		let len = out[start..].find(" */\n").unwrap();
		out.replace_range(start..start + len, "");
	}
	out
}
