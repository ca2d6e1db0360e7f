//! Objects of System V (`svipc(7)`) that are the program's own, and what the kernel would undo when it ends: clones
//! would have them together, and the template's end would change them.
//!
//! The kernel doesn't tell whose a semaphore or a queue is. So what the program asks for through libc is noted.

use super::is_template;
use crate::next::{Next, nothing_found};
use core::{
	ffi::{c_int, c_long, c_short, c_ushort, c_void},
	sync::atomic::{AtomicU32, AtomicU64, Ordering::SeqCst},
};
use flashfork_core::forkall::{Fit, Unfit, What, call};
use syscalls::Sysno;

type Key = c_int;

/// `IPC_PRIVATE`, `IPC_STAT` and `SEM_UNDO`.
const PRIVATE: Key = 0;
const STAT: usize = 2;
const UNDO: c_short = 0x1000;

const MOST: usize = 64;

/// Each a [`Kind`] and an identifier; of more than these nobody knows whether they are there.
static ALL: [AtomicU64; MOST] = [const { AtomicU64::new(0) }; MOST];
static COUNT: AtomicU32 = AtomicU32::new(0);

#[derive(Clone, Copy)]
enum Kind {
	Semaphores = 1,
	Queue,
	Memory,
}

fn note(kind: Kind, id: c_int) {
	let noted = (kind as u64) << 32 | u64::from(id as u32);
	if id < 0 || !is_template() || ALL.iter().any(|place| place.load(SeqCst) == noted) {
		return;
	}
	if let Some(place) = ALL.get(COUNT.fetch_add(1, SeqCst) as usize) {
		place.store(noted, SeqCst);
	}
}

/// In the maker: refuses a program with one.
pub fn check() -> Fit {
	if COUNT.load(SeqCst) as usize > MOST {
		return Err(Unfit::named(What::SystemV, 0, b"more than 64"));
	}
	for noted in ALL.iter().map(|place| place.load(SeqCst)).filter(|noted| *noted != 0) {
		let (kind, id) = (noted >> 32, noted as u32 as usize);
		let mut about = [0u64; 32];
		let about = about.as_mut_ptr() as usize;
		// SAFETY: the kernel writes its structure, which has at most 120 bytes, to a local.
		let told = unsafe {
			match kind {
				1 => call(Sysno::semctl, [id, 0, STAT, about]),
				2 => call(Sysno::msgctl, [id, STAT, about]),
				_ => call(Sysno::shmctl, [id, STAT, about]),
			}
		};
		// Who may not look has it all the same; one that was removed is nobody's.
		if !matches!(told, Err(flashfork_core::Errno::EINVAL | flashfork_core::Errno::EIDRM)) {
			return Err(Unfit::new(What::SystemV, id as i32));
		}
	}
	Ok(())
}

macro_rules! passed_on {
	($name:ident($($argument:ident: $type:ty),*) -> $result:ty, $symbol:literal, $answer:pat => $note:block) => {
		/// As libc's function of this name, and noted.
		///
		/// # Safety
		/// As libc's.
		#[unsafe(no_mangle)]
		pub unsafe extern "C" fn $name($($argument: $type),*) -> $result {
			static NEXT: Next = Next::new($symbol);
			let found = NEXT.find();
			if found.is_null() {
				return nothing_found() as $result;
			}
			// SAFETY: libc's function of this name has this type; the program's own call.
			let answer = unsafe {
				core::mem::transmute::<*mut c_void, unsafe extern "C" fn($($type),*) -> $result>(found)($($argument),*)
			};
			let $answer = answer;
			$note
			answer
		}
	};
}

passed_on!(semget(key: Key, count: c_int, flags: c_int) -> c_int, c"semget", id => {
	if key == PRIVATE {
		note(Kind::Semaphores, id);
	}
});

passed_on!(msgget(key: Key, flags: c_int) -> c_int, c"msgget", id => {
	if key == PRIVATE {
		note(Kind::Queue, id);
	}
});

passed_on!(shmget(key: Key, size: usize, flags: c_int) -> c_int, c"shmget", id => {
	if key == PRIVATE {
		note(Kind::Memory, id);
	}
});

/// `struct sembuf`.
#[repr(C)]
pub struct Operation {
	number: c_ushort,
	operation: c_short,
	flags: c_short,
}

unsafe fn is_undone(operations: *const Operation, count: usize) -> bool {
	// SAFETY: the kernel has just read as many.
	(0..count).any(|i| unsafe { (*operations.add(i)).flags } & UNDO != 0)
}

passed_on!(semop(id: c_int, operations: *mut Operation, count: usize) -> c_int, c"semop", done => {
	// SAFETY: the call has not failed.
	if done == 0 && unsafe { is_undone(operations, count) } {
		note(Kind::Semaphores, id);
	}
});

passed_on!(
	semtimedop(id: c_int, operations: *mut Operation, count: usize, limit: *const [c_long; 2]) -> c_int,
	c"semtimedop", done => {
		// SAFETY: as above.
		if done == 0 && unsafe { is_undone(operations, count) } {
			note(Kind::Semaphores, id);
		}
	}
);
