//! AFL++'s persistent loop on a snapshot: `libflashfork_afl.a`. docs/FUZZING.md says how it works.

mod afl;
mod descriptors;
mod in_common;

use flashfork::{Reason, SnapshotError, SnapshotOptions};
use libc::{c_int, c_uint};
use std::sync::{
	OnceLock,
	atomic::{AtomicU32, AtomicU64, Ordering::Relaxed},
};

use descriptors::Descriptors;

/// The round that runs, from 1; 0 before the first, and where rounds don't go back.
static ROUND: AtomicU64 = AtomicU64::new(0);
/// How many there may be.
static LIMIT: AtomicU64 = AtomicU64::new(0);
/// The process that they are of: a child that a round has forked ends as it likes.
static PROCESS: AtomicU32 = AtomicU32::new(0);
/// Nobody could put them back, and a fork server's processes don't even have them.
const OTHER_THREADS: &str = "refused: the target has other threads before its first round (or its memory is another \
	process's, too); start them in the round, or not at all";
static DESCRIPTORS: OnceLock<Descriptors> = OnceLock::new();

/// What `__AFL_LOOP(rounds)` is: returns 1 before each round, always from its first call, and 0 once there were so
/// many.
#[unsafe(no_mangle)]
pub extern "C" fn flashfork_afl_loop(rounds: c_uint) -> c_int {
	match ROUND.load(Relaxed) {
		0 if DESCRIPTORS.get().is_none() => begin(rounds),
		// By hand there is one round.
		0 => afl::next(1),
		_ => {
			end_round();
			// That was the last round: AFL's loop is told so, too.
			ROUND.store(0, Relaxed);
			afl::next(1)
		}
	}
}

/// The same for a program linked with `-Wl,--wrap=__afl_persistent_loop`: one with its loop from AFL's driver of
/// `LLVMFuzzerTestOneInput`.
#[unsafe(no_mangle)]
pub extern "C" fn __wrap___afl_persistent_loop(rounds: c_uint) -> c_int {
	flashfork_afl_loop(rounds)
}

/// Takes the snapshot; returns again for each later round.
fn begin(rounds: c_uint) -> c_int {
	let persistent = afl::is_persistent();
	// AFL's loop counts what is taken back with everything else: of two rounds the first is never over, until one is
	// not taken back.
	let more = afl::next(if persistent && rounds > 1 { 2 } else { 1 });
	let alike = !persistent || in_common::begin_alike();
	let descriptors = DESCRIPTORS.get_or_init(Descriptors::open_now);
	if persistent && rounds < 2 {
		return more;
	}
	LIMIT.store(rounds.into(), Relaxed);
	PROCESS.store(std::process::id(), Relaxed);
	if persistent && std::env::var_os("AFL_CRASH_EXITCODE").is_none() {
		// SAFETY: a function that lives as long as the program.
		unsafe { libc::atexit(end_round) };
	}
	let offsets = descriptors.offsets();
	let options = SnapshotOptions { descriptors: &offsets, close_new: true, ..Default::default() };
	let taken = match flashfork::snapshot(&options) {
		Ok(0) if in_common::has_lost_threads() => Err(OTHER_THREADS.to_owned()),
		Ok(0) if !alike => {
			Err("what is open can't be noted: more than 4,096 descriptors, or memory is short".to_owned())
		}
		Err(SnapshotError::Refused(Reason::Threads)) => Err(OTHER_THREADS.to_owned()),
		taken => taken.map_err(|error| error.to_string()),
	};
	match taken {
		Err(error) if persistent => {
			say("can't let rounds start from the same state", &error);
			// AFL shows a crash of the first input, and stops; fuzzing on would mean something else than was asked for.
			std::process::abort();
		}
		// By hand, which is how a crash is looked into: the input runs all the same.
		Err(error) => {
			say("under AFL++ rounds can't start from the same state", &error);
			more
		}
		Ok(0) if persistent => {
			ROUND.store(1, Relaxed);
			more
		}
		Ok(0) => {
			let _ = flashfork::discard_snapshot();
			more
		}
		Ok(round) => {
			ROUND.store(round, Relaxed);
			// Stops until AFL has the next input.
			afl::next(1)
		}
	}
}

/// Ends a round by the way back to its beginning; returns after the last one. Also called by `exit`.
extern "C" fn end_round() {
	let round = ROUND.load(Relaxed);
	if round == 0 || round >= LIMIT.load(Relaxed) || std::process::id() != PROCESS.load(Relaxed) {
		return;
	}
	if let Some(error) = go_back(round + 1) {
		say("can't go back; AFL starts the program anew for the next input", &error);
		// Always right: the next round runs in its own process. Its status is that of an input without a crash. SAFETY:
		// ends the process, with no handlers, of which the target's may be waiting for its threads.
		unsafe { libc::_exit(0) };
	}
}

/// Returns why it was refused.
fn go_back(round: u64) -> Option<String> {
	if let Some(closed) = DESCRIPTORS.get().and_then(Descriptors::put_flags_back) {
		return Some(format!("descriptor {closed}, which was open before the loop, is closed or is another file now"));
	}
	// SAFETY: descriptors are what they were; children, timers and shared memory are the harness's business, as in
	// AFL's own loop.
	let error: SnapshotError = unsafe { flashfork::restore(round) };
	Some(error.to_string())
}

fn say(what: &str, why: &dyn std::fmt::Display) {
	eprintln!("flashfork: {what}: {why}");
}
