//! The experiments about process creation at tiny sizes: what they record is complete and adds up. No times are judged.

mod here;

use std::{collections::BTreeSet, process::ExitCode};

use flashfork_measure::{Document, Outcome, Progress, Record, Result, Silent, compare, lock::MachineLock, numbers};
use here::{has, run, run_words};
use libtest_mimic::Failed;
use memmap2::{MmapMut, MmapOptions};
use procfs::{Current, Meminfo};
use serde_json::json;

struct StopAfter(u64);

impl Progress for StopAfter {
	fn step(&mut self) {
		self.0 = self.0.saturating_sub(1);
	}
	fn interrupted(&self) -> bool {
		self.0 == 0
	}
}

fn text<'a>(record: &'a Record, name: &str) -> &'a str {
	record.chosen[name].as_str().unwrap()
}

const TINY: &str = "creation --sizes 4M --fds 100 --vmas 50 --quick";

/// Every summary follows from its samples, and the file holds what is in memory.
fn check_file(outcome: &Outcome) -> Result<(), Failed> {
	let path = tempfile::NamedTempFile::new()?.into_temp_path();
	outcome.document.write(&path)?;
	assert_eq!(Document::read(&path)?, outcome.document);
	// What a seal takes is measured without rounds.
	for record in outcome.document.records.iter().filter(|record| record.observed.contains_key("ended")) {
		let per_round = record.observed["samples_per_round"].as_array().unwrap();
		assert_eq!(per_round.iter().map(|n| n.as_u64().unwrap()).sum::<u64>(), record.n as u64);
	}
	Ok(())
}

fn every_way_is_measured_and_its_phases_add_up() -> Result<(), Failed> {
	let outcome = run(TINY, &mut Silent)?;
	check_file(&outcome)?;
	let records = &outcome.document.records;
	let found: BTreeSet<(&str, &str)> =
		records.iter().map(|record| (record.method.as_str(), text(record, "then"))).collect();
	for way in ["clone-vm", "vfork", "fork-4k", "clone3", "seal"] {
		assert!(found.contains(&(way, "exit")) && found.contains(&(way, "exec")), "{way} in {found:?}");
	}
	assert!(found.contains(&("pthread_create", "exit")) && found.contains(&("posix_spawn", "exec")));
	assert!(!found.contains(&("posix_spawn", "exit")) && !found.contains(&("pthread_create", "exec")));
	// On a kernel without it, on-demand fork is missing with its reason.
	let odf = outcome.document.missing.iter().any(|missing| missing.cell == "odf" && !missing.reason.is_empty());
	assert_eq!(odf, !found.contains(&("odf", "exit")));
	for (way, then) in found {
		let of = |measure: &str| {
			records.iter().find(|record| {
				(record.method.as_str(), text(record, "then"), text(record, "measure")) == (way, then, measure)
			})
		};
		let cycle = of("cycle").unwrap();
		for part in ["call", "first_instruction", "exit", "reap"] {
			let Some(part) = of(part) else { continue };
			assert!(part.samples.iter().zip(&cycle.samples).all(|(part, whole)| part <= whole), "{way} {part:?}");
		}
		assert!(cycle.observed["facts"]["vmas"].as_u64().unwrap() >= 50, "{cycle:?}");
		assert_eq!(cycle.chosen["extra_fds"], 100);
	}
	has(&outcome.table, &["Parent with 4 MB", "per second", "times vfork", "100 more open files"]);
	let same = compare::documents(&outcome.document, &outcome.document)?;
	assert_eq!((same.cells.len(), same.unmatched), (records.len(), [0, 0]));
	assert!(same.sentence().starts_with("No difference that matters"), "{}", same.sentence());
	Ok(())
}

fn untouched_memory_has_no_page_tables() -> Result<(), Failed> {
	let outcome = run("creation --sizes 64M --touch none --quick", &mut Silent)?;
	let fork = outcome.document.records.iter().find(|record| record.method == "fork-4k").unwrap();
	// 64 MB touched would need 32 page tables of 4 KB.
	assert!(fork.observed["facts"]["page_table_bytes"].as_u64().unwrap() < 32 * 4096, "{fork:?}");
	assert!(outcome.table.contains("not touched"));
	Ok(())
}

fn the_papers_grid_is_measured_and_fitted() -> Result<(), Failed> {
	let outcome = run("cow-model --grid paper --quick", &mut Silent)?;
	check_file(&outcome)?;
	let cells = outcome.document.records.iter().filter(|record| record.text("measure") == Some("cycle"));
	assert_eq!(cells.count(), 4 * 4);
	assert!(!outcome.table.contains("NaN") && !outcome.table.contains("inf"), "{}", outcome.table);
	assert_eq!(numbers(&outcome.document.records, "forks"), [1, 3, 10, 32, 100]);
	has(
		&outcome.table,
		&["each page written", "AT&T 3B2/310", "HP 9000/350", "this host, fork-4k", "0.823", "real", "wrote 0.9"],
	);
	Ok(())
}

