use super::*;

const SHORT: u64 = 1_000_000;
const LONG: u64 = 30_000_000;
/// 1 GB of refills.
const ALL: Dropped = Dropped { bytes: 1 << 30, ns: 6_000_000, next: 0 };
const NONE: Dropped = Dropped { bytes: 0, ns: 1_000_000, next: 0 };

/// Forks until it is due.
fn forks(refills: &Refills, most: u64, ns: impl Fn(u64) -> u64) -> u64 {
	(0..most)
		.find(|fork| {
			refills.are_due().is_some() || {
				refills.note(ns(*fork));
				false
			}
		})
		.unwrap_or(most)
}

#[test]
fn what_was_read_once_is_dropped_once() {
	let refills = Refills::new();
	assert_eq!(forks(&refills, 100, |_| SEALED_FORK_NS), 100);
	assert_eq!(forks(&refills, 100, |_| LONG), 1);
	refills.dropped(&ALL);
	assert_eq!(forks(&refills, 10_000, |_| SHORT), 10_000, "what is left are written pages");
}

#[test]
fn what_is_read_again_before_each_fork_is_dropped_as_long_as_that_pays() {
	let refills = Refills::new();
	for _ in 0..100 {
		assert!(forks(&refills, 100, |fork| if fork == 0 { SHORT } else { LONG }) <= 2);
		refills.dropped(&ALL);
	}
	let (refills, mut dropped) = (Refills::new(), 0);
	// All of it costs 35 ms, and a fork with none of it gains 20.
	for _ in 0..1_000 {
		if refills.are_due().is_some() {
			refills.dropped(&ALL);
			refills.note(SHORT);
			dropped += 1;
		}
		refills.note(SHORT + 10_000_000);
	}
	assert!((2..12).contains(&dropped), "{dropped}");
}

#[test]
fn forks_that_are_long_for_another_reason_are_looked_into_ever_less_often() {
	let (refills, mut looks) = (Refills::new(), 0);
	for fork in 0..10_000 {
		if refills.are_due().is_some() {
			refills.dropped(&NONE);
			looks += 1;
		}
		// On a busy machine.
		refills.note(SHORT + fork * 7_919 % 500_000);
	}
	assert!((1..16).contains(&looks), "{looks}");
}

#[test]
fn what_time_has_cut_short_goes_on_at_the_next_fork() {
	let refills = Refills::new();
	assert_eq!(forks(&refills, 100, |_| LONG), 1);
	refills.dropped(&Dropped { next: PAGE, ..ALL });
	assert_eq!(refills.are_due(), Some(PAGE as u64));
	refills.dropped(&ALL);
	assert_eq!(refills.price.get(), 2 * (ALL.ns + ALL.bytes / PAGE as u64 * READ_NS));
	assert_eq!(refills.are_due(), None);
	assert_eq!(forks(&refills, 100, |fork| if fork == 0 { SHORT } else { LONG }), 3);
	refills.put_off();
	assert_eq!(refills.are_due(), None);
}
