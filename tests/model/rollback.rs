//! Steps between a snapshot and its restores. A process prepares memory, takes a snapshot, and then takes turns, each
//! of other steps, with a restore between two. The reference takes the same steps to prepare and one turn, for each
//! turn its own process; so whatever a turn leaves behind is a difference. One process drops what was written, another
//! copies it back.

use crate::{
	journal::Journal,
	rng::Rng,
	world::{World, check::Depth},
};
use flashfork::{SnapshotOptions, restore, snapshot};
use flashfork_core::snapshot::{Way, go_back_by};
use flashfork_tests::{Result, route::Route};

pub const TURNS: u64 = 4;

/// Prepares, and takes the turns; plainly only the one named. `copies`: what was written is copied back.
pub fn run(world: &mut World, seed: u64, steps: usize, turn: u64, copies: bool) -> Result {
	world.prepares = true;
	world.take(steps / 2)?;
	world.reap_all()?;
	world.prepares = false;
	// What is only a hint may be lost.
	world.table.forget_huge_advice();
	let each = steps / TURNS as usize;
	if world.route == Route::Plain {
		return take_turn(world, seed, each, turn);
	}
	go_back_by(Some(if copies { Way::Copy } else { Way::Drop }));
	// The table and the list of blocks are in shared memory, which doesn't go back.
	let (table, blocks) = (world.table.copy(), world.blocks.for_child());
	let options = SnapshotOptions { close_new: true, ..SnapshotOptions::default() };
	let turn = snapshot(&options).map_err(|e| format!("no snapshot: {e}"))?;
	if turn > 0 {
		world.table.become_again(&table);
		world.blocks.become_again(&blocks);
		world
			.check_maps()
			.and_then(|_| world.check_all(Depth::All))
			.and_then(|()| world.check_blocks())
			.map_err(|e| format!("after the restore for turn {turn}: {e}"))?;
	}
	take_turn(world, seed, each, turn)?;
	if turn + 1 == TURNS {
		return Ok(());
	}
	// SAFETY: outside memory there are the journals, which nobody writes to again, and children, which have ended.
	Err(format!("turn {} can't begin: {}", turn + 1, unsafe { restore(turn + 1) }))
}

fn take_turn(world: &mut World, seed: u64, steps: usize, turn: u64) -> Result {
	world.name = format!("turn-{turn}");
	// The one before must stay open: what memory says of its descriptor is true again after a restore.
	let journal = Journal::open(world.journal.places(), &world.name)?;
	std::mem::forget(std::mem::replace(&mut world.journal, journal));
	let seed = Rng::new(seed.wrapping_add(turn << 32)).next();
	world.rng = Rng::new(seed);
	world.look = Rng::new(!seed);
	world.number_tags(turn + 1);
	world.forks = 0;
	world.walk(steps)
}