/// The share of blocks of one size that changed, and how many did.
fn changed(outcome: &Outcome, name: &str, granule: u64) -> (f64, u64) {
	let found = outcome.document.records.iter().find(|r| r.method == name && r.chosen["granule"] == granule);
	let found = found.unwrap_or_else(|| panic!("{name} {granule}: {:?}", outcome.document.records));
	(found.p50, found.observed["changed"][0].as_u64().unwrap())
}

fn ready_runs_change_some_of_their_memory() -> Result<(), Failed> {
	let outcome = run("write-fraction", &mut Silent)?;
	for name in ["cpython", "emacs-hanoi", "sqlite", "redis"] {
		// Not every machine has all four; what is missing is said to be so.
		if outcome.document.missing.iter().any(|missing| missing.cell == name) {
			continue;
		}
		let granules = [1, 4 << 10, 64 << 10, 2 << 20];
		let changes = granules.map(|granule| changed(&outcome, name, granule));
		assert!(changes.iter().all(|&(share, _)| share > 0.0 && share <= 1.0), "{name} {changes:?}");
		// Coarser blocks are fewer and hold more. Their share may be smaller: of some only a page is there.
		let counts = changes.map(|(_, count)| count);
		assert!(counts.is_sorted_by(|fine, coarse| fine >= coarse), "{name} {changes:?}");
		let bytes = std::array::from_fn::<u64, 4, _>(|i| counts[i] * granules[i]);
		assert!(bytes.is_sorted(), "{name} {changes:?}");
		assert!(outcome.table.contains(name));
	}
	assert!(outcome.document.records.len() >= 4, "python3 is a build requirement: {:?}", outcome.document.missing);
	assert!(outcome.table.contains("ABSTRIPS"));
	Ok(())
}

fn a_command_that_stops_itself_sets_its_moments() -> Result<(), Failed> {
	let script = "import os, signal, mmap\nm = mmap.mmap(-1, 400 * 4096, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)\n\
				  for i in range(400): m[i * 4096] = 1\nos.kill(os.getpid(), signal.SIGSTOP)\n\
				  for i in range(300): m[i * 4096] = 2\nos.kill(os.getpid(), signal.SIGSTOP)\n";
	let options = ["write-fraction", "--after", "60", "--for", "60", "--runs", "2", "--"];
	let outcome = run_words(options.into_iter().chain(["python3", "-S", "-c", script]), &mut Silent)?;
	let pages = outcome.document.records.iter().find(|record| record.chosen["granule"] == 4096).unwrap();
	assert_eq!(pages.n, 2);
	for changed in pages.observed["changed"].as_array().unwrap() {
		assert!((300..450).contains(&changed.as_u64().unwrap()), "{pages:?}");
	}
	Ok(())
}

fn what_can_not_be_looked_at_is_an_error_in_one_line() -> Result<(), Failed> {
	let error = |options: &[&str]| {
		let words = ["write-fraction", "--after", "30"].into_iter().chain(options.iter().copied());
		run_words(words, &mut Silent).unwrap_err().to_string()
	};
	assert!(error(&["--", "sh", "-c", "exit 3"]).contains("ended (exit status: 3) before it was looked at"));
	assert!(error(&["--", "/no/such/program"]).contains("/no/such/program"));
	assert_eq!(error(&["--pid", "2147483646"]), "there is no process 2147483646");
	assert!(error(&["--pid", &std::process::id().to_string()]).contains("can't stop and look at itself"));
	Ok(())
}

fn first_writes_are_measured_for_every_method() -> Result<(), Failed> {
	let outcome = run("fault --size 8M --quick", &mut Silent)?;
	check_file(&outcome)?;
	for method in ["fork-4k", "seal"] {
		for measure in ["first_write", "next_write"] {
			let found = outcome.document.records.iter().find(|r| r.method == method && text(r, "measure") == measure);
			assert!(found.is_some_and(|record| record.min > 0.0), "{method} {measure}");
		}
	}
	assert!(outcome.table.contains("EuroSys 2021"), "{}", outcome.table);
	Ok(())
}

fn walks_are_measured_for_every_mix() -> Result<(), Failed> {
	let outcome = run("access-mix --size 64M --quick", &mut Silent)?;
	check_file(&outcome)?;
	for method in ["fork-4k", "seal"] {
		let found: BTreeSet<(u64, u64)> = outcome
			.document
			.records
			.iter()
			.filter(|record| record.method == method && text(record, "measure") == "fork_and_access")
			.map(|record| {
				(record.chosen["accessed_percent"].as_u64().unwrap(), record.chosen["read_percent"].as_u64().unwrap())
			})
			.collect();
		// Three shares in five mixes, but nothing accessed is one.
		assert_eq!(found.len(), 1 + 2 * 5, "{method} {found:?}");
	}
	has(&outcome.table, &["100 % read", "0 % read, 100 % written", "% saved", "50 % accessed"]);
	Ok(())
}

