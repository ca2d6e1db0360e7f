//! System calls that no libc makes: machine code that holds a system call instruction of its own.
//!
//! The shim and the rewritten entry points of libc see what goes through libc. A Go program, wasmtime, users of rustix
//! or a sanitizer's runtime call the kernel themselves; where they discard or move sealed memory that way, old bytes
//! come back. So before a seal, and when code is mapped later, the code of every file but libc, the loader and the shim
//! is looked through ([`process`]), and a process that has such calls is not sealed.
//!
//! What is looked for is the instruction `syscall` (and `int 0x80`, which reaches the same calls below 4 GB; `sysenter`
//! can't return to a 64-bit program) with the number of one of [`CALLS`]. [`search`] finds the two bytes, [`decode`]
//! tells whether they are an instruction and which numbers reach it, [`object`] knows where functions begin.
//!
//! The rules, in order:
//! 1. Two bytes that no way of decoding the bytes before them leads to are no instruction.
//! 2. Inside a function that the object's unwind table lists, the function is decoded from its beginning. The number is
//!    the constant that was last put into `eax`, directly or by way of another register. A number that is computed,
//!    loaded or passed counts as one of [`CALLS`]. So does a number of [`CALLS`] in another place of the function from
//!    which a jump leads to the instruction.
//! 3. Elsewhere (data between functions, hand-written code, objects without a table) a number of [`CALLS`] counts that
//!    is put into `eax` straight before; a number that isn't constant counts where the code looks like a function that
//!    is passed one: a move into `eax` before, a return behind.
//! 4. Objects built by Go count whatever is in them.
//! 5. Anonymous executable memory (just-in-time compilers, trampolines) is looked through at each seal, for numbers of
//!    [`CALLS`] straight before the instruction only. What is written there later is not seen: compilers that emit
//!    system calls for memory have not been met.

mod decode;
pub mod file;
pub(crate) mod guard;
mod instruction;
pub(crate) mod mapped;
pub mod memory;
mod object;
pub(crate) mod own;
pub mod process;
pub(crate) mod remembered;
mod search;
pub mod times;

use crate::range::Range;
use memory::{Memory, WINDOW};
use object::layout;

/// Calls that mean something else on sealed memory when the shim doesn't see them: number on x86-64, number of `int
/// 0x80`, name.
///
/// Not among them, because they mean the same there: `munmap` and `mmap`, also with `MAP_FIXED`; `brk`; `mprotect` and
/// `pkey_mprotect`, whose flags the shim finds in maps; `mlock` and its kin, which copy pages and change no byte.
pub const CALLS: &[(u32, u32, &str)] = &[
    (25, 163, "mremap"),
    (28, 219, "madvise"),
    (206, 245, "io_setup"),
    (323, 374, "userfaultfd"),
    (425, 425, "io_uring_setup"),
    (440, 440, "process_madvise"),
    (462, 462, "mseal"),
];

/// What was found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Call {
    /// One of [`CALLS`], by its number on x86-64.
    Number(u32),
    /// A call whose number is computed, loaded or passed.
    Unknown,
    /// The object was built by Go.
    Go,
    /// The code can't be read.
    Unreadable,
}

impl Call {
    /// As one word, not 0.
    pub fn to_word(self) -> u64 {
        match self {
            Call::Number(n) => 1 << 32 | u64::from(n),
            Call::Unknown => 2 << 32,
            Call::Go => 3 << 32,
            Call::Unreadable => 4 << 32,
        }
    }

    /// The other way; `None` for a word that is none of these.
    pub fn from_word(word: u64) -> Option<Call> {
        match word >> 32 {
            1 => Some(Call::Number(word as u32)),
            2 => Some(Call::Unknown),
            3 => Some(Call::Go),
            4 => Some(Call::Unreadable),
            _ => None,
        }
    }
}

impl core::fmt::Display for Call {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        match self {
            Call::Number(n) => {
                let name = CALLS.iter().find(|(number, ..)| number == n).map_or("?", |(.., name)| name);
                write!(f, "has a system call instruction of its own for {name}")
            }
            Call::Unknown => f.write_str("has a system call instruction of its own whose number can't be told"),
            Call::Go => f.write_str("was built by Go, which makes its system calls itself"),
            Call::Unreadable => f.write_str("has code that can't be read"),
        }
    }
}

/// A system call instruction of [`CALLS`], or one whose number can't be told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Site {
    /// Address of the instruction; 0 where the whole object counts.
    pub at: usize,
    /// What it calls.
    pub call: Call,
}

/// Bytes of a window that the one before has seen already: what is needed to decode the instructions before a match.
const OVERLAP: usize = 64;
/// Functions are decoded from their beginning, but from no farther away than this: by then any decoding has fallen in
/// step.
const FUNCTION: usize = 32 << 10;

/// What kind of code a range holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// An object's, whose functions the table at this address lists.
    Listed(usize),
    /// An object's without such a table.
    Unlisted,
    /// Made by the program while it runs.
    Generated,
}

/// Calls `each` with every site in a range of code until it gives false. False when some of it can't be read.
pub fn sites(memory: &mut impl Memory, code: Range, kind: Kind, each: &mut impl FnMut(Site) -> bool) -> bool {
    let mut at = code.start;
    while at < code.end {
        // The last match of a window may begin at its last byte but one.
        let start = at.saturating_sub(OVERLAP).max(code.start);
        let end = (start + WINDOW).min(code.end);
        let Some(window) = memory.bytes(start, end - start) else { return false };
        let mut matches = [0u32; 512];
        let (found, searched) = search::matches(window, at - start, &mut matches);
        // Most matches are no instruction: told without looking elsewhere.
        let mut kept = 0;
        for i in 0..found {
            let offset = matches[i] as usize;
            if decode::lands(window, offset, start + offset) {
                matches[kept] = matches[i];
                kept += 1;
            }
        }
        for found in &matches[..kept] {
            let site = judge(memory, code, kind, start + *found as usize);
            if let Some(site) = site
                && !each(site)
            {
                return true;
            }
        }
        at = if end == code.end && start + searched + 1 >= end { end } else { start + searched };
    }
    true
}

/// What the two bytes at an address are; `None`: nothing that counts.
fn judge(memory: &mut impl Memory, code: Range, kind: Kind, at: usize) -> Option<Site> {
    let function = match kind {
        Kind::Listed(table) => object::function(memory, table, at).map(|f| f.intersect(code)),
        Kind::Unlisted | Kind::Generated => None,
    };
    if let Some(function) = function.filter(|f| f.start <= at && at < f.end) {
        let start = function.start.max(at.saturating_sub(FUNCTION));
        let end = function.end.min(at + FUNCTION);
        let bytes = memory.bytes(start, end - start)?;
        // Where the decoder doesn't know an instruction, what is around the match decides.
        if let Ok(found) = decode::in_function(bytes, at - start) {
            return found.map(|call| Site { at, call });
        }
    }
    let start = at.saturating_sub(OVERLAP).max(code.start);
    let end = (at + OVERLAP).min(code.end);
    let bytes = memory.bytes(start, end - start)?;
    let call = decode::anywhere(bytes, at - start)?;
    (call != Call::Unknown || kind != Kind::Generated).then_some(Site { at, call })
}

/// Stands soon behind each system call instruction of the engine itself: its calls mean what they should.
pub const OWN: &[u8; 16] = b"flashfork's call";

#[cfg(test)]
mod tests;
