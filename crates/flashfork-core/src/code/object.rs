//! What an object's headers say, as it lies in memory: where the table of its functions is, and whether Go built it.
//!
//! The table is the one that unwinders search (`.eh_frame_hdr`, Linux Standard Base, "Exception Frame Header"): begin
//! of each function and its entry in `.eh_frame`, sorted.

use super::{Kind, memory::Memory};
use crate::range::Range;

/// What of an object's headers matters here.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Layout {
	/// Address of the table of functions.
	pub functions: Option<usize>,
	/// Whether Go built it (a note with Go's build id).
	pub go: bool,
	/// Whether it lies where the file says (`ET_EXEC`), so that addresses may be constants in its code.
	pub fixed: bool,
	/// Addresses of what is loaded and not executed.
	data: [Range; DATA],
	data_count: usize,
	/// What the segment with the headers holds as code, where that is executed as a whole.
	text: Option<Range>,
}

const DATA: usize = 16;

impl Layout {
	/// Addresses of what is loaded and not executed.
	pub fn data(&self) -> &[Range] {
		&self.data[..self.data_count]
	}

	/// The part of a range of code that may be code.
	pub fn code_in(&self, range: Range) -> Range {
		self.text.filter(|text| range.contains(text.start)).unwrap_or(range)
	}

	/// What kind of code it is.
	pub fn kind(&self) -> Kind {
		self.functions.map_or(Kind::Unlisted, Kind::Listed)
	}
}

const ET_EXEC: usize = 2;
const PF_X: u32 = 1;
const PT_LOAD: u32 = 1;
const PT_DYNAMIC: u32 = 2;
const PT_NOTE: u32 = 4;
const PT_GNU_EH_FRAME: u32 = 0x6474_e550;
const HEADER: usize = 56;

fn number<const N: usize>(bytes: &[u8], at: usize) -> Option<[u8; N]> {
	bytes.get(at..at.checked_add(N)?)?.try_into().ok()
}

fn u16_at(bytes: &[u8], at: usize) -> Option<usize> {
	number(bytes, at).map(|b| u16::from_le_bytes(b).into())
}

fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
	number(bytes, at).map(u32::from_le_bytes)
}

fn usize_at(bytes: &[u8], at: usize) -> Option<usize> {
	number(bytes, at).map(usize::from_le_bytes)
}

/// A program header, as far as it matters here.
pub struct Segment {
	kind: u32,
	/// Address that the file says.
	pub at: usize,
	/// Bytes in the file.
	pub len: usize,
	/// Where they begin.
	pub offset: usize,
	/// Whether it is mapped to be executed.
	pub executable: bool,
}

/// Calls `each` with the program headers of the object that begins at `start`. `None`: there is none for x86-64.
fn headers(memory: &mut impl Memory, start: usize, mut each: impl FnMut(&Segment)) -> Option<()> {
	let head: [u8; 64] = memory.bytes(start, 64)?.try_into().ok()?;
	// 64-bit, little-endian, EM_X86_64.
	if head[..6] != *b"\x7fELF\x02\x01" || u16_at(&head, 18)? != 62 || u16_at(&head, 54)? != HEADER {
		return None;
	}
	let table = start.checked_add(usize_at(&head, 32)?)?;
	for i in 0..u16_at(&head, 56)? {
		let header: [u8; HEADER] = memory.bytes(table.checked_add(i * HEADER)?, HEADER)?.try_into().ok()?;
		each(&Segment {
			kind: u32_at(&header, 0)?,
			at: usize_at(&header, 16)?,
			len: usize_at(&header, 32)?,
			offset: usize_at(&header, 8)?,
			executable: u32_at(&header, 4)? & PF_X != 0,
		});
	}
	Some(())
}

/// Calls `each` with the segments that are loaded, of the object that begins at `start`. `None`: there is none for
/// x86-64.
pub fn segments(memory: &mut impl Memory, start: usize, mut each: impl FnMut(&Segment)) -> Option<()> {
	headers(memory, start, |segment| {
		if segment.kind == PT_LOAD {
			each(segment);
		}
	})
}

