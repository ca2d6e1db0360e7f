//! Threads that work on memory of their own while the first one seals.
//!
//! Each has an arena, blocks, random numbers and its own journal, so that what it does and what it gets is decided by
//! the seed alone. They work in rounds. In a round the first thread seals and unseals until all others are done;
//! between rounds it is alone, takes steps of its own, and forks children that compare the memory of all.

use crate::{
	journal::{Expect, Journal, Places},
	seeds::Seed,
	steps::OF_OTHER_THREADS,
	template::Template,
	worker::Job,
	world::{World, check::Depth, space::Space},
};
use flashfork_tests::Result;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};

/// Threads beside the first one.
const THREADS: usize = 3;
/// Steps each of them takes in a round.
const ROUND: usize = 50;
/// Steps the first one takes after a round.
const BETWEEN: usize = 8;

/// The worlds of the threads beside the first.
pub fn prepare(first: &World, job: &Job, places: &Places) -> Result<Vec<World>> {
	let Seed { seed, route, mode, .. } = job.seed;
	(1..=THREADS)
		.map(|number| {
			let template = Template::new().map_err(|e| format!("no file to map: {e}"))?;
			let journal = Journal::open(places, &format!("thread-{number}"))?;
			let own_seed = seed.wrapping_mul(THREADS as u64 + 1).wrapping_add(number as u64);
			let mut world = World::new(own_seed, route, mode, journal, Space::of_thread(number), template);
			world.name = format!("thread-{number}");
			world.blocks = first.blocks.of_thread();
			world.steps = OF_OTHER_THREADS;
			world.number_tags(number as u64);
			Ok(world)
		})
		.collect()
}

/// Runs all of them, each for this many steps.
pub fn run(first: &mut World, others: &mut [World], steps: usize) -> Result {
	for round in 0..steps.div_ceil(ROUND) {
		let count = ROUND.min(steps - round * ROUND);
		let working = AtomicUsize::new(others.len());
		std::thread::scope(|scope| {
			let threads: Vec<_> = others
				.iter_mut()
				.map(|world| {
					let working = &working;
					scope.spawn(move || {
						let result = world.take(count).map_err(|e| format!("{}: {e}", world.name));
						working.fetch_sub(1, SeqCst);
						result
					})
				})
				.collect();
			let sealed = seal_meanwhile(first, &working);
			let joined = threads.into_iter().map(|t| t.join().unwrap_or_else(|_| Err("a thread panicked".into())));
			joined.fold(sealed, Result::and)
		})?;
		for world in &mut *others {
			world.check_maps()?;
			first.most_sealed = first.most_sealed.max(world.most_sealed);
		}
		first.take(BETWEEN)?;
		compare_in_child(first, others)?;
	}
	others.iter_mut().try_for_each(World::settle)?;
	first.settle()
}

/// Seals and unseals while others work. How often depends on time, and no byte does.
fn seal_meanwhile(first: &mut World, working: &AtomicUsize) -> Result {
	for turn in 1.. {
		// A seal may be refused while a thread can't be stopped.
		let _ = first.route.seal(turn % 3 == 0);
		if turn % 5 == 0 {
			first.route.unseal(None)?;
		}
		if working.load(SeqCst) == 0 {
			break;
		}
		std::thread::yield_now();
	}
	Ok(())
}

/// A child has the memory of all threads.
fn compare_in_child(first: &mut World, others: &mut [World]) -> Result {
	first.journal.note("fork a child that compares all")?;
	// SAFETY: the other threads have ended; the child compares and ends.
	let pid = unsafe { libc::fork() };
	if pid < 0 {
		return Err(format!("fork: {}", std::io::Error::last_os_error()));
	}
	if pid == 0 {
		let result = others.iter_mut().try_for_each(|world| {
			world.table = world.table.for_child();
			world.depth += 1;
			world.check_all(Depth::All)?;
			world.check_blocks()
		});
		first.end(result);
	}
	first
		.journal
		.call("wait for it", Expect::Exactly(Ok(0)), || {
			let mut status = 0;
			// SAFETY: waits for our own child.
			unsafe { libc::waitpid(pid, &raw mut status, 0) };
			Ok(status as u64)
		})
		.map(drop)
}
