//! What reads put into page tables, and what becomes of it when it is dropped.

#[macro_use]
mod common;
use common::{
	Child, in_child, intact, is_linux, maps, maps_line,
	memory::{PAGE, advise},
	pattern, patterned,
};
use flashfork_core::{Error, Pages, Range, drop_refills, never_seal::Reason, seal, unseal};

const LEN: usize = 32 << 20;
const WORDS: usize = PAGE / 8;
const MAP_FILE: u64 = 1 << 61;
const MAP_SWAPPED: u64 = 1 << 62;
const MAP_PRESENT: u64 = 1 << 63;

/// The kernel has `PAGEMAP_SCAN` (Linux 6.7), without which nothing is dropped.
fn can_be_dropped() -> bool {
	is_linux(6, 7)
}

/// How many pages of these words are the memfd's, and how many the process's own.
fn pages(words: &[u64]) -> (usize, usize) {
	use std::os::unix::fs::FileExt;
	let mut entries = vec![0; words.len() / WORDS * 8];
	let map = std::fs::File::open("/proc/self/pagemap").unwrap();
	map.read_exact_at(&mut entries, words.as_ptr() as u64 / PAGE as u64 * 8).unwrap();
	let entries = entries.as_chunks().0.iter().map(|entry| u64::from_ne_bytes(*entry));
	entries.fold((0, 0), |(file, own), entry| match entry & (MAP_PRESENT | MAP_SWAPPED | MAP_FILE) {
		0 => (file, own),
		it if it == MAP_PRESENT | MAP_FILE => (file + 1, own),
		_ => (file, own + 1),
	})
}

/// Sealed memory of which every hundredth page is written, and then all is read.
fn written_and_read(kind: Pages, seed: u64) -> (&'static mut [u64], Vec<usize>) {
	let words = patterned(LEN, seed);
	seal(kind).outcome.expect("seal");
	assert!(maps_line(&words[LEN / 16]).contains("flashfork:"));
	let written: Vec<usize> = (0..LEN / PAGE).step_by(100).collect();
	for page in &written {
		words[page * WORDS] = !pattern(page * WORDS, seed);
	}
	assert!(right(words, &written, seed));
	(words, written)
}

/// Whether all is as it was written; reads all of it.
fn right(words: &[u64], written: &[usize], seed: u64) -> bool {
	let is_written = |i: usize| i.is_multiple_of(WORDS) && written.binary_search(&(i / WORDS)).is_ok();
	let wanted = |i: usize| if is_written(i) { !pattern(i, seed) } else { pattern(i, seed) };
	words.iter().enumerate().all(|(i, word)| *word == wanted(i))
}

fn mapped() -> Vec<String> {
	maps::sealed().into_iter().map(|mapping| mapping.line).collect()
}

#[test]
fn what_was_only_read_is_dropped_and_nothing_else() {
	for kind in [Pages::Auto, Pages::Small] {
		in_child(|| {
			let (words, written) = written_and_read(kind, 1);
			let (before, (read, own)) = (mapped(), pages(words));
			for turn in 0..3 {
				let dropped = drop_refills().unwrap() as usize / PAGE;
				assert_eq!(pages(words), (read - dropped, own), "{turn}");
				assert_eq!(mapped(), before, "the mappings are as they were");
				if can_be_dropped() {
					assert!(dropped > read / 10 * 9, "{dropped} of {read}");
					assert_eq!(drop_refills(), Ok(0), "once");
				}
				assert!(right(words, &written, 1));
			}
			unseal(Range::ALL).unwrap();
			assert!(right(words, &written, 1));
		});
	}
}