/// What the headers of the object that begins at `start` say. `None`: there is none for x86-64.
pub fn layout(memory: &mut impl Memory, start: usize) -> Option<Layout> {
	const NOTES: usize = 4;
	let (mut bias, mut functions, mut dynamic, mut head) = (None, None, None, None);
	let (mut notes, mut count) = ([(0, 0); NOTES], 0);
	let (mut data, mut data_count) = ([Range::default(); DATA], 0);
	headers(memory, start, |segment| match segment.kind {
		PT_LOAD => {
			// The first segment holds the headers.
			bias = bias.or(Some(start.wrapping_sub(segment.at.wrapping_sub(segment.offset))));
			if segment.executable && segment.offset == 0 {
				head = Some(Range::new(segment.at, segment.at.saturating_add(segment.len)));
			}
			if !segment.executable && data_count < DATA {
				data[data_count] = Range::new(segment.at, segment.at.saturating_add(segment.len));
				data_count += 1;
			}
		}
		PT_DYNAMIC => dynamic = Some((segment.at, segment.len)),
		PT_GNU_EH_FRAME => functions = Some(segment.at),
		PT_NOTE if count < NOTES => {
			notes[count] = (segment.at, segment.len);
			count += 1;
		}
		_ => {}
	})?;
	let bias = bias?;
	let go = notes[..count].iter().any(|(at, len)| is_go(memory, bias.wrapping_add(*at), *len));
	for range in &mut data[..data_count] {
		*range = Range::new(bias.wrapping_add(range.start), bias.wrapping_add(range.end));
	}
	let mut text = head.zip(dynamic).and_then(|(head, (at, len))| text(memory, head, bias.wrapping_add(at), len));
	if let Some(text) = &mut text {
		*text = Range::new(bias.wrapping_add(text.start), bias.wrapping_add(text.end));
	}
	let fixed = u16_at(memory.bytes(start, 64)?, 16) == Some(ET_EXEC);
	Some(Layout { functions: functions.map(|at| bias.wrapping_add(at)), go, fixed, data, data_count, text })
}

/// Linkers that put headers, code and constants into one segment put all code between the functions for the beginning
/// and the end: from `DT_INIT` to `DT_FINI`. Addresses are as the file says them.
fn text(memory: &mut impl Memory, head: Range, dynamic: usize, len: usize) -> Option<Range> {
	/// Bytes of `.fini`, at most.
	const LAST: usize = 64;
	let entry = |memory: &mut _, wanted| {
		(0..len / 16).find_map(|i| {
			let entry = Memory::bytes(memory, dynamic.checked_add(16 * i)?, 16)?;
			(usize_at(entry, 0)? == wanted).then(|| usize_at(entry, 8))?
		})
	};
	let (first, last) = (entry(memory, 12)?, entry(memory, 13)?);
	// Some loaders have made addresses of them.
	(head.contains(first) && head.contains(last) && first < last)
		.then(|| Range::new(first, (last + LAST).min(head.end)))
}

/// Whether a note segment holds Go's build id: name `Go`, type 4 (cmd/internal/buildid).
fn is_go(memory: &mut impl Memory, at: usize, len: usize) -> bool {
	const NOTE: [u8; 8] = *b"\x04\0\0\0Go\0\0";
	memory.bytes(at, len.min(4096)).is_some_and(|notes| notes.windows(8).any(|w| w == NOTE))
}

/// What the table of functions says about one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Function {
	/// Its addresses, or those of part of it that a compiler has put elsewhere.
	pub range: Range,
	entry: usize,
}

/// The function that holds an address, from the table at `table`; `None` where none does, or the table is of another
/// form than linkers make.
pub fn function(memory: &mut impl Memory, table: usize, at: usize) -> Option<Function> {
	let head: [u8; 12] = memory.bytes(table, 12)?.try_into().ok()?;
	// Version 1; the number of entries as 4 bytes; entries of twice 4 bytes, relative to the table.
	if head[0] != 1 || head[2] != 0x03 || head[3] != 0x3b {
		return None;
	}
	let count = u32_at(&head, 8)? as usize;
	let mut entry = |i: usize| -> Option<(usize, usize)> {
		let entry: [u8; 8] = memory.bytes(table.checked_add(12 + 8 * i)?, 8)?.try_into().ok()?;
		let relative = |at| Some(table.wrapping_add(u32_at(&entry, at)? as i32 as usize));
		Some((relative(0)?, relative(4)?))
	};
	let (mut low, mut high) = (0, count);
	while low < high {
		let middle = low + (high - low) / 2;
		if entry(middle)?.0 <= at { low = middle + 1 } else { high = middle }
	}
	let (start, entry) = entry(low.checked_sub(1)?)?;
	// Length, place of the common part, begin and length of the function: the latter two as the common part says, which
	// is 4 bytes relative to their own place wherever the table above can be made of 4 bytes.
	let description: [u8; 16] = memory.bytes(entry, 16)?.try_into().ok()?;
	let end = start.checked_add(u32_at(&description, 12)? as usize)?;
	(at < end).then_some(Function { range: Range::new(start, end), entry })
}

