//! The policy `auto` on real memory, by a clock of the test's own: how long forks take is what it is told.

#[macro_use]
mod common;
use common::{
	Child, auto_seals, fill, forked, in_child, intact,
	maps::{self, Mapping, mappings},
	memory::{ANONYMOUS, BOTH, advise, move_over, unmap},
	patterned, until, wait,
};
use flashfork_core::{
	Pages,
	answers::{self, sandbox},
	fork::{Engine, configure, fork},
	seal,
};
use std::{
	collections::BTreeMap,
	fs,
	io::{Read, Write},
	os::unix::fs::MetadataExt,
};

const LEN: usize = 64 << 20;
const MILLISECOND: u64 = 1_000_000;

/// Sealed bytes among the mappings of these words, and the generations they are in, each of which may have two files of
/// one name.
fn sealed(words: &[u64]) -> (usize, Vec<String>) {
	let (start, end) = (words.as_ptr() as usize, words.as_ptr_range().end as usize);
	let (mut bytes, mut generations) = (0, Vec::new());
	for mapping in maps::sealed() {
		let (from, to) = (mapping.range.start.max(start), mapping.range.end.min(end));
		if from < to {
			bytes += to - from;
			generations.push(mapping.name);
		}
	}
	generations.sort();
	generations.dedup();
	(bytes, generations)
}

#[test]
fn auto_seals_in_parts_renews_what_was_written_and_undoes_what_loses() {
	in_child!();
	let words = patterned(LEN, 1);
	if !auto_seals() {
		return;
	}
	let mut parts = Vec::new();
	until(500, || {
		forked(words, 1, 50 * MILLISECOND, false);
		let now = sealed(words).0;
		if parts.last() != Some(&now) && now > 0 {
			parts.push(now);
		}
		now >= LEN - (4 << 20)
	});
	// How large the others are goes by how fast this machine is just now.
	assert!(parts.len() > 1 && parts[0] <= LEN / 4, "in parts, a small one first: {parts:?}");

	// Enough cheap forks to show that it was worth it; then nearly all of it is written.
	(0..200).for_each(|turn| forked(words, 1, MILLISECOND / 20, turn == 0));
	let before = sealed(words).1;
	fill(words, 2);
	until(20, || {
		forked(words, 2, MILLISECOND / 20, true);
		sealed(words).1.iter().all(|generation| !before.contains(generation))
	});
	let (bytes, now) = sealed(words);
	assert!(bytes >= LEN - (4 << 20) && now.len() == before.len(), "{bytes} bytes in generations {now:?}");

	until(500, || {
		forked(words, 2, 500 * MILLISECOND, false);
		sealed(words).0 == 0
	});
	assert!(intact(words, 2));
}

/// Memory of which a first part has been sealed; none where forks are on demand, and nothing is.
fn begun() -> Option<&'static mut [u64]> {
	let words = patterned(LEN, 1);
	if !auto_seals() {
		return None;
	}
	until(500, || {
		forked(words, 1, 50 * MILLISECOND, false);
		sealed(words).0 > 0
	});
	Some(words)
}

fn finish(words: &[u64], seed: u64) {
	until(500, || {
		forked(words, seed, 50 * MILLISECOND, false);
		sealed(words).0 >= size_of_val(words) - (4 << 20)
	});
}

#[test]
fn memory_that_gets_a_property_between_parts_is_judged_anew() {
	in_child!();
	let Some(words) = begun() else { return };
	// The last 8 MB but 4 are kept out of clones, the last 4 are other memory now, locked.
	let end = words.as_ptr_range().end as usize;
	let (private, locked) = (end - (8 << 20), end - (4 << 20));
	let len = 4 << 20;
	advise(private as *const u8, len, libc::MADV_DONTFORK);
	// SAFETY: part of the words, which nobody reads from here on.
	unsafe {
		let flags = ANONYMOUS | libc::MAP_FIXED | libc::MAP_LOCKED;
		let at = libc::mmap(locked as *mut _, len, BOTH, flags, -1, 0);
		if at == libc::MAP_FAILED {
			return; // no right to lock so much
		}
		(at as *mut u8).write_bytes(1, len);
	}
	let rest = &words[..(private - words.as_ptr() as usize) / 8];
	finish(rest, 1);
	(0..20).for_each(|_| forked(rest, 1, 50 * MILLISECOND, false));
	assert_eq!(sealed(words).0, sealed(rest).0, "what may not be sealed was");
}

