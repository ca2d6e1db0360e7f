//! Harnesses built with Debian's AFL++ and the installed library, as a user does it, under an unmodified `afl-fuzz`.
//!
//! Needs Debian's afl++; without it nothing here can be tested, and the tests say so by failing.

#[path = "../../flashfork/tests/installed/mod.rs"]
mod installed;

use std::{
	collections::BTreeSet,
	path::{Path, PathBuf},
	process::{Command, Output},
	sync::OnceLock,
};

use installed::{prefix, succeed};

/// What the header brings into a harness that knows nothing of it, and the library.
fn with_library() -> Vec<String> {
	let prefix = prefix();
	let header = prefix.join("include/flashfork_afl_loop.h");
	["-include", header.to_str().unwrap(), &format!("-L{}", prefix.join("lib").display()), "-lflashfork_afl"]
		.map(str::to_owned)
		.to_vec()
}

/// Compiles a harness of this crate's; `name` tells programs of one source apart.
fn compile(source: &str, name: &str, options: &[String], environment: &[(&str, &str)]) -> PathBuf {
	let program = prefix().join(name);
	let mut cc = Command::new("afl-clang-fast");
	cc.args(["-O1", "-g", "-Wall", "-pthread"]);
	cc.arg(Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/c").join(source)).arg("-o").arg(&program);
	succeed(cc.args(options).env("AFL_QUIET", "1").envs(environment.iter().copied()));
	program
}

fn rounds() -> &'static Path {
	static PROGRAM: OnceLock<PathBuf> = OnceLock::new();
	PROGRAM.get_or_init(|| compile("rounds.c", "rounds", &with_library(), &[]))
}

struct Fuzzed {
	place: tempfile::TempDir,
	output: Output,
}

impl Fuzzed {
	/// Fuzzes `program` with arguments `args` and the log's name, from two seeds on.
	fn run(program: &Path, args: &[&str], options: &[&str], environment: &[(&str, &str)]) -> Fuzzed {
		let place = tempfile::tempdir().unwrap();
		let [seeds, log] = ["seeds", "log"].map(|name| place.path().join(name));
		std::fs::create_dir(&seeds).unwrap();
		for (name, seed) in [("one", "A"), ("two", "ABCDEFG")] {
			std::fs::write(seeds.join(name), seed).unwrap();
		}
		let mut fuzz = Command::new("afl-fuzz");
		fuzz.args(["-s", "1", "-t", "20000", "-m", "none"]).args(options);
		fuzz.arg("-i").arg(seeds).arg("-o").arg(place.path().join("out")).arg("--").arg(program).args(args).arg(&log);
		let quiet = ["AFL_NO_UI", "AFL_NO_AFFINITY", "AFL_SKIP_CPUFREQ", "AFL_I_DONT_CARE_ABOUT_MISSING_CRASHES"];
		fuzz.envs(quiet.map(|name| (name, "1"))).env("LOG", &log).envs(environment.iter().copied());
		// A machine that is at work elsewhere may take its time to start a program.
		fuzz.env("AFL_FORKSRV_INIT_TMOUT", "120000");
		let output = fuzz.output().unwrap_or_else(|error| panic!("can't run {fuzz:?}: {error}"));
		Fuzzed { place, output }
	}

	fn said(&self) -> String {
		[&self.output.stdout, &self.output.stderr].map(|text| String::from_utf8_lossy(text)).concat()
	}

	fn stat(&self, name: &str) -> f64 {
		let path = self.place.path().join("out/default/fuzzer_stats");
		let text = std::fs::read_to_string(path).unwrap_or_else(|error| panic!("{error}\n{}", self.said()));
		let mut lines = text.lines().filter_map(|line| line.split_once(':'));
		let (_, value) = lines.find(|(key, _)| key.trim() == name).unwrap_or_else(|| panic!("no {name} in {text}"));
		value.trim().trim_end_matches('%').parse().unwrap()
	}

	/// The processes that ran rounds, and the lengths of their inputs.
	fn log(&self) -> (Vec<String>, BTreeSet<usize>) {
		let text = std::fs::read_to_string(self.place.path().join("log")).unwrap();
		let lines = text.lines().map(|line| line.split_once(' ').unwrap());
		lines.map(|(process, len)| (process.to_owned(), len.parse::<usize>().unwrap())).unzip()
	}

	/// That it ran to its end, found no crash, and is stable; how many rounds and processes there were.
	fn all_rounds_alike(&self) -> (usize, usize) {
		assert!(self.output.status.success(), "{}", self.said());
		assert_eq!((self.stat("saved_crashes"), self.stat("saved_hangs")), (0.0, 0.0), "{}", self.said());
		assert_eq!(self.stat("stability"), 100.0);
		let (processes, lens) = self.log();
		// AFL's inputs arrive: the seeds, and others.
		assert!(lens.is_superset(&BTreeSet::from([1, 7])) && lens.len() > 2, "{lens:?}");
		(processes.len(), processes.into_iter().collect::<BTreeSet<_>>().len())
	}
}

const SOME: [&str; 2] = ["-E", "1500"];

#[test]
fn a_target_that_counts_its_rounds_is_stable() {
	let plain = Fuzzed::run(&compile("rounds.c", "rounds-plain", &[], &[]), &["count"], &SOME, &[]);
	assert!(plain.stat("stability") < 99.0, "{}", plain.stat("stability"));
	let (rounds, processes) = Fuzzed::run(rounds(), &["count"], &SOME, &[]).all_rounds_alike();
	assert!(rounds >= 1000 && processes <= rounds / 300 + 2, "{rounds} rounds in {processes} processes");
}