/// Whether an address lies in what unwinders read (`.eh_frame`), of which the table at `table` is the index: some
/// linkers have it in the segment of the code.
pub fn is_unwind_data(memory: &mut impl Memory, table: usize, at: usize) -> bool {
	let mut head = Reader { memory, at: table + 1 };
	let entries = (|| {
		let [encoding, _, _] = head.bytes()?;
		head.pointer(encoding)
	})();
	let Some(mut entry) = entries.filter(|entries| *entries <= at) else { return false };
	// Each begins with its length; the last is empty.
	while let Some(len) = memory.peek(entry, 4).and_then(|bytes| u32_at(bytes, 0)).filter(|len| *len != 0) {
		entry += 4 + len as usize;
		if at < entry {
			return true;
		}
	}
	false
}

/// Bytes that are read one after the other.
struct Reader<'a, M> {
	memory: &'a mut M,
	at: usize,
}

impl<M: Memory> Reader<'_, M> {
	fn bytes<const N: usize>(&mut self) -> Option<[u8; N]> {
		let bytes = self.memory.bytes(self.at, N)?.try_into().ok()?;
		self.at = self.at.checked_add(N)?;
		Some(bytes)
	}

	fn byte(&mut self) -> Option<u8> {
		self.bytes().map(|[byte]| byte)
	}

	/// LEB128 without a sign (DWARF 5, 7.6).
	fn number(&mut self) -> Option<usize> {
		let mut value = 0;
		for shift in (0..usize::BITS).step_by(7) {
			let byte = self.byte()?;
			value |= usize::from(byte & 0x7f) << shift;
			if byte < 0x80 {
				return Some(value);
			}
		}
		None
	}

	/// A value in an encoding of pointers (Linux Standard Base, "DWARF Exception Header Encoding"); 0 is none.
	fn pointer(&mut self, encoding: u8) -> Option<usize> {
		let here = self.at;
		let value = match encoding & 0xf {
			0x1 => self.number()?,
			0x2 => u16::from_le_bytes(self.bytes()?).into(),
			0x3 => u32::from_le_bytes(self.bytes()?) as usize,
			0xa => i16::from_le_bytes(self.bytes()?) as usize,
			0xb => i32::from_le_bytes(self.bytes()?) as usize,
			0x0 | 0x4 | 0xc => usize::from_le_bytes(self.bytes()?),
			_ => return None,
		};
		match encoding & 0x70 {
			_ if value == 0 => Some(0),
			0x00 => Some(value),
			0x10 => Some(here.wrapping_add(value)),
			_ => None,
		}
	}
}

/// Calls `each` with every address in a function where it catches exceptions. `None`: that can't be told.
pub fn landing_pads(memory: &mut impl Memory, function: &Function, mut each: impl FnMut(usize)) -> Option<()> {
	const OMITTED: u8 = 0xff;
	// Behind the length.
	let mut entry = Reader { memory, at: function.entry + 4 };
	let place = entry.at;
	let common = place.wrapping_sub(u32::from_le_bytes(entry.bytes()?) as usize);
	let mut head = Reader { memory: &mut *entry.memory, at: common + 8 };
	let version = head.byte()?;
	let mut letters = [0; 8];
	for letter in &mut letters {
		*letter = head.byte()?;
		if *letter == 0 {
			break;
		}
	}
	// Alignment of code and data, the register of the return address.
	head.number()?;
	head.number()?;
	if version == 1 {
		head.byte().map(usize::from)?
	} else {
		head.number()?
	};
	let mut encoding = OMITTED;
	for (i, letter) in letters.iter().enumerate() {
		match letter {
			0 => break,
			b'z' if i == 0 => {
				head.number()?;
			}
			b'R' => {
				head.byte()?;
			}
			b'L' => encoding = head.byte()?,
			b'P' => {
				let personality = head.byte()?;
				head.pointer(personality)?;
			}
			b'S' | b'B' => {}
			_ => return None,
		}
	}
	if encoding == OMITTED || letters[0] != b'z' {
		return Some(());
	}
	// Begin and length of the function, length of what the letters are about.
	entry.at += 8;
	entry.number()?;
	let table = entry.pointer(encoding)?;
	if table == 0 {
		return Some(());
	}
	let mut table = Reader { memory: entry.memory, at: table };
	let base = match table.byte()? {
		OMITTED => function.range.start,
		encoding => table.pointer(encoding)?,
	};
	if table.byte()? != OMITTED {
		table.number()?;
	}
	let encoding = table.byte()?;
	let end = table.number()?.checked_add(table.at)?;
	while table.at < end {
		// Begin and length of the calls, where what they throw lands, and what is done there.
		table.pointer(encoding)?;
		table.pointer(encoding)?;
		let pad = table.pointer(encoding)?;
		table.number()?;
		// As in the C++ ABI: none is 0, and the base, where it is written, is not the function's.
		if pad != 0 {
			each(base.wrapping_add(pad));
		}
	}
	Some(())
}
