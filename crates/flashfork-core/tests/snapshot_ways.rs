//! Both ways to go back, and the one that chooses, against each other: random turns write to memory of every kind by
//! every means and change its mappings; after each restore every byte and every protection is what it was.

#[path = "common/child.rs"]
mod child;
#[path = "common/maps.rs"]
mod maps;
#[path = "common/memory.rs"]
mod memory;
#[path = "common/other.rs"]
mod other;
use child::{in_child, wait};
use flashfork_core::{
	Range,
	snapshot::{Options, Way, copies_back, go_back_by, restore, snapshot},
};
use memory::{ANONYMOUS, BOTH, PAGE, cut, map, protect, set};
use other::Other;
use std::{
	ptr::null_mut,
	sync::atomic::{AtomicU64, Ordering::SeqCst},
};

const NONE: i32 = libc::PROT_NONE;
const READ: i32 = libc::PROT_READ;

/// What restores leave alone: shared memory.
struct Outside {
	turn: AtomicU64,
	copied: AtomicU64,
}

static BSS: [AtomicU64; 64 * 512] = [const { AtomicU64::new(0) }; 64 * 512];

/// Numbers that follow from a seed (SplitMix64).
struct Random(u64);

impl Random {
	fn below(&mut self, most: usize) -> usize {
		self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
		let mut z = self.0;
		z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
		z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
		((z ^ (z >> 31)) % most as u64) as usize
	}
}

/// Memory of the test's own.
struct Area {
	at: *mut u8,
	pages: usize,
	prot: i32,
	/// Whether it can be mapped again when it is gone.
	anonymous: bool,
	/// What it held, in shared memory.
	was: *mut u8,
}

impl Area {
	fn new(at: *mut u8, pages: usize, prot: i32, anonymous: bool) -> Area {
		let was = map(pages * PAGE, BOTH, libc::MAP_SHARED | libc::MAP_ANONYMOUS, -1);
		Area { at, pages, prot, anonymous, was }
	}

	fn page(&self, page: usize) -> *mut u8 {
		assert!(page <= self.pages);
		memory::page(self.at, page)
	}

	fn protect(&self, prot: i32) {
		protect(self.at, self.pages * PAGE, prot);
	}

	fn note(&self) {
		self.readable(|area| {
			// SAFETY: both are mapped, and that long.
			unsafe { area.was.copy_from_nonoverlapping(area.at, area.pages * PAGE) };
		});
	}

	fn readable(&self, f: impl FnOnce(&Area)) {
		if self.prot & READ == 0 {
			self.protect(READ);
		}
		f(self);
		if self.prot & READ == 0 {
			self.protect(self.prot);
		}
	}

	fn check(&self, context: &str, quietly: bool) {
		if quietly && self.prot == NONE {
			return;
		}
		assert_eq!(protections(self), [(self.at as usize, self.pages * PAGE, self.prot)], "{context}");
		self.readable(|area| {
			for page in 0..area.pages {
				// SAFETY: inside both.
				let [is, was] =
					[area.at, area.was].map(|at| unsafe { std::slice::from_raw_parts(at.add(page * PAGE), PAGE) });
				assert!(is == was, "{context}: page {page} of {:p}, {} and {}", area.at, is[9], was[9]);
			}
		});
	}
}

/// What a program may do that makes next to no calls. `kinds`: from the sixth on they make pages go that were there;
/// the last has the kernel free one later.
fn quiet_step(areas: &[Area], random: &mut Random, file: i32, other: &Other, kinds: usize) {
	let area = &areas[random.below(areas.len())];
	let page = random.below(area.pages);
	let (at, byte) = (area.page(page).cast::<libc::c_void>(), random.below(256) as u8);
	let writable = area.prot == BOTH;
	// SAFETY: memory of the test's own, of plain bytes, of which nothing was unmapped in this turn.
	unsafe {
		match random.below(kinds) {
			0 | 1 if writable => at.cast::<u8>().add(random.below(PAGE)).write_volatile(byte),
			2 if writable => try_it(libc::pread(file, at, PAGE, 0)),
			3 => other.write(at.cast::<u8>().add(99)),
			4 if area.prot != NONE => {
				at.cast::<u8>().read_volatile();
			}
			5 => try_it(libc::madvise(at, PAGE, libc::MADV_DONTNEED)),
			6 => {
				// Copies of pages go with the end of the file, too.
				let keep = random.below(64);
				cut(file, keep * PAGE);
				for page in keep..64 {
					let old = [(page + 100) as u8; PAGE];
					assert_eq!(libc::pwrite(file, old.as_ptr().cast(), PAGE, (page * PAGE) as i64), PAGE as isize);
				}
			}
			7 => {
				libc::madvise(at, PAGE, libc::MADV_FREE);
				other.page_out(at.cast());
			}
			_ => {}
		}
	}
}

