//! Fault injection: every system call of a seal, a reseal, an unseal, a drop of what was read, a snapshot, a restore, a
//! region's rollbacks and the calls the shim takes over fails in every way that it can, one after another; with a hole
//! also several in a row; and with memory that is short from one of them on. After each the victim compares all its
//! memory, forks, and looks at its descriptors, limits, signal mask and address space; and the next seal must work.
//!
//! A quick run lets every call that changes something fail in one of its ways (in another by the shim), and some of
//! each kind that only look; `FLASHFORK_TEST_ALL=1` every call in every way.

mod fault;
mod inject;

use fault::{Fault, faults, only_looks, target};
use inject::{Case, run};
use std::{path::Path, sync::Mutex};

/// By both ways.
const SCENES: &[&str] = &[
	"seal",
	"reseal",
	"fold",
	"unseal",
	"drop-refills",
	"dontneed",
	"free",
	"wipeonfork",
	"grow",
	"grow-and-move",
	"keep",
	"lock",
	"libraries-discard",
];

/// What the shim has no call for, or what is the same there.
const LINKED_SCENES: &[&str] = &[
	"unseal-unreadable",
	"seal-small",
	"seal-large",
	"dense",
	"libraries",
	"libraries-unseal",
	"snapshot",
	"restore",
	"restore-notes",
	"restore-copies",
	"rollback",
];

/// System calls after a hole that fail too: those that fill it again.
const AFTER_A_HOLE: usize = 6;

/// Calls of each kind that only look which fail in a quick run: there are hundreds of them. Likewise those of each kind
/// made for libraries, or where much is sealed.
const LOOKS: usize = 8;

/// The plans for one case, from the calls of a run in which nothing failed.
fn plans(case: &Case, calls: &[libc::user_regs_struct]) -> Vec<Vec<(usize, Fault)>> {
	let mut out = Vec::new();
	for (k, call) in calls.iter().enumerate() {
		out.extend(ways(case, calls, k).into_iter().map(|fault| vec![(k, fault)]));
		if target(call).is_some() && (thorough() || !is_repeated(case, call) || is_chosen(calls, k)) {
			let next = k + 1..=k + AFTER_A_HOLE;
			// Which of them fails in a quick run: another one after each.
			let chosen = k + 1 + k % AFTER_A_HOLE;
			for next in next.filter(|next| thorough() || *next == chosen) {
				out.push(vec![(k, Fault::Hole), (next, Fault::Errno(libc::ENOMEM))]);
			}
			// Several in a row; the calls between the attempts go well.
			out.push((k..k + AFTER_A_HOLE).map(|i| (i, Fault::Hole)).collect());
		}
		// Memory is short from here on.
		if k.is_multiple_of(stride()) {
			out.push((k..k + UNTIL_THE_END).map(|i| (i, Fault::Errno(libc::ENOMEM))).collect());
		}
	}
	out
}

fn ways(case: &Case, calls: &[libc::user_regs_struct], k: usize) -> Vec<Fault> {
	let all = faults(&calls[k]);
	if thorough() || all.is_empty() {
		return all;
	}
	let (before, _) = place(calls, k);
	let shim = usize::from(case.shim.is_some());
	if is_repeated(case, &calls[k]) && !is_chosen(calls, k) {
		return Vec::new();
	}
	vec![all[(before + shim) % all.len()]]
}

/// How many calls of its kind come before one, and how many there are.
fn place(calls: &[libc::user_regs_struct], k: usize) -> (usize, usize) {
	let same = |call: &&libc::user_regs_struct| call.orig_rax == calls[k].orig_rax;
	(calls[..k].iter().filter(same).count(), calls.iter().filter(same).count())
}

/// Whether a quick run lets some of a kind fail only: what only looks, and what is done for each library, or block.
fn is_repeated(case: &Case, call: &libc::user_regs_struct) -> bool {
	only_looks(call) || case.scene.starts_with("libraries") || case.scene == "seal-large"
}

/// Whether it is one of those, evenly over the scene.
fn is_chosen(calls: &[libc::user_regs_struct], k: usize) -> bool {
	let (before, total) = place(calls, k);
	before * LOOKS / total < (before + 1) * LOOKS / total
}

/// More calls than any scene makes, and fewer than the attempts of a step that must not fail.
const UNTIL_THE_END: usize = 1000;

/// Places of a scene at which memory becomes short: all, or some in a quick run.
fn stride() -> usize {
	if thorough() { 1 } else { 20 }
}

fn thorough() -> bool {
	std::env::var_os("FLASHFORK_TEST_ALL").is_some()
}

/// Runs all plans of a case; returns how many, and what went wrong.
fn inject_all(case: &Case) -> (usize, Vec<String>) {
	let calls = match run(case, &[], None, false) {
		Ok(calls) => calls,
		Err(e) => return (0, vec![format!("{}: without any fault: {e}", case.scene)]),
	};
	let mut wrong = Vec::new();
	let plans = plans(case, &calls);
	for plan in &plans {
		let number = calls[plan[0].0].orig_rax;
		// Scratch memory may stay where it can't be given back, and in no other case.
		let leak_allowed = plan.len() > 1 || number == libc::SYS_munmap as u64;
		if let Err(e) = run(case, plan, Some(number), leak_allowed) {
			let way = if case.shim.is_some() { "shim" } else { "linked" };
			let call = syscalls::Sysno::new(number as usize).map_or("?", |n| n.name());
			let (first, last) = (plan[0], plan[plan.len() - 1]);
			let many = if plan.len() > 1 { format!(" to {last:?}") } else { String::new() };
			wrong.push(format!(
				"{} by way of {way}, {call} of {} calls: {first:?}{many}: {e}",
				case.scene,
				calls.len()
			));
		}
	}
	(plans.len(), wrong)
}

fn all_scenes(scenes: impl Iterator<Item = &'static &'static str> + Send, shim: Option<&Path>) {
	let victim = Path::new(env!("CARGO_BIN_EXE_victim"));
	let scenes = Mutex::new(scenes);
	let results = Mutex::new((0, Vec::new()));
	// Each scene by one thread: a tracer is a thread.
	std::thread::scope(|scope| {
		for _ in 0..std::thread::available_parallelism().map_or(1, usize::from) {
			scope.spawn(|| {
				while let Some(scene) = scenes.lock().unwrap().next() {
					let (count, wrong) = inject_all(&Case { victim, shim, scene });
					println!("{scene}: {count} injections");
					let mut all = results.lock().unwrap();
					all.0 += count;
					all.1.extend(wrong);
				}
			});
		}
	});
	let (count, wrong) = results.into_inner().unwrap();
	println!("{count} injections in all");
	assert!(wrong.is_empty(), "{} of {count} went wrong:\n{}", wrong.len(), wrong.join("\n"));
	assert!(count > 500, "only {count} injections were made");
}

#[test]
fn a_program_that_calls_the_core_survives_every_failing_system_call() {
	all_scenes(SCENES.iter().chain(LINKED_SCENES), None);
}

#[test]
fn an_unmodified_program_survives_every_failing_system_call() {
	all_scenes(SCENES.iter(), Some(flashfork_tests::shim::path()));
}
