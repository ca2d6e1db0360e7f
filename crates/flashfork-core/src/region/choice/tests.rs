use super::*;

/// Runs so many cycles, whose cost is a function of the way and of the number of the cycle. What they cost, and how
/// many were copied.
fn run(choice: &mut Choice, cycles: u64, cost: impl Fn(Way, u64) -> u64) -> (u64, u64) {
	let (mut spent, mut copied) = (0, 0);
	for i in 0..cycles {
		let ns = cost(choice.way(), i);
		spent += ns;
		copied += u64::from(choice.way() == Way::Copy);
		let timed = choice.times().then_some(ns);
		choice.cycle(timed);
	}
	(spent, copied)
}

fn constant(dropping: u64, copying: u64) -> impl Fn(Way, u64) -> u64 {
	move |way, _| if way == Way::Drop { dropping } else { copying }
}

#[test]
fn a_run_costs_at_most_a_fifth_more_than_the_better_way() {
	for cycles in [500, 1000, 10_000, 100_000] {
		for (dropping, copying) in [(165, 25), (165, 60), (146, 303), (150, 2000), (100, 99), (99, 100), (10, 10)] {
			let (spent, copied) = run(&mut Choice::new(), cycles, constant(dropping * 1000, copying * 1000));
			let best = cycles * dropping.min(copying) * 1000;
			// Before copying is looked at dropping is, for 24 cycles: so much dearer may that be, once.
			let first = u64::from(LOOK) * (dropping * 1000).saturating_sub(copying * 1000);
			assert!(spent <= best * 6 / 5 + first, "{cycles} cycles, {dropping} and {copying}: {spent}");
			assert!(dropping * 10 < copying * 11 || copied > cycles / 2);
		}
	}
}

#[test]
fn a_slow_cycle_now_and_then_decides_nothing() {
	let late = |way, i: u64| constant(165_000, 25_000)(way, i) + if i.is_multiple_of(5) { 5_000_000 } else { 0 };
	let mut choice = Choice::new();
	let (_, copied) = run(&mut choice, 2000, late);
	assert!(copied > 1500, "{copied}");
}

#[test]
fn what_changes_is_noticed() {
	let mut choice = Choice::new();
	let (_, copied) = run(&mut choice, 1000, constant(165_000, 25_000));
	assert!(copied > 900, "{copied}");
	let (spent, copied) = run(&mut choice, 1000, constant(150_000, 400_000));
	assert!(copied < 100 && spent < 1000 * 180_000, "{copied}, {spent}");
	let (_, copied) = run(&mut choice, 10_000, constant(165_000, 25_000));
	assert!(copied > 8000, "{copied}");
}

#[test]
fn pages_may_come_together_slowly() {
	// The first fifty cycles of copying are as dear as dropping.
	let copied = core::cell::Cell::new(0);
	let cost = |way, _| match way {
		Way::Drop => 150_000,
		Way::Copy => {
			copied.set(copied.get() + 1);
			if copied.get() < 50 { 155_000 } else { 40_000 }
		}
	};
	run(&mut Choice::new(), 1000, cost);
	assert!(copied.get() > 900, "{}", copied.get());
}

#[test]
fn after_a_fork_everything_is_dropped_for_a_while() {
	let mut choice = Choice::new();
	run(&mut choice, 100, constant(165_000, 25_000));
	assert_eq!(choice.way(), Way::Copy);
	choice.drop_for_now();
	let (_, copied) = run(&mut choice, u64::from(STAY), constant(165_000, 25_000));
	assert_eq!((copied, choice.way()), (0, Way::Copy), "and then looked at anew");
}
