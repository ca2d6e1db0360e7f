//! Fuzzing without a fuzzer: inputs from `tests/corpus/TARGET` are replayed, then changed at random, again and again.
//! What makes a target panic or hang is written beside them, and so replayed by every later run.
#![allow(dead_code)]

use std::{
	fs,
	panic::{AssertUnwindSafe, catch_unwind},
	path::{Path, PathBuf},
	time::{Duration, Instant, SystemTime},
};

/// What takes so long hangs, however busy the machine is.
const HANG: Duration = Duration::from_secs(120);

const LONGEST: usize = 16384;

/// Values that are more often worth a try than chance has them.
const EDGES: [u64; 12] = [0, 1, 3, 4, 7, 0x7f, 0x80, 0xff, 0x7fff, 0xffff, 0xffff_ffff, u64::MAX];

/// Runs `target` on all its corpus and on `count` changed inputs; 200 times as many, and others every time, with
/// `FLASHFORK_TEST_ALL=1`.
pub fn fuzz(name: &str, count: u64, target: impl FnMut(&[u8])) {
	fuzz_more(name, Vec::new(), count, target);
}

/// The same; `more` belongs to the corpus, but is made by the test.
pub fn fuzz_more(name: &str, more: Vec<Vec<u8>>, count: u64, mut target: impl FnMut(&[u8])) {
	let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/corpus").join(name);
	let mut paths: Vec<PathBuf> = fs::read_dir(&directory).unwrap().map(|entry| entry.unwrap().path()).collect();
	paths.sort();
	let corpus: Vec<Vec<u8>> = paths.iter().map(|path| fs::read(path).unwrap()).collect();
	assert!(!corpus.is_empty(), "no corpus in {}", directory.display());
	for (path, input) in paths.iter().zip(&corpus) {
		if let Err(why) = attempt(&mut target, input) {
			panic!("{}: {why}", path.display());
		}
	}
	more.iter().for_each(|input| target(input));
	let corpus = [corpus, more].concat();
	let all = std::env::var_os("FLASHFORK_TEST_ALL").is_some_and(|all| all == "1");
	let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap();
	let mut random = Random(if all { now.as_nanos() as u64 } else { 1 });
	for _ in 0..if all { count * 200 } else { count } {
		let input = change(&corpus, &mut random);
		if let Err(why) = attempt(&mut target, &input) {
			let path = directory.join(format!("found-{:08x}", crc32fast::hash(&input)));
			fs::write(&path, &input).unwrap();
			panic!("{why}; the input is kept in {}", path.display());
		}
	}
}

fn attempt(target: &mut impl FnMut(&[u8]), input: &[u8]) -> Result<(), String> {
	let start = Instant::now();
	if catch_unwind(AssertUnwindSafe(|| target(input))).is_err() {
		return Err("the target panicked".into());
	}
	if start.elapsed() > HANG { Err(format!("the target took {:?}", start.elapsed())) } else { Ok(()) }
}

/// One of `corpus`, or two of them joined, with some changes.
fn change(corpus: &[Vec<u8>], random: &mut Random) -> Vec<u8> {
	let mut input = corpus[random.below(corpus.len())].clone();
	for _ in 0..1 + random.below(6) {
		let at = random.below(input.len() + 1);
		match random.below(7) {
			0 if at < input.len() => input[at] ^= 1 << random.below(8),
			1 if at < input.len() => input[at] = random.next() as u8,
			2 => {
				let (edge, length) = (EDGES[random.below(EDGES.len())], 1 << random.below(4));
				let end = (at + length).min(input.len());
				input[at..end].copy_from_slice(&edge.to_le_bytes()[..end - at]);
			}
			3 => {
				let end = (at + 1 + random.below(16)).min(input.len());
				input.drain(at..end);
			}
			4 => {
				let from = random.below(input.len() + 1);
				let piece = input[from..(from + 1 + random.below(32)).min(input.len())].to_vec();
				input.splice(at..at, piece);
			}
			5 => {
				let other = &corpus[random.below(corpus.len())];
				let from = random.below(other.len() + 1);
				input.truncate(at);
				input.extend_from_slice(&other[from..]);
			}
			_ => {
				let piece: Vec<u8> = (0..1 + random.below(8)).map(|_| random.next() as u8).collect();
				input.splice(at..at, piece);
			}
		}
	}
	input.truncate(LONGEST);
	input
}

/// SplitMix64 (Steele, Lea, Flood 2014): numbers that follow from the first.
struct Random(u64);

impl Random {
	fn next(&mut self) -> u64 {
		self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
		let mut z = self.0;
		z = (z ^ z >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
		z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
		z ^ z >> 31
	}

	fn below(&mut self, limit: usize) -> usize {
		(self.next() % limit as u64) as usize
	}
}

/// An input, read from its start; zeros after its end.
pub struct Input<'a>(pub &'a [u8]);

impl<'a> Input<'a> {
	pub fn is_over(&self) -> bool {
		self.0.is_empty()
	}

	pub fn bytes(&mut self, count: usize) -> &'a [u8] {
		let (now, later) = self.0.split_at(count.min(self.0.len()));
		self.0 = later;
		now
	}

	fn number<const N: usize>(&mut self) -> [u8; N] {
		let mut number = [0; N];
		let bytes = self.bytes(N);
		number[..bytes.len()].copy_from_slice(bytes);
		number
	}

	pub fn u8(&mut self) -> u8 {
		self.number::<1>()[0]
	}

	pub fn u16(&mut self) -> u16 {
		u16::from_le_bytes(self.number())
	}

	pub fn u32(&mut self) -> u32 {
		u32::from_le_bytes(self.number())
	}

	pub fn u64(&mut self) -> u64 {
		u64::from_le_bytes(self.number())
	}
}
