//! What a page holds, as a function of a number: the contents of big regions are known without keeping them.

use crate::header;

/// Bytes in a page.
pub const PAGE: usize = 4096;
/// Words in a page.
pub const WORDS: usize = PAGE / 8;

/// One number a word; XOR with the page's own number gives the content, fast enough to compare gigabytes. All bytes
/// have the same bit: where memory may be executed, contents that look like a system call (0f 05, cd 80) are a reason
/// not to seal.
static PATTERN: [u64; WORDS] = pattern();

const fn mix(x: u64) -> u64 {
	let z = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
	let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
	z ^ (z >> 31)
}

/// A bit of each byte that neither 0f nor cd has.
const BIT: u64 = 0x1010_1010_1010_1010;

/// A page's own number.
fn key(tag: Tag) -> u64 {
	mix(tag) & !BIT
}

const fn pattern() -> [u64; WORDS] {
	let mut words = [0; WORDS];
	let mut i = 0;
	while i < WORDS {
		words[i] = mix(i as u64 + 1) | BIT;
		i += 1;
	}
	words
}

/// What a stretch of words holds: zeros for 0, a library's header for [`HEADER`], else a pattern that no other tag has.
pub type Tag = u64;

/// The tag of a library's first page.
pub const HEADER: Tag = Tag::MAX;

/// Word `i` of a page with this tag.
pub fn word(tag: Tag, i: usize) -> u64 {
	match tag {
		0 => 0,
		HEADER => header::FIRST_PAGE[i],
		_ => PATTERN[i] ^ key(tag),
	}
}

/// Whether a whole page has this tag.
pub fn holds(words: &[u64; WORDS], tag: Tag) -> bool {
	if tag == HEADER {
		return *words == header::FIRST_PAGE;
	}
	let (key, mask) = if tag == 0 { (0, 0) } else { (key(tag), u64::MAX) };
	words.iter().zip(&PATTERN).fold(0, |wrong, (w, p)| wrong | (w ^ (p & mask) ^ key)) == 0
}

/// Writes what a page with this tag holds from word `start` on.
///
/// # Panics
/// When it would run past the end of the page.
pub fn fill(words: &mut [u64], start: usize, tag: Tag) {
	let len = words.len();
	if tag == HEADER {
		return words.copy_from_slice(&header::FIRST_PAGE[start..start + len]);
	}
	let key = key(tag);
	for (w, p) in words.iter_mut().zip(&PATTERN[start..start + len]) {
		*w = p ^ key;
	}
}