fn protections(area: &Area) -> Vec<(usize, usize, i32)> {
	let (first, last) = (area.at as usize, area.at as usize + area.pages * PAGE);
	let mut found: Vec<(usize, usize, i32)> = Vec::new();
	for mapping in maps::mappings() {
		let (start, end) = (mapping.range.start.max(first), mapping.range.end.min(last));
		let bits = [('r', READ), ('w', libc::PROT_WRITE), ('x', libc::PROT_EXEC)];
		let prot = bits.into_iter().filter(|(letter, _)| mapping.prot.contains(*letter)).map(|(_, bit)| bit).sum();
		match found.last_mut() {
			_ if start >= end => {}
			Some((at, len, same)) if *at + *len == start && *same == prot => *len += end - start,
			_ => found.push((start, end - start, prot)),
		}
	}
	found
}

/// From now on the allocator has all it needs for the checks, so that it neither maps memory nor moves the break.
fn keep_break() {
	const MUCH: i32 = 1 << 30;
	// SAFETY: sets numbers.
	unsafe {
		libc::mallopt(libc::M_TRIM_THRESHOLD, MUCH);
		libc::mallopt(libc::M_MMAP_THRESHOLD, MUCH);
	}
	drop(std::hint::black_box(vec![1u8; 4 << 20]));
}

/// Memory of every kind.
fn areas(file: i32) -> Vec<Area> {
	let anonymous = |pages, prot| Area::new(map(pages * PAGE, BOTH, ANONYMOUS, -1), pages, prot, true);
	let of_file = |prot| Area::new(map(64 * PAGE, prot, libc::MAP_PRIVATE, file), 64, prot, false);
	let bss = (BSS.as_ptr() as usize).next_multiple_of(PAGE) as *mut u8;
	let areas = vec![
		anonymous(2048, BOTH),
		anonymous(128, BOTH),
		anonymous(256, BOTH),
		of_file(BOTH),
		of_file(READ),
		anonymous(16, NONE),
		anonymous(16, READ),
		Area::new(bss, 60, BOTH, false),
	];
	for (number, area) in areas.iter().enumerate() {
		let every = [1, 1, 3, 2, 100, 1, 1, 4][number];
		for page in (0..area.pages).step_by(every).filter(|_| every < 100) {
			set(area.page(page), (page as u8).wrapping_add(1), PAGE);
		}
		if area.anonymous {
			area.protect(area.prot);
		}
	}
	areas
}

/// Whether a call works makes no difference here.
fn try_it<T>(_: T) {}

fn step(areas: &[Area], random: &mut Random, file: i32, only_writes: bool) {
	let area = &areas[random.below(areas.len())];
	let page = random.below(area.pages);
	let some = 1 + random.below((area.pages - page).min(9));
	let (at, len) = (area.page(page).cast::<libc::c_void>(), some * PAGE);
	let byte = random.below(256) as u8;
	let fixed = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED;
	// SAFETY: all of it is the test's own memory, of plain bytes; what a call makes inaccessible no later step of this
	// turn relies on, because each looks at the protection first.
	unsafe {
		let writable = protections_of(at as usize) == Some(BOTH);
		let one = libc::iovec { iov_base: (&raw const byte as *mut u8).cast(), iov_len: 1 };
		let there = libc::iovec { iov_base: at.byte_add(77), iov_len: 1 };
		let written = [0, 1, 2, 3, 0, 0];
		let kind = if only_writes { written[random.below(6)] } else { random.below(16) };
		match kind {
			0 if writable => at.cast::<u8>().add(random.below(PAGE)).write_volatile(byte),
			1 if writable => try_it(libc::pread(file, at, PAGE, 0)),
			2 => try_it(libc::process_vm_writev(libc::getpid(), &raw const one, 1, &raw const there, 1, 0)),
			3 if writable => {
				at.cast::<u8>().read_volatile();
			}
			// Memory that can't be written, for a moment.
			4 => {
				libc::mprotect(at, PAGE, BOTH);
				if protections_of(at as usize) == Some(BOTH) {
					at.cast::<u8>().write_volatile(byte);
					libc::mprotect(at, PAGE, area.prot);
				}
			}
			5 => try_it(libc::madvise(at, len, libc::MADV_DONTNEED)),
			6 if area.anonymous => try_it(libc::munmap(at, len)),
			7 if area.anonymous => {
				let there = libc::mmap(at, len, area.prot, fixed, -1, 0);
				if area.prot == BOTH {
					there.cast::<u8>().write_volatile(byte);
				}
			}
			8 if area.anonymous => {
				let away = libc::mmap(null_mut(), len, BOTH, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS, -1, 0);
				let flags = libc::MREMAP_MAYMOVE | libc::MREMAP_FIXED;
				if libc::mremap(at, len, len, flags, away) == away {
					if area.prot == BOTH && protections_of(away as usize) == Some(BOTH) {
						away.cast::<u8>().write_volatile(byte);
					}
					if byte.is_multiple_of(2) {
						libc::mremap(away, len, len, flags, at);
					}
				}
			}
			9 => try_it(libc::mprotect(at, len, READ)),
			10 => {
				let new = libc::mmap(null_mut(), len, BOTH, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS, -1, 0);
				new.cast::<u8>().write_bytes(byte, len);
			}
			11 => match libc::fork() {
				0 => {
					// It may not have been given it.
					if protections_of(at as usize) == Some(BOTH) {
						at.cast::<u8>().write_volatile(byte);
					}
					libc::_exit(0)
				}
				child => assert_eq!(wait(child), 0),
			},
			12 => try_it(libc::madvise(
				at,
				len,
				if byte.is_multiple_of(2) { libc::MADV_PAGEOUT } else { libc::MADV_FREE },
			)),
			13 => try_it(libc::sbrk([4096, 65536, 300_000][random.below(3)])),
			14 if area.anonymous => try_it(libc::madvise(at, len, MADV_GUARD_INSTALL)),
			15 => try_it(libc::madvise(at, len, libc::MADV_DONTFORK)),
			_ => {}
		}
	}
}

