//! Linking of the launcher: one small static file at a fixed address, with nothing in it that must be relocated or
//! initialised before it runs.

use std::path::Path;

const SCRIPT: &str = "launcher.ld";

fn main() {
	let directory = std::env::var_os("CARGO_MANIFEST_DIR").expect("cargo sets CARGO_MANIFEST_DIR");
	let script = format!("-Wl,-T,{}", Path::new(&directory).join(SCRIPT).display());
	// As for the shim: a debug build names the unwinder's personality routine, which is never called.
	let personality = "-Wl,--defsym=rust_eh_personality=0";
	for argument in
		["-nostartfiles", "-nodefaultlibs", "-static", "-no-pie", "-Wl,--build-id=none", personality, &script]
	{
		println!("cargo::rustc-link-arg-bins={argument}");
	}
	println!("cargo::rerun-if-changed=build.rs");
	println!("cargo::rerun-if-changed={SCRIPT}");
}