#[test]
fn a_round_finds_memory_buffers_and_descriptors_as_the_first_did() {
	let (rounds, processes) = Fuzzed::run(rounds(), &["memory"], &["-E", "300"], &[]).all_rounds_alike();
	assert!(processes <= rounds / 300 + 2, "{rounds} rounds in {processes} processes");
}

/// Those that follow the first had its files where its last round had left them.
#[test]
fn the_processes_of_a_fork_server_find_descriptors_as_the_first_did() {
	let (rounds, processes) = Fuzzed::run(rounds(), &["memory"], &["-E", "1500"], &[]).all_rounds_alike();
	assert!(processes > 2, "{rounds} rounds in {processes} processes");
}

#[test]
fn inputs_in_shared_memory_arrive() {
	let program = compile("testcase.c", "testcase", &with_library(), &[]);
	let (rounds, processes) = Fuzzed::run(&program, &[], &SOME, &[]).all_rounds_alike();
	assert!(processes <= rounds / 300 + 2, "{rounds} rounds in {processes} processes");
}

#[test]
fn afls_driver_of_one_input_works_by_a_wrapped_name() {
	let library = format!("-L{}", prefix().join("lib").display());
	let wrapped = ["-fsanitize=fuzzer", "-Wl,--wrap=__afl_persistent_loop", &library, "-lflashfork_afl"];
	let program = compile("one_input.c", "one-input", &wrapped.map(str::to_owned), &[]);
	let (rounds, processes) = Fuzzed::run(&program, &["-400"], &SOME, &[]).all_rounds_alike();
	assert!(processes <= rounds / 300 + 2, "{rounds} rounds in {processes} processes");
}

#[test]
fn exit_ends_a_round_and_not_the_process() {
	let (rounds, processes) = Fuzzed::run(rounds(), &["exit"], &SOME, &[]).all_rounds_alike();
	assert!(processes <= rounds / 300 + 2, "{rounds} rounds in {processes} processes");
	// Who asks AFL to look at the exit status gets it.
	let seen = Fuzzed::run(self::rounds(), &["exit"], &SOME, &[("AFL_CRASH_EXITCODE", "5")]);
	assert!(seen.said().contains("crash"), "{}", seen.said());
}

#[test]
fn a_child_of_a_round_ends_as_it_likes() {
	let (rounds, processes) = Fuzzed::run(rounds(), &["child"], &["-E", "300"], &[]).all_rounds_alike();
	assert!(processes <= rounds / 300 + 2, "{rounds} rounds in {processes} processes");
}

/// What can't be undone costs a process, and no wrong round.
#[test]
fn rounds_that_close_a_descriptor_or_leave_a_thread_run_in_processes_of_their_own() {
	for (what, why) in [("close", "descriptor 2"), ("event", "is another file"), ("late-threads", "other threads")] {
		let (rounds, processes) = Fuzzed::run(rounds(), &[what], &["-E", "200"], &[]).all_rounds_alike();
		assert_eq!(rounds, processes, "{what}");
		if what != "close" {
			let told = Fuzzed::run(self::rounds(), &[what], &["-E", "50"], &[("AFL_DEBUG_CHILD", "1")]).said();
			assert!(told.contains("flashfork: can't go back") && told.contains(why), "{told}");
		}
	}
}

#[test]
fn a_target_with_other_threads_is_refused_in_words() {
	let program = rounds();
	// Also where they were there before AFL's fork server, whose processes don't have them.
	for what in ["threads", "early-threads"] {
		let told = Fuzzed::run(program, &[what], &SOME, &[("AFL_DEBUG_CHILD", "1")]);
		assert!(!told.output.status.success() && told.said().contains("other threads"), "{}", told.said());
	}
	// By hand, as one looks into it, the input still runs.
	let log = tempfile::NamedTempFile::new().unwrap();
	let output = Command::new(program).arg("threads").arg(log.path()).output().unwrap();
	let words = String::from_utf8(output.stderr).unwrap();
	assert!(output.status.success() && words.contains("other threads") && words.lines().count() == 1, "{words}");
	assert_eq!(std::fs::read_to_string(log.path()).unwrap().lines().count(), 1);
}

#[test]
fn by_hand_there_is_one_round_and_nothing_is_said() {
	for what in ["count", "memory", "exit", "overflow"] {
		let log = tempfile::NamedTempFile::new().unwrap();
		let output = Command::new(rounds()).arg(what).arg(log.path()).output().unwrap();
		assert_eq!(output.status.code(), Some(if what == "exit" { 5 } else { 0 }));
		assert_eq!(String::from_utf8(output.stderr).unwrap(), "", "{what}");
		assert_eq!(String::from_utf8(output.stdout).unwrap(), if what == "memory" { "buffered" } else { "" });
	}
}

#[test]
fn address_sanitizer_needs_no_options() {
	let program = compile("rounds.c", "rounds-asan", &with_library(), &[("AFL_USE_ASAN", "1")]);
	for what in ["count", "memory"] {
		let (rounds, processes) = Fuzzed::run(&program, &[what], &["-E", "300"], &[]).all_rounds_alike();
		assert!(processes <= rounds / 300 + 2, "{rounds} rounds in {processes} processes");
	}
	let found = Fuzzed::run(&program, &["overflow"], &["-V", "600"], &[("AFL_BENCH_UNTIL_CRASH", "1")]);
	assert_eq!(found.stat("saved_crashes"), 1.0, "{}", found.said());
}
