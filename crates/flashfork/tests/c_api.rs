//! The C API as a C program sees it: installed, found with pkg-config, compiled and run.
//!
//! Needs cc, c++, nm and pkg-config (Debian: build-essential, pkg-config), and libjemalloc2.

mod installed;

use installed::{prefix, shim, succeed};
use std::{
	collections::BTreeSet,
	path::{Path, PathBuf},
	process::Command,
};

const CRATE: &str = env!("CARGO_MANIFEST_DIR");
const JEMALLOC: &str = "libjemalloc.so.2";

#[derive(Clone, Copy, PartialEq)]
enum Linked {
	Shared,
	Static,
}

/// What pkg-config says about the installed library.
fn flags(linked: Linked) -> Vec<String> {
	let mut command = Command::new("pkg-config");
	command.args(["--cflags", "--libs"]).args((linked == Linked::Static).then_some("--static")).arg("flashfork");
	let text = succeed(command.env("PKG_CONFIG_PATH", prefix().join("lib/pkgconfig")));
	let name = |flag: &str| match flag {
		// The linker prefers the shared library unless told otherwise.
		"-lflashfork" if linked == Linked::Static => "-l:libflashfork.a".to_owned(),
		other => other.to_owned(),
	};
	text.split_whitespace().map(name).collect()
}

/// Compiles a program of the crate's; returns a command that runs it.
fn compile(source: &Path, linked: Linked, name: &str, more: &[&str]) -> Command {
	let program = prefix().join(name);
	let mut cc = Command::new("cc");
	cc.args(["-std=gnu11", "-O1", "-Wall", "-Wextra", "-Werror", "-pthread"]).args(more).arg(source);
	succeed(cc.arg("-o").arg(&program).args(flags(linked)));
	let mut run = Command::new(program);
	match linked {
		Linked::Shared => run.env("LD_LIBRARY_PATH", prefix().join("lib")),
		Linked::Static => run.env_remove("LD_LIBRARY_PATH"),
	};
	run
}

fn test_program(name: &str) -> PathBuf {
	Path::new(CRATE).join("tests/c").join(name).with_extension("c")
}

#[test]
fn the_example_runs_with_either_library() {
	let source = Path::new(CRATE).join("../../examples/c/warm.c");
	for (linked, name) in [(Linked::Shared, "warm-shared"), (Linked::Static, "warm-static")] {
		let printed = succeed(&mut compile(&source, linked, name, &[]));
		assert!(printed.starts_with("sealed 6"), "{printed}");
		let held: Vec<_> = printed.lines().filter_map(|l| l.split_once("still holds ")).map(|(_, n)| n).collect();
		let expected = [1000u64, 1001, 1002].map(|n| (n * 2_654_435_761).to_string());
		assert_eq!(held, expected, "{printed}");
		assert!(printed.contains("\n3 clones, "), "{printed}");
	}
	let needs = succeed(Command::new("readelf").arg("-d").arg(prefix().join("warm-shared")));
	assert!(needs.contains("[libflashfork.so.0.1]"), "{needs}");
	let needs = succeed(Command::new("readelf").arg("-d").arg(prefix().join("warm-static")));
	assert!(!needs.contains("libflashfork"), "{needs}");
}

/// The functions that the header declares: a name right before a parenthesis, outside comments.
fn declared() -> BTreeSet<String> {
	let header = std::fs::read_to_string(prefix().join("include/flashfork.h")).unwrap();
	let code = header.lines().filter(|l| !l.trim_start().starts_with(['*', '/', '#']));
	let names = code.filter_map(|l| l.split_once('(')?.0.rsplit([' ', '*']).next());
	names.filter(|n| n.starts_with("flashfork_")).map(str::to_owned).collect()
}

#[test]
fn the_shared_library_exports_what_the_header_declares_and_nothing_else() {
	let library = prefix().join("lib/libflashfork.so");
	let symbols = succeed(Command::new("nm").args(["-D", "--defined-only", "--format=posix"]).arg(&library));
	let exported: BTreeSet<_> = symbols.lines().map(|l| l.split(' ').next().unwrap().to_owned()).collect();
	assert_eq!(exported, declared());
	assert_eq!(exported.len(), 31, "{exported:?}");
}

#[test]
fn the_static_library_has_every_function_of_the_header() {
	let archive = prefix().join("lib/libflashfork.a");
	let symbols = succeed(Command::new("nm").args(["--defined-only", "--extern-only", "--format=posix"]).arg(archive));
	let defined: BTreeSet<_> = symbols.lines().filter_map(|l| l.split_once(" T ")).map(|(n, _)| n).collect();
	for name in declared() {
		assert!(defined.contains(&name[..]), "{name}");
	}
}

