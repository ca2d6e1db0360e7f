//! What an object's headers say, as it lies in memory: where the table of its functions is, and whether Go built it.
//!
//! The table is the one that unwinders search (`.eh_frame_hdr`, Linux Standard Base, "Exception Frame Header"): begin
//! of each function and its entry in `.eh_frame`, sorted.

use super::memory::Memory;
use crate::range::Range;

/// What of an object's headers matters here.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Layout {
    /// Address of the table of functions.
    pub functions: Option<usize>,
    /// Whether Go built it (a note with Go's build id).
    pub go: bool,
}

const PF_X: u32 = 1;
const PT_LOAD: u32 = 1;
const PT_NOTE: u32 = 4;
const PT_GNU_EH_FRAME: u32 = 0x6474_e550;
/// Bytes of a program header.
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
    let (mut bias, mut functions) = (None, None);
    let (mut notes, mut count) = ([(0, 0); NOTES], 0);
    headers(memory, start, |segment| match segment.kind {
        // The first segment holds the headers.
        PT_LOAD if bias.is_none() => bias = Some(start.wrapping_sub(segment.at.wrapping_sub(segment.offset))),
        PT_GNU_EH_FRAME => functions = Some(segment.at),
        PT_NOTE if count < NOTES => {
            notes[count] = (segment.at, segment.len);
            count += 1;
        }
        _ => {}
    })?;
    let bias = bias?;
    let go = notes[..count].iter().any(|(at, len)| is_go(memory, bias.wrapping_add(*at), *len));
    Some(Layout { functions: functions.map(|at| bias.wrapping_add(at)), go })
}

/// Whether a note segment holds Go's build id: name `Go`, type 4 (cmd/internal/buildid).
fn is_go(memory: &mut impl Memory, at: usize, len: usize) -> bool {
    const NOTE: [u8; 8] = *b"\x04\0\0\0Go\0\0";
    memory.bytes(at, len.min(4096)).is_some_and(|notes| notes.windows(8).any(|w| w == NOTE))
}

/// The function that holds an address, from the table at `table`; `None` where none does, or the table is of another
/// form than linkers make.
pub fn function(memory: &mut impl Memory, table: usize, at: usize) -> Option<Range> {
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
    let (start, description) = entry(low.checked_sub(1)?)?;
    // Length, place of the common part, begin and length of the function: the latter two as the common part says, which
    // is 4 bytes relative to their own place wherever the table above can be made of 4 bytes.
    let description: [u8; 16] = memory.bytes(description, 16)?.try_into().ok()?;
    let end = start.checked_add(u32_at(&description, 12)? as usize)?;
    (at < end).then_some(Range::new(start, end))
}
