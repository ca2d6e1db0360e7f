use super::*;

struct Plain;

impl Process for Plain {
	fn holds_sealed(&self) -> bool {
		false
	}
	fn anonymous(&self) -> u64 {
		1 << 30
	}
	fn last_generation(&self) -> u64 {
		0
	}
	fn written(&self, _: u64) -> Option<u64> {
		Some(0)
	}
	fn discarded(&self) -> u64 {
		0
	}
	fn memfds(&self, _: u64) -> Option<Memfds> {
		None
	}
}

#[test]
fn seal_engine_and_fork_servers_seal_at_once_and_only_once() {
	let p = Policy::new();
	assert_eq!(p.next(&Plain, 0), Act::Fork, "plain until configured");
	p.set(Engine::Seal);
	assert_eq!(p.next(&Plain, 0), Act::Seal);
	p.sealed(Act::Seal, None, &Plain);
	assert_eq!(p.next(&Plain, 0), Act::Fork);
	let p = Policy::new();
	p.set(Engine::Auto);
	assert_eq!(p.next(&Plain, 0), Act::Fork);
	p.set_at_once(true);
	assert_eq!(p.next(&Plain, 0), Act::Seal);
	for never in [Engine::Fork, Engine::Odf] {
		p.set(never);
		assert_eq!(p.next(&Plain, 0), Act::Fork);
		p.note(false, u64::MAX / 8, 0);
		assert_eq!(p.next(&Plain, 0), Act::Fork);
	}
}

#[test]
fn refills_are_dropped_where_forks_may_seal_and_nowhere_else() {
	let p = Policy::new();
	p.set(Engine::Seal);
	assert_eq!(p.next(&Plain, 0), Act::Seal, "before anything else");
	p.sealed(Act::Seal, Some(&Outcome { sealed: 1, ..Outcome::default() }), &Plain);
	p.note(true, 20_000_000, 0);
	assert_eq!(p.next(&Plain, 0), Act::DropRefills(0));
	p.dropped(Some(&Dropped { next: 4096, ..Dropped::default() }));
	assert_eq!(p.next(&Plain, 0), Act::DropRefills(4096));
	p.set(Engine::Fork);
	assert_eq!(p.next(&Plain, 0), Act::Fork);
	p.set(Engine::Seal);
	p.dropped(None);
	assert_eq!(p.next(&Plain, 0), Act::Fork, "they can't be had");
	p.forget();
	assert_eq!(p.next(&Plain, 0), Act::Fork);
}

#[test]
fn forks_before_the_first_seal_are_handed_over_once() {
	let p = Policy::new();
	p.set(Engine::Seal);
	p.note(false, 5_000, 0);
	assert_eq!(p.sealed(Act::Seal, Some(&Outcome::default()), &Plain), (0, 0), "nothing was sealed");
	let outcome = Outcome { sealed: 1, ..Outcome::default() };
	assert_eq!(p.sealed(Act::Seal, Some(&outcome), &Plain), (1, 5_000));
	assert_eq!(p.sealed(Act::Seal, Some(&outcome), &Plain), (0, 0));
}

#[test]
fn faults_are_counted_for_auto_only_from_its_first_fork_on() {
	let p = Policy::new();
	assert_eq!(p.count_faults(|| unreachable!()), 0);
	p.set(Engine::Auto);
	assert_eq!([100, 130, 130].map(|now| p.count_faults(|| now)), [0, 30, 0]);
	p.forget();
	assert_eq!(p.count_faults(|| 500), 0, "a clone begins anew");
}