#[test]
fn a_cpp_program_can_use_it() {
	let source = Path::new(CRATE).join("tests/c/seal.cc");
	let program = prefix().join("seal-cpp");
	let mut cxx = Command::new("c++");
	cxx.args(["-std=c++11", "-Wall", "-Wextra", "-Werror"]).arg(&source).arg("-o").arg(&program);
	succeed(cxx.args(flags(Linked::Shared)));
	let printed = succeed(Command::new(program).env("LD_LIBRARY_PATH", prefix().join("lib")));
	assert_eq!(printed.trim(), env!("CARGO_PKG_VERSION"));
}

/// A program of tests/c with the shared library.
fn passes(name: &str) {
	succeed(&mut compile(&test_program(name), Linked::Shared, name, &[]));
}

/// The same with either library.
fn passes_in_both(name: &str) {
	passes(name);
	succeed(&mut compile(&test_program(name), Linked::Static, &format!("{name}-static"), &[]));
}

#[test]
fn threads_are_refused_in_words() {
	passes("threads");
}

#[test]
fn options_are_checked_and_followed() {
	passes("options");
}

#[test]
fn a_region_goes_back_in_parent_and_clone() {
	passes("region");
}

#[test]
fn a_region_goes_back_whatever_else_its_process_does() {
	let [process, memory] =
		[["fork", "flashfork_fork", "thread", "closed"], ["range", "seal", "snapshot", "userfaultfd"]];
	for what in process.into_iter().chain(memory).chain(["sandbox", "filter"]) {
		succeed(compile(&test_program("region_ways"), Linked::Shared, "region-ways", &[]).arg(what));
	}
}

#[test]
fn a_snapshot_returns_again_in_either_library() {
	passes_in_both("snapshot");
}

#[test]
fn so_it_does_on_every_stack() {
	passes("stacks");
}

#[test]
fn afls_names_work() {
	passes("afl");
}

#[test]
fn on_demand_fork_is_granted_or_refused_in_words() {
	passes("on_demand");
}

#[test]
fn outside_a_template_there_is_nothing_to_wait_for() {
	passes_in_both("ready");
}

#[test]
fn templates_and_clones_need_no_command() {
	let shim = shim();
	for (linked, name) in [(Linked::Shared, "templates-shared"), (Linked::Static, "templates-static")] {
		let place = tempfile::tempdir().unwrap();
		succeed(compile(&test_program("templates"), linked, name, &[]).arg(&shim).arg(place.path()));
		let example = Path::new(CRATE).join("../../examples/c/template.c");
		let mut example = compile(&example, linked, &name.replace("templates", "template"), &[]);
		// Debian's Python itself, not a script that starts another.
		let printed = succeed(example.arg(&shim).env("XDG_RUNTIME_DIR", place.path()).env("PATH", "/usr/bin:/bin"));
		assert!(printed.contains(" waits, ") && printed.contains("\n49\nclone "), "{printed}");
		assert!(printed.ends_with(" has ended with exit status 0\n"), "{printed}");
		let names = place.path().join("flashfork/templates");
		assert_eq!(std::fs::read_dir(names).unwrap().count(), 0);
	}
	let told = succeed(
		Command::new("pkg-config")
			.args(["--variable=shim", "flashfork"])
			.env("PKG_CONFIG_PATH", prefix().join("lib/pkgconfig")),
	);
	assert_eq!(Path::new(told.trim()), prefix().join("lib/flashfork/libflashfork_preload.so"));
}

#[test]
fn every_mapping_is_told_of() {
	passes("callback");
}

#[test]
fn excluded_memory_stays_out() {
	passes("exclude");
}

/// Go's runtime calls the kernel by itself, and is recognised by its symbols, unless the caller vouches for it.
#[test]
fn runtimes_that_rely_on_madv_dontneed_are_refused() {
	let allocator = test_program("allocator");
	assert_eq!(succeed(&mut compile(&allocator, Linked::Shared, "allocator", &[])), "sealed\n");
	let run = || compile(&allocator, Linked::Shared, "allocator-marked", &["-DMARKER", "-rdynamic"]);
	assert!(succeed(&mut run()).starts_with("EOPNOTSUPP: refused: the Go runtime is in this process"));
	assert_eq!(succeed(run().arg("trust")), "sealed\n");
}

/// Without the shim: libc's own symbols, libc's handle, calls by number, posix_madvise, realloc, and jemalloc's calloc.
#[test]
fn calls_mean_the_same_on_sealed_memory_without_the_shim() {
	let calls = test_program("calls");
	for (linked, name) in [(Linked::Shared, "calls-shared"), (Linked::Static, "calls-static")] {
		succeed(&mut compile(&calls, linked, name, &["-ldl"]));
		let said = succeed(compile(&calls, linked, name, &["-ldl"]).env("LD_PRELOAD", JEMALLOC).arg("jemalloc"));
		assert_eq!(said, "purged\n", "is {JEMALLOC} installed?");
	}
}