#[test]
fn a_seal_drops_what_it_leaves_of_a_mapping_and_later_reads_are_dropped_too() {
	in_child!();
	let words = patterned(LEN, 6);
	seal(Pages::Small).outcome.expect("seal");
	words[LEN / 16] = 5;
	for turn in 0..3 {
		let sum = words.iter().fold(0u64, |sum, word| sum.wrapping_add(*word));
		assert_ne!(sum, turn);
		let read = pages(words).0;
		assert!(read > LEN / PAGE / 2, "{turn}");
		match turn {
			// Of that mapping nothing is written any more, but forks go on copying its page tables.
			0 => assert!(seal(Pages::Small).outcome.unwrap().sealed > 0),
			1 => assert_eq!(seal(Pages::Small).outcome.unwrap().sealed, 0),
			_ => assert!(!can_be_dropped() || drop_refills().unwrap() > 0),
		}
		assert!(!can_be_dropped() || pages(words).0 < read / 8, "{turn}: {} of {read}", pages(words).0);
	}
	words[LEN / 16] = pattern(LEN / 16, 6);
	assert!(intact(words, 6));
}

#[test]
fn where_nothing_is_written_nothing_is_dropped() {
	in_child!();
	let words = patterned(LEN, 2);
	seal(Pages::Small).outcome.expect("seal");
	assert!(intact(words, 2));
	let read = pages(words);
	assert!(read.0 > LEN / PAGE / 2);
	assert_eq!(drop_refills(), Ok(0));
	assert_eq!(pages(words), read);
}

#[test]
fn memory_with_properties_of_its_own_is_left_alone() {
	in_child!();
	let (words, written) = written_and_read(Pages::Small, 3);
	let at = &raw const words[LEN / 16];
	// SAFETY: changes no contents.
	assert_eq!(unsafe { libc::mlock(at.cast(), LEN / 4) }, 0);
	advise(at, PAGE, libc::MADV_DONTFORK);
	let read = pages(&words[LEN / 16..LEN / 16 + LEN / 32]);
	drop_refills().unwrap();
	assert_eq!(pages(&words[LEN / 16..LEN / 16 + LEN / 32]), read, "locked memory stays in memory");
	assert!(right(words, &written, 3));
}

#[test]
fn beside_another_thread_nothing_is_dropped() {
	in_child!();
	let (words, written) = written_and_read(Pages::Small, 4);
	let read = pages(words);
	let (done, wait) = std::sync::mpsc::channel::<()>();
	let other = std::thread::spawn(move || wait.recv());
	assert_eq!(drop_refills(), Err(Error::Refused(Reason::Threads)));
	assert_eq!(pages(words), read);
	drop(done);
	other.join().unwrap().unwrap_err();
	drop_refills().unwrap();
	assert!(right(words, &written, 4));
}

#[test]
fn a_stack_in_sealed_memory_stays_where_it_is() {
	in_child!();
	let (words, _) = written_and_read(Pages::Small, 5);
	// A stack sealed while nobody was on it.
	let (stack, rest) = words.split_at_mut(LEN / 16);
	let mut result = None;
	call_on(stack, &mut || result = Some((drop_refills(), pages(rest))));
	let (dropped, left) = result.unwrap();
	assert!(!can_be_dropped() || dropped.unwrap() > 0 && left.0 < rest.len() / WORDS / 2);
}

fn call_on(stack: &mut [u64], f: &mut dyn FnMut()) {
	static mut TARGET: Option<*mut dyn FnMut()> = None;
	extern "C" fn start() {
		// SAFETY: set below, for this call.
		unsafe { (*TARGET.unwrap())() }
	}
	// SAFETY: one thread; the contexts live while they are used.
	unsafe {
		TARGET = Some(std::mem::transmute::<&mut dyn FnMut(), *mut dyn FnMut()>(f));
		let (mut here, mut there) = (std::mem::zeroed::<libc::ucontext_t>(), std::mem::zeroed::<libc::ucontext_t>());
		assert_eq!(libc::getcontext(&raw mut there), 0);
		there.uc_stack.ss_sp = stack.as_mut_ptr().cast();
		there.uc_stack.ss_size = size_of_val(stack);
		there.uc_link = &raw mut here;
		libc::makecontext(&raw mut there, start, 0);
		assert_eq!(libc::swapcontext(&raw mut here, &raw const there), 0);
	}
}
