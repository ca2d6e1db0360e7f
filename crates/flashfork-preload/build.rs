//! Linking of the shim, and the script for Node, which lies beside it.

use std::path::Path;

fn main() {
	// The precompiled `core` names the unwinder's personality routine in its frame tables. Nothing unwinds here (panic
	// = "abort"), and without std there is no such routine: an optimised build drops the reference, a debug build keeps
	// it and would not load. Nil is never called; the linker's version script keeps the name inside this object.
	println!("cargo::rustc-cdylib-link-arg=-Wl,--defsym=rust_eh_personality=0");
	// The libc crate links libc itself only when no other crate of the same build asks it for std.
	println!("cargo::rustc-cdylib-link-arg=-lc");
	// Libraries of their own before glibc 2.34, and empty since.
	for library in ["-ldl", "-lpthread"] {
		println!("cargo::rustc-cdylib-link-arg={library}");
	}
	// Anything else missing is an error here and not in the programs the shim is loaded into.
	println!("cargo::rustc-cdylib-link-arg=-Wl,-z,defs");
	println!("cargo::rerun-if-changed=build.rs");
	println!("cargo::rerun-if-changed={SCRIPT}");
	// OUT_DIR is build/PACKAGE-HASH/out below the directory in which cargo puts the shim.
	let out = std::env::var_os("OUT_DIR").expect("cargo sets OUT_DIR");
	let beside = Path::new(&out).ancestors().nth(3).expect("it lies deep enough").join("flashfork.js");
	std::fs::copy(SCRIPT, beside).expect("the script is copied");
}

const SCRIPT: &str = "node/flashfork.js";