/// A secret, for one, that is not for clones.
#[test]
fn memory_that_is_moved_between_parts_to_where_other_was_keeps_its_properties() {
	in_child!();
	let len = 4 << 20;
	let secret = patterned(len, 3);
	advise(secret.as_ptr(), len, libc::MADV_WIPEONFORK);
	let Some(words) = begun() else { return };
	let end = words.as_ptr_range().end as usize;
	let place = (end - len) as *mut u64;
	unmap(place, len);
	move_over(secret.as_mut_ptr(), len, place);
	// SAFETY: the end of the words, which nobody reads from here on, and the secret, which is read there.
	let moved = unsafe { std::slice::from_raw_parts(place, len / 8) };
	let rest = &words[..words.len() - len / 8];
	finish(rest, 1);
	for _ in 0..20 {
		let clone = in_clone(|| assert!(moved.iter().all(|word| *word == 0), "the clone sees the secret"));
		assert_eq!(wait(clone), 0);
	}
	assert!(intact(moved, 3) && sealed(words).0 == sealed(rest).0, "what may not be sealed was");
}

#[test]
fn advice_on_huge_pages_between_parts_is_kept() {
	in_child!();
	let Some(words) = begun() else { return };
	advise(words.as_ptr(), LEN, libc::MADV_NOHUGEPAGE);
	finish(words, 1);
	flashfork_core::unseal(flashfork_core::Range::ALL).unwrap();
	let flags = maps::flags_in(words.as_ptr() as usize..words.as_ptr_range().end as usize);
	assert!(!flags.is_empty() && flags.iter().all(|flags| flags.contains(" nh ")), "{flags:?}");
	assert!(intact(words, 1));
}

fn anonymous() -> u64 {
	let status = fs::read_to_string("/proc/self/status").unwrap();
	let anonymous = status.lines().find_map(|line| line.strip_prefix("RssAnon:")).unwrap();
	anonymous.split_whitespace().next().unwrap().parse::<u64>().unwrap() * 1024
}

/// Bytes in the files of these words' generations.
fn in_files(words: &[u64]) -> u64 {
	let generations = sealed(words).1;
	let ours = maps::sealed().into_iter().filter(|mapping| generations.contains(&mapping.name));
	// Inodes of files in mounts of their own are the same.
	let files: BTreeMap<_, _> =
		ours.map(|mapping| ((mapping.device.clone(), mapping.inode.clone()), mapping)).collect();
	files.values().map(|mapping| mapped(mapping).unwrap().blocks() * 512).sum()
}

/// The file of a mapping, of which the kernel tells root alone.
fn mapped(mapping: &Mapping) -> std::io::Result<fs::Metadata> {
	fs::metadata(mapping.file())
}

/// Whether it tells us.
fn is_told() -> bool {
	mapped(mappings().iter().find(|mapping| mapping.name.starts_with('/')).unwrap()).is_ok()
}

/// Both.
fn memory(words: &[u64]) -> u64 {
	anonymous() + in_files(words)
}

/// What a program does with memory that `auto` has sealed.
#[derive(Clone, Copy, Debug)]
enum Back {
	Discarded,
	DiscardedAndFilledAgain,
	Unmapped,
	Written,
	/// Beside a thread that has begun since, and does nothing.
	WrittenBesideAThread,
	/// Under a filter that the program has set since, and which allows all.
	WrittenUnderAFilter,
}

impl Back {
	const ALL: [Self; 6] = [
		Self::Discarded,
		Self::DiscardedAndFilledAgain,
		Self::Unmapped,
		Self::Written,
		Self::WrittenBesideAThread,
		Self::WrittenUnderAFilter,
	];
}

fn enter_a_filter() {
	let code = (libc::BPF_RET | libc::BPF_K) as u16;
	let mut allow = [libc::sock_filter { code, jt: 0, jf: 0, k: libc::SECCOMP_RET_ALLOW }];
	let program = libc::sock_fprog { len: 1, filter: allow.as_mut_ptr() };
	let filter =
		[libc::PR_SET_SECCOMP as usize, libc::SECCOMP_MODE_FILTER as usize, &raw const program as usize, 0, 0, 0];
	// SAFETY: a filter that allows all, and that the kernel copies.
	unsafe {
		assert_eq!(libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), 0);
		sandbox::prctl(filter).unwrap();
	}
}

