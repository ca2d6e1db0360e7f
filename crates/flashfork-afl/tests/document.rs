//! The harnesses and build lines of docs/FUZZING.md, as they stand there.

#[path = "../../flashfork/tests/installed/mod.rs"]
mod installed;

use std::{fs, os::unix::fs::PermissionsExt, path::Path, process::Command};

use installed::{prefix, shim, succeed};

const TARGET: &str = "
#include <stdio.h>
#include <stdlib.h>
static int inputs;
static char *table;
void warm_up(void) { table = calloc(1, 1 << 20); }
void run_one_input(const unsigned char *input, size_t len)
{
    if (inputs++ % 3 == 1) puts(\"one\");
    for (size_t i = 0; i < len; i++) table[input[i] * 256]++;
    if (table['a' * 256] > 3) puts(\"a\");
}
";

/// The example of libFuzzer's kind.
const ONE_INPUT: &str = "
#include <stddef.h>
void warm_up(void);
void run_one_input(const unsigned char *input, size_t len);
int LLVMFuzzerInitialize(int *argc, char ***argv)
{
    warm_up();
    return 0;
}
int LLVMFuzzerTestOneInput(const unsigned char *data, size_t size)
{
    run_one_input(data, size);
    return 0;
}
";

/// AFL stops by itself.
const FUZZ: &str = "#!/bin/sh\nexec /usr/bin/afl-fuzz -E 300 -t 20000 -m none \"$@\"\n";

/// The blocks of code in order: their language, and their text.
fn blocks(document: &str) -> Vec<(&str, &str)> {
	let parts = document.split("```").skip(1).step_by(2);
	parts.map(|block| block.split_once('\n').unwrap()).collect()
}

/// AFL's stability, of the campaign in this directory.
fn stability(out: &Path) -> String {
	let stats = fs::read_to_string(out.join("default/fuzzer_stats")).unwrap();
	let line = stats.lines().find(|line| line.starts_with("stability ")).unwrap();
	line.split_once(':').unwrap().1.trim().to_owned()
}

#[test]
fn build_lines_and_harnesses_work_as_they_stand() {
	let document = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/FUZZING.md");
	let document = fs::read_to_string(document).unwrap();
	let (place, shim) = (tempfile::tempdir().unwrap(), shim());
	let file = |name: &str| place.path().join(name);
	for name in ["seeds", "bin"] {
		fs::create_dir(file(name)).unwrap();
	}
	for (name, text) in
		[("target.c", TARGET), ("one_input.c", ONE_INPUT), ("seeds/one", "abcabc"), ("bin/afl-fuzz", FUZZ)]
	{
		fs::write(file(name), text).unwrap();
	}
	fs::set_permissions(file("bin/afl-fuzz"), fs::Permissions::from_mode(0o755)).unwrap();
	let path = format!("{}:/usr/local/bin:/usr/bin:/bin", file("bin").display());
	let mut fuzzed = 0;
	for (language, text) in blocks(&document) {
		match language {
			"c" => fs::write(file("harness.c"), text).unwrap(),
			"sh" => {
				let text = text.replace("/usr/local/lib/flashfork/libflashfork_preload.so", shim.to_str().unwrap());
				let mut shell = Command::new("sh");
				shell.args(["-euc", &text]).current_dir(place.path()).env("PATH", &path);
				// An installation in /usr/local is found without these.
				shell.env("CPATH", prefix().join("include")).env("LIBRARY_PATH", prefix().join("lib"));
				for name in
					["AFL_NO_UI", "AFL_NO_AFFINITY", "AFL_SKIP_CPUFREQ", "AFL_I_DONT_CARE_ABOUT_MISSING_CRASHES"]
				{
					shell.env(name, "1");
				}
				succeed(shell.env("AFL_FORKSRV_INIT_TMOUT", "120000"));
				fuzzed += text.matches("afl-fuzz ").count();
			}
			other => panic!("a block of {other}"),
		}
		if file("out").exists() && !file("out-shim").exists() {
			fs::rename(file("out"), file("out-shim")).unwrap();
		}
	}
	assert_eq!(fuzzed, 5);
	for name in ["out-shim", "out", "out-asan", "out-one-input"] {
		assert_eq!(stability(&file(name)), "100.00%", "{name}");
	}
	// The reason for all this.
	assert_ne!(stability(&file("out-plain")), "100.00%");
}
