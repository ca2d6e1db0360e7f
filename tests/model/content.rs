//! What a page holds, as a function of a number: big regions cost the model a few bytes a page.

/// Bytes in a page.
pub const PAGE: usize = 4096;
/// Words in a page.
pub const WORDS: usize = PAGE / 8;

/// One number a word; XOR with the page's own number gives the content, fast enough to compare gigabytes.
static PATTERN: [u64; WORDS] = pattern();

const fn mix(x: u64) -> u64 {
    let z = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

const fn pattern() -> [u64; WORDS] {
    let mut words = [0; WORDS];
    let mut i = 0;
    while i < WORDS {
        words[i] = mix(i as u64 + 1);
        i += 1;
    }
    words
}

/// What a stretch of words holds: zeros for 0, else a pattern that no other tag has.
pub type Tag = u64;

/// A write to a part of a page.
#[derive(Clone, Copy, Debug, Default)]
pub struct Part {
    pub tag: Tag,
    pub start: u16,
    pub end: u16,
}

/// Parts a page may have over its base.
pub const PARTS: usize = 2;

/// What one page should hold.
#[derive(Clone, Copy, Debug, Default)]
pub struct Content {
    pub base: Tag,
    /// What a discard brings back: 0, or the tag of the file's page.
    pub file: Tag,
    pub parts: [Part; PARTS],
    pub part_count: u32,
}

impl Content {
    pub fn of_file(tag: Tag) -> Content {
        Content { base: tag, file: tag, ..Content::default() }
    }

    /// The page after its contents were dropped.
    pub fn discarded(&self) -> Content {
        Content { base: self.file, file: self.file, ..Content::default() }
    }

    pub fn is_zero(&self) -> bool {
        self.base == 0 && self.part_count == 0
    }

    /// Notes a write to words `start..end`; false when the page has no room for another part.
    pub fn write(&mut self, start: usize, end: usize, tag: Tag) -> bool {
        if self.part_count as usize == PARTS {
            return false;
        }
        self.parts[self.part_count as usize] = Part { tag, start: start as u16, end: end as u16 };
        self.part_count += 1;
        true
    }

    pub fn overwrite(&mut self, tag: Tag) {
        *self = Content { base: tag, file: self.file, ..Content::default() };
    }

    /// The first word that is not as it should be: its index, what it is, what it should be.
    pub fn difference(&self, words: &[u64; WORDS]) -> Option<(usize, u64, u64)> {
        if self.part_count == 0 && holds(words, self.base) {
            return None;
        }
        (0..WORDS).map(|i| (i, words[i], self.word(i))).find(|(_, is, should)| is != should)
    }

    /// What word `i` should be.
    pub fn word(&self, i: usize) -> u64 {
        let parts = &self.parts[..self.part_count as usize];
        let tag = parts.iter().rev().find(|p| (p.start as usize..p.end as usize).contains(&i)).map_or(self.base, |p| p.tag);
        word(tag, i)
    }
}

/// Word `i` of a page with this tag.
pub fn word(tag: Tag, i: usize) -> u64 {
    if tag == 0 { 0 } else { PATTERN[i] ^ mix(tag) }
}

/// Whether a whole page has this tag.
pub fn holds(words: &[u64; WORDS], tag: Tag) -> bool {
    let (key, mask) = if tag == 0 { (0, 0) } else { (mix(tag), u64::MAX) };
    words.iter().zip(&PATTERN).fold(0, |wrong, (w, p)| wrong | (w ^ (p & mask) ^ key)) == 0
}

/// Writes words `start..end` of a page's content.
pub fn fill(words: &mut [u64], start: usize, tag: Tag) {
    let key = mix(tag);
    let len = words.len();
    for (w, p) in words.iter_mut().zip(&PATTERN[start..start + len]) {
        *w = p ^ key;
    }
}
