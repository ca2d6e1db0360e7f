//! `include/flashfork.h` is what cbindgen makes of the C API. After a change of the API: `UPDATE=1 cargo test -p
//! flashfork --test header`

use std::path::Path;

#[test]
fn the_header_is_up_to_date() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let config = cbindgen::Config::from_file(root.join("cbindgen.toml")).unwrap();
    let mut builder = cbindgen::Builder::new().with_config(config);
    for source in ["c_api.rs", "c_api_region.rs", "c_api_snapshot.rs", "c_api_templates.rs", "c_api_clones.rs"] {
        builder = builder.with_src(root.join("src").join(source));
    }
    let bindings = builder.generate().unwrap();
    let mut made = Vec::new();
    bindings.write(&mut made);
    let made = without_rust_sections(&String::from_utf8(made).unwrap());
    let path = root.join("include/flashfork.h");
    if std::env::var_os("UPDATE").is_some() {
        std::fs::write(&path, &made).unwrap();
    }
    let kept = std::fs::read_to_string(&path).unwrap();
    assert!(
        kept == made,
        "include/flashfork.h is out of date; update it with UPDATE=1 cargo test -p flashfork --test header"
    );
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
