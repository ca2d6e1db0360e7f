use super::*;

#[test]
fn it_seals_anew_for_twice_as_much_each_time() {
	let a = Always::new();
	assert_eq!(a.next(), Act::Seal);
	let outcome = Outcome { elapsed_ns: 1_000_000, sealed: 1, ..Outcome::default() };
	for loss in [2_000_000, 4_000_000, 8_000_000] {
		a.sealed(Some(&outcome));
		a.note(true, 20_000);
		assert_eq!(a.lost.get(), 0, "the best sealed fork is what others are measured against");
		a.note(true, loss + 19_000);
		assert_eq!(a.next(), Act::Fork);
		a.note(true, 21_000);
		assert_eq!(a.next(), Act::Seal, "{loss}");
	}
	a.forget();
	assert_eq!(a.next(), Act::Fork);
}

#[test]
fn it_looks_sooner_for_what_is_written_all_over() {
	let a = Always::new();
	let sealed = Outcome { elapsed_ns: 1_000_000_000, sealed: 1, ..Outcome::default() };
	let swept = Outcome { elapsed_ns: 30_000_000, ..Outcome::default() };
	a.sealed(Some(&sealed));
	a.note(true, 20_000);
	for loss in [20_000_000, 60_000_000, 120_000_000] {
		a.note(true, loss + 19_000);
		assert_eq!(a.next(), Act::Fork);
		a.note(true, 21_000);
		assert_eq!(a.next(), Act::Dense(loss), "as long as was lost");
		a.swept(Some(&swept));
	}
	assert_eq!(a.lost.get(), 200_000_000, "a seal is due when it would be otherwise");
	a.note(true, 400_000_000);
	a.swept(Some(&Outcome { late: true, ..swept }));
	a.note(true, 240_020_000);
	assert!(matches!(a.next(), Act::Dense(_)), "no later: there was more");
	a.note(true, 1_900_000_000);
	assert_eq!(a.next(), Act::Seal);
	a.sealed(Some(&sealed));
	assert_eq!(a.next(), Act::Fork);
}