#[test]
fn memory_after_forks_is_at_most_one_and_a_half_times_a_plain_process_s() {
	for shape in Back::ALL {
		in_child(move || {
			let words = patterned(LEN, 1);
			if !auto_seals() || !is_told() {
				return;
			}
			let other = memory(words).saturating_sub(LEN as u64);
			seal_all(words, 1);
			match shape {
				Back::WrittenBesideAThread => drop(std::thread::spawn(std::thread::park)),
				Back::WrittenUnderAFilter => enter_a_filter(),
				_ => {}
			}
			// Nine tenths of each generation, in whole huge pages and in small ones.
			let start = words.as_ptr() as usize;
			for block in (0..LEN / (20 << 20)).map(|i| start + i * (20 << 20)) {
				let len = 18 << 20;
				// SAFETY: part of the words, whose contents the test gives up.
				unsafe {
					match shape {
						Back::Unmapped => unmap(block as *const u8, len),
						Back::Written | Back::WrittenBesideAThread | Back::WrittenUnderAFilter => {}
						_ => answers::advise::madvise(block, len, libc::MADV_DONTNEED as u32).unwrap(),
					}
					if !matches!(shape, Back::Discarded | Back::Unmapped) {
						(block..block + len).step_by(4096).for_each(|page| (page as *mut u8).write_volatile(9));
					}
				}
			}
			let given_back = (LEN / (20 << 20) * (18 << 20)) as u64;
			let plain = match shape {
				Back::Discarded | Back::Unmapped => LEN as u64 - given_back,
				_ => LEN as u64,
			};
			let mut most = 0;
			for fork in 1..40 {
				forked(&[], 1, MILLISECOND / 20, false);
				// What is unmapped behind the engine's back it sees now and then.
				if fork > 17 || !matches!(shape, Back::Unmapped) {
					most = most.max(memory(words).saturating_sub(other));
				}
			}
			// Page tables of a test that was copied, and what it allocates itself.
			assert!(most <= plain * 3 / 2 + (4 << 20), "{shape:?}: {most} of {plain}");
		});
	}
}

fn seal_all(words: &[u64], seed: u64) {
	finish(words, seed);
	(0..40).for_each(|_| forked(words, seed, MILLISECOND / 20, false));
}

/// Writes all of it, and forks; gives the most memory that there was beside `other` when a fork was over.
fn most_after_writing(words: &mut [u64], other: u64) -> u64 {
	let mut most = 0;
	for turn in 0..40 {
		if turn < 2 {
			fill(words, 9);
		}
		forked(words, 9, MILLISECOND / 20, false);
		// It is now and then that a clone asks whether others are gone.
		if turn > 17 {
			most = most.max(memory(words).saturating_sub(other));
		}
	}
	assert!(intact(words, 9));
	most
}

/// Does it in a clone that the engine has made of this process.
fn in_clone(f: impl FnOnce()) -> i32 {
	// SAFETY: one thread.
	let pid = fork(|| unsafe { libc::fork() }, || 0);
	if pid == 0 {
		let done = std::panic::catch_unwind(std::panic::AssertUnwindSafe(f));
		// SAFETY: ends the clone.
		unsafe { libc::_exit(i32::from(done.is_err())) };
	}
	pid
}

/// It was sealed neither anew nor undone: too much of what it had from others could be.
#[test]
fn what_a_clone_of_a_sealed_process_seals_itself_takes_one_and_a_half_times_its_memory_at_most() {
	in_child!();
	let inherited = patterned(LEN, 1);
	if !auto_seals() || !is_told() {
		return;
	}
	seal_all(inherited, 1);
	let before = sealed(inherited);
	let worker = in_clone(|| {
		let words = patterned(LEN, 2);
		let other = anonymous().saturating_sub(LEN as u64);
		seal_all(words, 2);
		let most = most_after_writing(words, other);
		assert!(most <= LEN as u64 * 3 / 2 + (4 << 20), "{most} of {LEN}");
		most_after_writing(inherited, 0);
		assert!(sealed(inherited) == before && intact(words, 9), "what others have is left alone");
	});
	assert_eq!(wait(worker), 0);
}