/// Pages added to the host's pool of huge pages, given back when dropped. What was free before is held, so that no
/// more than these can be had, however large the pool.
struct Reserved {
	before: String,
	_held: Option<MmapMut>,
}

impl Reserved {
	const FILE: &str = "/proc/sys/vm/nr_hugepages";

	/// `None` where this user may not, or the memory is too scattered.
	fn pages(more: u64) -> Option<Self> {
		let before = std::fs::read_to_string(Self::FILE).ok()?.trim().to_owned();
		let wanted = before.parse::<u64>().ok()? + more;
		let info = Meminfo::current().expect("the kernel tells what memory there is");
		let free = info.hugepages_free? - info.hugepages_rsvd?;
		// Reserved for this mapping, and never touched.
		let held = (free > 0).then(|| MmapOptions::new().len((free as usize) << 21).huge(Some(21)).map_anon());
		let held = held.transpose().expect("what is free can be had");
		std::fs::write(Self::FILE, wanted.to_string()).ok()?;
		// From here on there is something to give back.
		let reserved = Self { before, _held: held };
		let got = std::fs::read_to_string(Self::FILE).ok()?;
		(got.trim() == wanted.to_string()).then_some(reserved)
	}
}

impl Drop for Reserved {
	fn drop(&mut self) {
		std::fs::write(Self::FILE, &self.before).expect("what could be reserved can be given back");
	}
}

fn pages_of_the_hosts_pool_are_measured_where_there_are_some() -> Result<(), Failed> {
	// Nobody else measures while the pool is another one.
	let _lock = MachineLock::acquire(&mut Silent)?;
	let Some(_reserved) = Reserved::pages(100) else {
		eprintln!("skipped: no huge pages can be reserved here (not root, or memory is too scattered)");
		return Ok(());
	};
	for command in [
		"creation --sizes 8M --quick",
		"fork --sizes 8M --rounds 1 --concurrent 2",
		"fault --size 8M --quick",
		"access-mix --size 8M --quick",
		"cow-model --quick",
	] {
		let outcome = run(command, &mut Silent)?;
		check_file(&outcome)?;
		let document = &outcome.document;
		let found = document.records.iter().find(|record| record.method == "fork-hugetlb");
		let record = found.unwrap_or_else(|| panic!("{:?}", document.missing));
		let share = match record.observed.get("facts") {
			Some(facts) => &facts["huge_fraction"],
			None => &record.observed["mapped_huge_fraction"],
		};
		assert_eq!(share.as_f64(), Some(1.0), "{record:?}");
		assert!(outcome.table.contains("fork-hugetlb"), "{}", outcome.table);
	}
	// One page doesn't fit into the first, and the pool has not enough for the second.
	for (size, cell, why) in
		[("1M", "fork-hugetlb 1 MB", "no multiple"), ("256M", "fork-hugetlb 256 MB", "vm.nr_hugepages=")]
	{
		let missing = run(&format!("creation --sizes {size} --quick"), &mut StopAfter(7))?.document.missing;
		assert!(missing.iter().any(|left| left.cell == cell && left.reason.contains(why)), "{missing:?}");
	}
	Ok(())
}

/// A clone that doesn't live, or a parent whose memory changed, is an error of the run.
fn clones_live_at_once_and_their_memory_is_counted() -> Result<(), Failed> {
	let outcome = run("clones --count 12 --others 3 --size 8M --pages 4 --rounds 2", &mut Silent)?;
	check_file(&outcome)?;
	for method in ["fork-4k", "seal"] {
		for measure in ["alive", "forks", "memory_each"] {
			let found = outcome.document.find("clones", method, json!({ "measure": measure }));
			let found = found.ok_or(format!("no {measure} of {method}"))?;
			assert_eq!(found.n, 2, "{method} {measure}");
		}
	}
	Ok(())
}

/// A page that isn't rolled back is an error of the run.
fn regions_and_a_process_go_back() -> Result<(), Failed> {
	let outcome = run("rollback --size 8M --quick", &mut Silent)?;
	check_file(&outcome)?;
	for method in ["region-4k", "process"] {
		for pages in [1, 10, 100, 1000] {
			let wanted = json!({ "measure": "rollback", "pages_written": pages });
			let found = outcome.document.find("rollback", method, wanted);
			assert!(found.is_some_and(|found| found.min > 0.0), "{method} {pages}");
		}
	}
	Ok(())
}

fn main() -> ExitCode {
	here::main(|| {
		here::trials![
			clones_live_at_once_and_their_memory_is_counted,
			regions_and_a_process_go_back,
			pages_of_the_hosts_pool_are_measured_where_there_are_some,
			first_writes_are_measured_for_every_method,
			walks_are_measured_for_every_mix,
			ready_runs_change_some_of_their_memory,
			a_command_that_stops_itself_sets_its_moments,
			what_can_not_be_looked_at_is_an_error_in_one_line,
			the_papers_grid_is_measured_and_fitted,
			every_way_is_measured_and_its_phases_add_up,
			untouched_memory_has_no_page_tables,
		]
	})
}
