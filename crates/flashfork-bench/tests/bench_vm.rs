//! Small runs of the experiments on virtual machines.

mod here;

use assert_cmd::Command;
use flashfork_measure::Silent;
use serde_json::{Value, json};
use std::path::Path;

/// Whether guests run, and the monitor is built; else a line says why not.
fn kvm() -> bool {
	let command = Path::new(env!("CARGO_BIN_EXE_flashfork-bench"));
	if !command.with_file_name("flashfork-shell").is_file() {
		eprintln!("skipped: flashfork-shell is not built: cargo build -p flashfork-vmm");
		return false;
	}
	let kvm = std::fs::OpenOptions::new().read(true).write(true).open("/dev/kvm");
	kvm.inspect_err(|e| eprintln!("skipped: /dev/kvm: {e}")).is_ok()
}

/// The records of a run; none where there can't be one.
fn records(args: &[&str]) -> Option<Vec<Value>> {
	if !kvm() {
		return None;
	}
	let command = env!("CARGO_BIN_EXE_flashfork-bench");
	let dir = tempfile::tempdir().unwrap();
	let mut bench = Command::new(command);
	bench.arg("bench").args(args).arg("--json").arg("--records").arg(dir.path().join("records.json"));
	let out = bench.assert().success().get_output().stdout.clone();
	let document: Value = serde_json::from_slice(&out).unwrap();
	assert_eq!(document["schema"], "flashfork.bench/2");
	Some(document["records"].as_array().unwrap().clone())
}

fn median<'a>(records: &'a [Value], method: &str, chosen: (&str, &str)) -> Option<&'a Value> {
	let wanted = |r: &&Value| r["method"] == method && r["chosen"][chosen.0] == chosen.1;
	records.iter().find(wanted).map(|record| &record["p50"])
}

#[test]
fn clones_of_virtual_machines_are_timed_step_by_step_beside_boots() {
	let Some(records) = records(&["vm-clone", "--quick", "--sizes", "4M", "--rounds", "1"]) else { return };
	let microseconds = |method, measure| median(&records, method, ("measure", measure)).unwrap().as_f64().unwrap();
	let whole = microseconds("clone-4k", "first exit");
	for step in ["send", "check", "map", "vcpus", "machine", "devices", "run"] {
		let part = microseconds("clone-4k", step);
		assert!(part > 0.0 && part < whole, "{step}: {part} of {whole} µs");
	}
	assert!(microseconds("clone-4k", "cycle") > whole);
	// What is left when a shell was primed before.
	let primed = microseconds("primed-4k", "first exit");
	for step in ["send", "check", "vcpus", "machine", "devices", "run"] {
		let part = microseconds("primed-4k", step);
		assert!(part > 0.0 && part < primed, "{step}: {part} of {primed} µs");
	}
	assert_eq!(microseconds("primed-4k", "map"), 0.0);
	assert!(microseconds("cold-boot-4k", "first exit") > microseconds("cold-boot-4k", "run"));
	assert!(median(&records, "clone-4k", ("measure", "memory of a clone alive")).is_some());
}

#[test]
fn four_passes_over_a_guest_s_memory_are_timed() {
	let Some(records) = records(&["vm-memory", "--size", "4M", "--rounds", "1"]) else { return };
	for pass in ["booted, first", "booted, second", "clone, first", "clone, second"] {
		assert!(median(&records, "4k", ("pass", pass)).unwrap().as_f64().unwrap() > 0.0, "{pass}");
	}
}

#[test]
fn executions_are_timed_whatever_comes_before_them() {
	let Some(records) = records(&["vm-fuzz", "--size", "16M", "--pages", "20", "--rounds", "1"]) else { return };
	for way in ["rollback, dropping", "clone", "boot"] {
		let record = records.iter().find(|record| record["method"] == way).unwrap();
		assert!(record["p50"].as_f64().unwrap() > 0.0, "{way}");
	}
}