const MADV_GUARD_INSTALL: i32 = 102;

/// The protection of a page; none where it can't be accessed for another reason: it isn't mapped, or is a guard.
fn protections_of(at: usize) -> Option<i32> {
	let page = Area { at: at as *mut u8, pages: 1, prot: 0, anonymous: false, was: null_mut() };
	let prot = protections(&page).first()?.2;
	// SAFETY: changes no contents.
	let there = unsafe { libc::madvise(at as *mut libc::c_void, PAGE, libc::MADV_POPULATE_READ) } == 0;
	(there || prot & READ == 0).then_some(prot)
}

fn turns(seed: u64, way: Option<Way>, turns: u64) -> u64 {
	let outside = map(PAGE, BOTH, libc::MAP_SHARED | libc::MAP_ANONYMOUS, -1).cast::<Outside>();
	// SAFETY: mapped for good, of zeros, which are valid.
	let outside = unsafe { &*outside };
	in_child(|| {
		let file = memory::file(c"snapshot-ways", 0);
		let contents: Vec<u8> = (0..64 * PAGE).map(|i| (i / PAGE + 100) as u8).collect();
		// SAFETY: the buffer is as long as said.
		assert_eq!(unsafe { libc::write(file, contents.as_ptr().cast(), contents.len()) }, contents.len() as isize);
		drop(contents);
		let areas = areas(file);
		areas.iter().for_each(Area::note);
		let other = Other::beside_this();
		keep_break();
		go_back_by(way);
		let keep = [Range::new(areas[1].at as usize + 5000, areas[1].at as usize + 5008)];
		let turn = snapshot(&Options { seal: true, keep: &keep, ..Options::default() }).expect("a snapshot");
		assert_eq!(turn, outside.turn.load(SeqCst));
		outside.copied.fetch_add(u64::from(copies_back()), SeqCst);
		let context = format!("seed {seed}, {way:?}, turn {turn}");
		areas[1].readable(|area| {
			// SAFETY: kept bytes are what they have become, also in what they are compared with.
			unsafe { area.was.add(5000).copy_from_nonoverlapping(area.at.add(5000), 8) };
		});
		// Many in a row, as in a loop.
		let quietly = (turn / 20).is_multiple_of(2);
		areas.iter().for_each(|area| area.check(&context, quietly));
		if turn == turns {
			return;
		}
		let mut random = Random(seed << 32 | turn);
		if quietly {
			let kinds = if !turn.is_multiple_of(4) {
				5
			} else if turn < 16 {
				7
			} else {
				8
			};
			(0..random.below(40)).for_each(|_| quiet_step(&areas, &mut random, file, &other, kinds));
			outside.turn.store(turn + 1, SeqCst);
			panic!("{context}: {:?}", restore(turn + 1));
		}
		let only_writes = !turn.is_multiple_of(3);
		for _ in 0..random.below(40) {
			step(&areas, &mut random, file, only_writes);
		}
		outside.turn.store(turn + 1, SeqCst);
		panic!("{context}: {:?}", restore(turn + 1));
	});
	outside.copied.load(SeqCst)
}

#[test]
fn all_ways_go_back_to_the_same() {
	let all = std::env::var_os("FLASHFORK_TEST_ALL").is_some();
	for seed in 0..if all { 200 } else { 4 } {
		assert_eq!(turns(seed, Some(Way::Drop), 60), 0);
		let copied = turns(seed, Some(Way::Copy), 60);
		// Where the kernel can't note writes, none are.
		assert!(copied == 0 || copied > 10, "{copied}");
		turns(seed, None, 120);
	}
}