/// Has `f` checked in a clone of a process that has sealed its words and ended: `f` gets these, the anonymous memory
/// beside them, and what waits for the end of its parent.
fn in_what_is_left_of_a_sealed_process(f: impl FnOnce(&'static mut [u64], u64, &dyn Fn())) {
	let (mut told, tells) = std::io::pipe().unwrap();
	in_child(|| {
		let words = patterned(LEN, 1);
		if !auto_seals() || !is_told() {
			return (&tells).write_all(b"nothing to see here").unwrap();
		}
		let other = anonymous().saturating_sub(LEN as u64);
		seal_all(words, 1);
		let parent = std::process::id();
		in_clone(|| {
			f(words, other, &|| {
				while std::os::unix::process::parent_id() == parent {
					std::thread::yield_now();
				}
			});
			(&tells).write_all(b"right").unwrap();
		});
	});
	drop(tells);
	let mut said = String::new();
	told.read_to_string(&mut said).unwrap();
	assert!(["right", "nothing to see here"].contains(&&*said), "{said:?}");
}

/// It existed twice while that clone lived.
#[test]
fn what_is_left_of_a_sealed_process_that_has_ended_takes_one_and_a_half_times_its_memory_at_most() {
	for seals in [false, true] {
		in_what_is_left_of_a_sealed_process(|words, other, wait_for_its_end| {
			let own = seals.then(|| patterned(LEN, 2));
			if let Some(own) = &own {
				seal_all(own, 2);
				assert!(sealed(words).0 > 0, "others have it");
			}
			wait_for_its_end();
			let plain = if own.is_some() { 2 * LEN as u64 } else { LEN as u64 };
			let mut most = most_after_writing(words, other);
			if let Some(own) = own {
				most += in_files(own);
				assert!(intact(own, 2));
			}
			assert!(most <= plain * 3 / 2 + (4 << 20), "{most} of {plain}");
		});
	}
}

/// A worker had them for itself while its server lived.
#[test]
fn what_a_parent_has_sealed_anew_and_its_clone_has_alone_takes_one_and_a_half_times_its_memory_at_most() {
	in_child!();
	let words = patterned(LEN, 1);
	if !auto_seals() || !is_told() {
		return;
	}
	let other = anonymous().saturating_sub(LEN as u64);
	seal_all(words, 1);
	let before = sealed(words).1;
	let (mut told, tells) = std::io::pipe().unwrap();
	let mut tells = Some(tells);
	let worker = in_clone(|| {
		// Should its parent fail it is not waited for.
		tells.take();
		told.read_exact(&mut [0]).unwrap();
		let most = most_after_writing(words, other);
		assert!(most <= LEN as u64 * 3 / 2 + (4 << 20), "{most} of {LEN}");
	});
	fill(words, 2);
	until(50, || {
		forked(words, 2, MILLISECOND / 20, false);
		sealed(words).1.iter().all(|generation| !before.contains(generation))
	});
	tells.take().unwrap().write_all(&[0]).unwrap();
	assert_eq!(wait(worker), 0);
	assert!(intact(words, 2));
}

#[test]
fn a_part_is_bought_without_copying_what_was_sealed_before() {
	in_child!();
	let words = patterned(LEN, 1);
	for i in 0..8 {
		words[i << 18] = common::pattern(i << 18, 1);
		assert!(seal(Pages::Small).outcome.unwrap().sealed > 0);
	}
	let before = sealed(words).1;
	assert_eq!(before.len(), 8, "no room for a generation more: {before:?}");
	let more = patterned(LEN, 2);
	configure(Engine::Auto, false).unwrap();
	(0..40).for_each(|_| forked(more, 2, 50 * MILLISECOND, false));
	assert_eq!(sealed(words).1, before);
	assert!(intact(words, 1) && intact(more, 2));
}

/// It looked at its second fork for the first time, when a helper had it all, too.
#[test]
fn what_a_clone_is_left_with_is_its_own_before_it_has_clones() {
	in_what_is_left_of_a_sealed_process(|words, other, wait_for_its_end| {
		wait_for_its_end();
		fill(words, 9);
		let (mut over, ends) = std::io::pipe().unwrap();
		let mut ends = Some(ends);
		let helper = in_clone(|| {
			ends.take();
			assert_eq!(over.read(&mut [0]).unwrap(), 0);
		});
		(0..20).for_each(|_| forked(words, 9, MILLISECOND / 20, false));
		let most = memory(words).saturating_sub(other);
		ends.take();
		assert_eq!(wait(helper), 0);
		assert!(most <= LEN as u64 * 3 / 2 + (4 << 20), "{most} of {LEN}");
	});
}