#[test]
#[ignore = "minutes: Linux boots emulated, with coverage counted; needs qemu-system-x86 and afl++"]
fn a_linux_in_qemu_is_forked_by_afl_s_protocol_plain_and_sealed() {
	let dir = tempfile::tempdir().unwrap();
	let command = format!("vm-fuzz --qemu --keep {} --size 256M --rounds 1 --quick", dir.path().display());
	// It fails if a kernel's panic is not seen, or if a seed's system calls end in one.
	let outcome = here::run(&command, &mut Silent).unwrap();
	for method in ["fork-4k", "fork-thp", "seal"] {
		let find = |measure: &str| outcome.document.find("vm-fuzz", method, json!({ "measure": measure })).unwrap();
		let (execution, fork) = (find("execution"), find("fork"));
		assert!(execution.n == 16 && fork.p50 > 0.0 && fork.p50 < execution.p50, "{method}");
		let forks = execution.observed["shim"]["forks"].as_u64();
		assert!(if method == "seal" { forks >= Some(execution.n as u64) } else { forks.is_none() }, "{forks:?}");
		assert!(outcome.table.contains(method), "{}", outcome.table);
	}
	let out = dir.path().join("out");
	let mut fuzz = Command::new("afl-fuzz");
	let set = ["NO_UI", "NO_AFFINITY", "SKIP_CPUFREQ", "SKIP_BIN_CHECK", "I_DONT_CARE_ABOUT_MISSING_CRASHES"];
	fuzz.envs(set.map(|name| (format!("AFL_{name}"), "1"))).env("AFL_FORKSRV_INIT_TMOUT", "600000");
	fuzz.args(["-V", "1", "-t", "60000", "-i"]).arg(dir.path().join("seeds")).arg("-o").arg(&out);
	fuzz.arg("--").arg(dir.path().join("qemu")).assert().success();
	let stats = std::fs::read_to_string(out.join("default/fuzzer_stats")).unwrap();
	let edges =
		stats.lines().find_map(|line| line.strip_prefix("edges_found")?.trim_start_matches([' ', ':']).parse().ok());
	assert!(edges > Some(1000_u32), "{stats}");
}

#[test]
fn pauses_of_live_forks_and_claims_of_clones_of_clones_are_timed() {
	let args = ["vm-fork", "--sizes", "16M", "--pages", "8", "--rounds", "1"];
	let Some(records) = records(&args) else { return };
	let microseconds = |method, measure| median(&records, method, ("measure", measure)).unwrap().as_f64().unwrap();
	let pause = microseconds("live-fork", "pause");
	for part in ["stop", "copy", "save"] {
		let part = microseconds("live-fork", part);
		assert!(part > 0.0 && part < pause, "{part} of {pause} µs");
	}
	let depths: Vec<_> = records
		.iter()
		.filter(|record| record["chosen"]["measure"] == "first exit")
		.map(|record| [&record["chosen"]["depth"], &record["observed"]["extents"]].map(|n| n.as_u64().unwrap()))
		.collect();
	// All but the first have some pages in other files.
	assert!(depths.iter().map(|[depth, _]| *depth).eq([0, 0, 1, 1, 2, 2, 4, 4, 8, 8]), "{depths:?}");
	assert!(depths.iter().all(|[depth, extents]| (*depth == 0) == (*extents == 1)), "{depths:?}");
	assert!(microseconds("claim", "in the shell") > microseconds("claim", "map"));
}

/// Where KVM boots Linux it is measured, as in the lab: `make bench-vm-lab EXPERIMENT=vm-tree`.
#[test]
fn a_tree_without_its_disks_says_what_makes_them() {
	if !kvm() {
		return;
	}
	let cache = tempfile::tempdir().unwrap();
	let mut bench = Command::new(env!("CARGO_BIN_EXE_flashfork-bench"));
	let output = bench.env("XDG_CACHE_HOME", cache.path()).args(["bench", "vm-tree", "--quick"]).assert().failure();
	let said = String::from_utf8_lossy(&output.get_output().stderr);
	// Before it there may be a line about another experiment waited for.
	assert!(said.lines().last().unwrap().contains("scripts/vm-tree-images"), "{said}");
}
