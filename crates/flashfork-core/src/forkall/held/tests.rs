use super::*;
use std::mem::MaybeUninit;

#[test]
fn mutexes_that_only_their_owner_unlocks_are_found() {
	let tid = sys::gettid();
	// SAFETY: plain calls; a mutex of zeros is initialised before it is used, and stays where it is.
	let held = |kind: i32, inherits: bool| unsafe {
		let mut how = MaybeUninit::<libc::pthread_mutexattr_t>::uninit();
		libc::pthread_mutexattr_init(how.as_mut_ptr());
		libc::pthread_mutexattr_settype(how.as_mut_ptr(), kind);
		if inherits {
			libc::pthread_mutexattr_setprotocol(how.as_mut_ptr(), libc::PTHREAD_PRIO_INHERIT);
		}
		let mutex: &mut libc::pthread_mutex_t = Box::leak(Box::new(std::mem::zeroed()));
		libc::pthread_mutex_init(mutex, how.as_ptr());
		let at = &raw mut *mutex as usize;
		let before = how_held(at, tid);
		libc::pthread_mutex_lock(mutex);
		let page = Range::new(at & !7, at + size_of::<libc::pthread_mutex_t>());
		let found = has_one(page, |other| other == tid, &mut [0; 64], |at, tid| how_held(at, tid) == Some(1));
		libc::pthread_mutex_unlock(mutex);
		(before, found, how_held(at, tid))
	};
	let (normal, recursive, checking) =
		(libc::PTHREAD_MUTEX_NORMAL, libc::PTHREAD_MUTEX_RECURSIVE, libc::PTHREAD_MUTEX_ERRORCHECK);
	assert_eq!(held(normal, false), (None, false, None), "anybody unlocks it");
	for (kind, inherits) in [(recursive, false), (checking, false), (normal, true), (recursive, true)] {
		assert_eq!(held(kind, inherits), (None, true, None), "{kind} {inherits}");
	}
}

/// In a build for release numbers in the shim's data looked like a mutex, and every program was refused.
#[test]
fn what_the_engine_keeps_is_not_searched() {
	let (data, code) = (&raw const crate::state::STATE as usize, check as *const () as usize);
	assert!(image().contains(data) && image().contains(code), "{:?}", image());
	let local = 0;
	assert!(!image().contains(&raw const local as usize));
}

#[test]
fn numbers_in_a_row_are_no_mutex() {
	let (tid, recursive) = (sys::gettid(), libc::PTHREAD_MUTEX_RECURSIVE);
	let mut words = [1, 1, tid, 1, recursive, 0, 0, 0, 0, 0];
	assert_eq!(how_held(words.as_ptr() as usize, tid), Some(1));
	for i in [5, 8] {
		words[i] = 1;
		assert_eq!(how_held(words.as_ptr() as usize, tid), None, "what is not robust is in no list, nor spins");
		words[i] = 0;
	}
}

/// Tables of Java's compiler had 18 users, and their programs were refused by chance.
#[test]
fn a_mutex_that_others_use_is_one_if_its_address_is_in_their_hands() {
	let (mut waited, at) = (Waited::NONE, 0x1000);
	assert!(waited.note(at, 3));
	let all = Range::new(at, at + 1);
	waited.look([8, at]);
	assert!(!waited.has_one_in(all), "one of two");
	waited.look([at]);
	assert!(waited.has_one_in(all) && !waited.has_one_in(Range::new(0, at)));
	assert_eq!((1..=Waited::MOST).filter(|_| waited.note(at, 2)).count(), Waited::MOST - 1);
}

#[test]
fn a_rwlock_that_is_locked_to_write_is_found() {
	let tid = sys::gettid();
	// SAFETY: plain calls; a rwlock of zeros is a new one, and stays where it is.
	unsafe {
		let lock: &mut libc::pthread_rwlock_t = Box::leak(Box::new(std::mem::zeroed()));
		let at = &raw mut *lock as usize;
		assert_eq!(is_written(at, tid), Ok(false));
		libc::pthread_rwlock_rdlock(lock);
		assert_eq!(is_written(at, tid), Ok(false), "any reader unlocks it");
		libc::pthread_rwlock_unlock(lock);
		libc::pthread_rwlock_wrlock(lock);
		assert_eq!(is_written(at, tid), Ok(true));
		libc::pthread_rwlock_unlock(lock);
		assert_eq!(is_written(at, tid), Ok(false));
	}
}
