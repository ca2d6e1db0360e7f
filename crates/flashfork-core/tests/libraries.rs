//! The data of libraries is sealed when a snapshot is taken, and is to be while there is one.

mod common;
use common::{counter, in_child, intact, maps_line, memory, patterned};
use flashfork_core::{
	Pages, Range, seal,
	snapshot::{Options, restore, snapshot},
	unseal,
};
use std::{ffi::CString, os::unix::ffi::OsStrExt, path::Path, process::Command, sync::atomic::Ordering::SeqCst};

const COUNT: usize = 20;
const LEN: usize = 16 << 10;

/// Compiles a library with data that its constructor writes.
fn compile(place: &Path) {
	let source = place.join("library.c");
	let text = "
        const void *const table[1024] = {[0 ... 1023] = &table[1]};
        unsigned long data[2048] __attribute__((aligned(4096))) = {1};
        __attribute__((constructor)) static void fill(void)
        {
            for (unsigned long i = 0; i < 2048; i++)
                *(volatile unsigned long *)&data[i] = 1;
        }";
	std::fs::write(&source, text).unwrap();
	for i in 0..COUNT {
		let mut cc = Command::new("cc");
		cc.args(["-shared", "-fPIC", "-O1", "-o"]).arg(place.join(format!("{i}.so"))).arg(&source);
		assert!(cc.status().unwrap().success());
	}
}

/// Loads them; gives their data.
fn load(place: &Path) -> Vec<&'static mut [u64]> {
	let data = |i: usize| {
		let path = CString::new(place.join(format!("{i}.so")).as_os_str().as_bytes()).unwrap();
		// SAFETY: a library made for this, with an array of that length by that name.
		unsafe {
			let handle = libc::dlopen(path.as_ptr(), libc::RTLD_NOW);
			assert!(!handle.is_null());
			let at = libc::dlsym(handle, c"data".as_ptr());
			assert!(!at.is_null());
			std::slice::from_raw_parts_mut(at.cast::<u64>(), LEN / 8)
		}
	};
	(0..COUNT).map(data).collect()
}

fn is_sealed(data: &[u64]) -> bool {
	maps_line(data.as_ptr()).contains("memfd:flashfork")
}

#[test]
fn goes_back_with_a_snapshot() {
	let place = std::env::temp_dir().join(format!("flashfork-libraries-{}", std::process::id()));
	std::fs::create_dir_all(&place).unwrap();
	compile(&place);
	for sealed in [true, false] {
		in_child(|| {
			let (all, turns) = (load(&place), counter());
			let big = patterned(4 << 20, 3);
			seal(Pages::Auto).outcome.unwrap();
			assert!(all.iter().filter(|data| is_sealed(data)).count() > COUNT / 2);
			let options = Options { seal: sealed, keep: &[], descriptors: &[], close_new: false };
			let turn = snapshot(&options).unwrap();
			assert_eq!(turn, turns.load(SeqCst));
			assert!(intact(big, 3) && all.iter().all(|data| !is_sealed(data) && data.iter().all(|word| *word == 1)));
			big.fill(turn);
			for (i, data) in all.into_iter().enumerate() {
				match (turn as usize + i) % 4 {
					0 => data.fill(turn + 2),
					1 => data[turn as usize] = 7,
					2 => memory::advise(data.as_ptr(), LEN, libc::MADV_DONTNEED),
					_ => {}
				}
			}
			match turn {
				// It leaves libraries alone while there is a snapshot.
				3 => drop(seal(Pages::Auto).outcome.unwrap()),
				4 => drop(unseal(Range::ALL).unwrap()),
				20 => return,
				_ => {}
			}
			turns.store(turn + 1, SeqCst);
			panic!("{:?}", restore(turn + 1));
		});
	}
	std::fs::remove_dir_all(place).unwrap();
}
