//! The code of a file that is not mapped, or not yet.

use super::{
	Code, Scratch, Site,
	memory::{Memory, WINDOW},
	object,
	object::Layout,
	sites,
};
use crate::{range::Range, sys};

const SEGMENTS: usize = 16;

/// Addresses, and where in the file their bytes are.
#[derive(Clone, Copy, Default)]
struct Segment {
	range: Range,
	offset: usize,
	executable: bool,
}

/// A file as it would lie in memory: addresses are those in its headers.
struct File<'a> {
	fd: i32,
	segments: [Segment; SEGMENTS],
	count: usize,
	window: &'a mut [u8; WINDOW],
	failed: bool,
}

impl Memory for File<'_> {
	fn peek(&mut self, at: usize, len: usize) -> Option<&[u8]> {
		let failed = self.failed;
		let readable = self.bytes(at, len).is_some();
		self.failed = failed;
		if readable { Some(&self.window[..len]) } else { None }
	}

	fn bytes(&mut self, at: usize, len: usize) -> Option<&[u8]> {
		let inside = |s: &&Segment| s.range.start <= at && at.checked_add(len).is_some_and(|end| end <= s.range.end);
		let segment = self.segments[..self.count].iter().find(inside)?;
		let offset = (segment.offset + (at - segment.range.start)) as u64;
		let window = self.window.get_mut(..len)?;
		// SAFETY: the window is ours to fill.
		let read = unsafe { sys::pread_all(self.fd, window.as_mut_ptr() as usize, len, offset) };
		self.failed |= read.is_err();
		read.ok().map(|()| &*window)
	}
}

/// What there is to say about a file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Examined {
	/// Whether it is an object for x86-64 (`elf(5)`).
	pub object: bool,
	/// Whether Go built it.
	pub go: bool,
	/// Bytes of code; of a file that is no object, all.
	pub code: usize,
	/// Whether all of it could be read.
	pub readable: bool,
	parts: [Range; SEGMENTS],
	part_count: usize,
}

impl Examined {
	/// Which pages of the file were looked through.
	pub fn parts(&self) -> &[Range] {
		&self.parts[..self.part_count]
	}
}

/// Calls `each` with every site in an open file of `size` bytes, until it gives false. `part`: only there, whatever is
/// said about it. `window` and `scratch` are scratch.
pub fn examine(
	fd: i32,
	size: usize,
	part: Option<Range>,
	window: &mut [u8; WINDOW],
	scratch: &mut Scratch,
	each: &mut impl FnMut(Site) -> bool,
) -> Examined {
	let whole = Segment { range: Range::new(0, size), offset: 0, executable: true };
	let mut file = File { fd, segments: [Segment::default(); SEGMENTS], count: 1, window, failed: false };
	file.segments[0] = whole;
	let mut loads = [Segment::default(); SEGMENTS];
	let mut count = 0;
	let mut load = |segment: &object::Segment| {
		if let Some(place) = loads.get_mut(count) {
			let end = segment.at.saturating_add(segment.len.min(size.saturating_sub(segment.offset)));
			let (range, offset) = (Range::new(segment.at, end), segment.offset);
			*place = Segment { range, offset, executable: segment.executable };
			count += 1;
		}
	};
	let object = part.is_none() && object::segments(&mut file, 0, &mut load).is_some();
	let mut examined = Examined { object: object && count > 0, readable: true, ..Examined::default() };
	let mut layout = Layout::default();
	if examined.object {
		(file.segments, file.count) = (loads, count);
		// The headers belong to the first segment.
		let first = &mut file.segments[0];
		first.range.start = first.range.start.wrapping_sub(first.offset);
		first.offset = 0;
		layout = object::layout(&mut file, loads[0].range.start.wrapping_sub(loads[0].offset)).unwrap_or_default();
	} else {
		let range = part.map_or(whole.range, |part| part.intersect(whole.range));
		(loads[0], count) = (Segment { range, offset: range.start, executable: true }, 1);
	}
	for load in loads[..count].iter().filter(|load| load.executable) {
		examined.parts[examined.part_count] = Range::pages_of(load.offset, load.range.len());
		examined.part_count += 1;
	}
	let mut ranges = [Range::default(); SEGMENTS];
	// What a loader will make addresses of lies in the code's segment where all constants do.
	let mut of = |is_wanted: &dyn Fn(&Segment) -> bool| {
		let wanted = loads[..count].iter().filter(|load| is_wanted(load));
		let count = ranges.iter_mut().zip(wanted).map(|(range, load)| *range = load.range).count();
		(ranges, count)
	};
	let (code, codes) = of(&|load| load.executable);
	let (data, datas) = of(&|load| !load.executable || layout.code_in(load.range) != load.range);
	examined.go = layout.go;
	examined.code = code[..codes].iter().map(Range::len).sum();
	let code = code.map(|range| layout.code_in(range));
	let code = Code { ranges: &code[..codes], data: &data[..datas], kind: layout.kind(), fixed: layout.fixed };
	examined.readable = sites(&mut file, &code, scratch, each) && !file.failed;
	examined
}
