//! The code of the calling process, looked through before a seal.
//!
//! What was found in a file is remembered by the file's device, inode, size and time of change ([`super::remembered`]),
//! which clones inherit. As long as no executable mapping of a file has come, gone or moved since all was well, not
//! even that is asked.

use super::mapped::Object;
use super::own::{Own, first, first_generated};
use super::remembered::{CODE, Culprit, WELL};
use super::{Call, Code, Scratch, layout};
use crate::arena::Arena;
use crate::never_seal::Reason;
use crate::proc::lookup::{self, Wanted};
use crate::proc::pagemap::{Pagemap, Region, Which};
use crate::proc::vma::{self, Vma};
use crate::range::Range;
use crate::sys::{self, PROT_EXEC, PROT_READ, Result, Status};
use crate::threads::alone;
use core::ffi::CStr;
use core::sync::atomic::Ordering::Relaxed;

/// The caller answers for the system calls of a file, as it is now at this path: it is not looked at. `ENOSPC` for more
/// than 16, or what `stat(2)` said.
pub fn trust(path: &CStr) -> Result<()> {
    CODE.trust(&sys::status(path)?)
}

/// What the last refusal for [`Reason::SystemCalls`] was about.
pub fn culprit() -> &'static Culprit {
    &CODE.culprit
}

/// What is wrong with a file: as it is remembered, or as `look` says. What can't be told from other files is not
/// remembered.
pub(super) fn judge(file: Option<&Status>, look: impl FnOnce() -> Option<Call>) -> Option<Call> {
    if file.is_some_and(|file| CODE.trusts(file)) {
        return None;
    }
    let key = file.map(|file| [file.device, file.inode, file.size, file.changed[0], file.changed[1]]);
    if let Some(word) = key.and_then(|key| CODE.remembered(&key)) {
        return Call::from_word(word);
    }
    let call = look();
    // What couldn't be read this time may be read the next.
    if let Some(key) = key.filter(|_| call != Some(Call::Unreadable)) {
        CODE.remember(&key, call.map_or(WELL, Call::to_word));
    }
    call
}

/// What is wrong with a file that is mapped.
fn judge_mapped(object: &Object, memory: &mut Own, scratch: &mut Scratch) -> Option<Call> {
    let code = &object.code[..object.code_count];
    let all = Range::new(code.first()?.start, code.last()?.end);
    // Who links the engine into an object answers for the rest of it: it is their own program, and its calls of the
    // engine are there too.
    let own = look as *const () as usize;
    if CODE.knows(all) || all.start <= own && own < all.end {
        return None;
    }
    // The file of that name may be another one by now, or out of sight.
    let file = sys::status(object.path()).ok().filter(|file| file.inode == object.inode);
    judge(file.as_ref(), || {
        memory.failed = false;
        let layout = object.start.and_then(|start| layout(memory, start)).unwrap_or_default();
        if layout.go {
            return Some(Call::Go);
        }
        let mut ranges = object.code;
        ranges.iter_mut().for_each(|range| *range = layout.code_in(*range));
        let code =
            Code { ranges: &ranges[..code.len()], data: layout.data(), kind: layout.kind(), fixed: layout.fixed };
        let found = first(memory, &code, scratch);
        // What was found without all that tells instructions from data need not be there.
        if memory.failed { Some(Call::Unreadable) } else { found }
    })
}

/// Looks through all code of this process. None: nothing speaks against a seal.
pub(crate) fn look(arena: &mut Arena) -> Result<Option<Reason>> {
    Scratch::with(|scratch| look_through(arena, scratch))?
}

fn look_through(arena: &mut Arena, scratch: &mut Scratch) -> Result<Option<Reason>> {
    let alone = arena.alone || alone::alone_now(&mut arena.text)?;
    let Arena { text, window, object, regions, .. } = arena;
    let mut memory = Own::new((!alone).then_some(window));
    let (call, now) = generated(text, regions, &mut memory, scratch)?;
    if let Some(call) = call {
        CODE.culprit.set(call, b"[anonymous memory]");
        return Ok(Some(Reason::SystemCalls));
    }
    if now == CODE.well.load(Relaxed) {
        return Ok(None);
    }
    let mut found = None;
    // So that the first file's first mapping begins one.
    (object.inode, object.code_count) = (0, 0);
    vma::for_each_mapping(text, |v, path| {
        if found.is_some() || v.kind != vma::Kind::File || v.inode == 0 {
            return Ok(());
        }
        if !object.goes_on_with(v) {
            found = judge_mapped(object, &mut memory, scratch);
            if found.is_some() {
                return Ok(());
            }
            object.begin(v, path);
        }
        object.add(v);
        Ok(())
    })?;
    if let Some(call) = found.or_else(|| judge_mapped(object, &mut memory, scratch)) {
        CODE.culprit.set(call, object.path().to_bytes());
        return Ok(Some(Reason::SystemCalls));
    }
    CODE.well.store(now, Relaxed);
    Ok(None)
}

/// Looks through executable memory that the program has filled itself; gives too the number of [`mix`] for all
/// mappings.
fn generated(
    text: &mut [u8],
    regions: &mut [Region],
    memory: &mut Own,
    scratch: &mut Scratch,
) -> Result<(Option<Call>, u64)> {
    let mut pagemap = Pagemap::open(regions)?;
    let (mut found, mut number) = (None, FIRST);
    let mut each = |v: &Vma| {
        number = mix(number, v);
        let which = match v.kind {
            vma::Kind::Anonymous if !v.shared => Which::Populated,
            // What was here at the seal has been looked through.
            vma::Kind::Sealed => Which::Written,
            _ => return Ok(()),
        };
        if v.prot & (PROT_READ | PROT_EXEC) != PROT_READ | PROT_EXEC || found.is_some() {
            return Ok(());
        }
        pagemap.for_each(v.range, which, |pages| {
            found = found.or_else(|| first_generated(memory, pages, scratch));
        })
    };
    // Where the kernel tells mappings of code from others, that is a tenth of the list.
    if lookup::ask(Range::ALL, Wanted::Executable, &mut each)?.is_none() {
        vma::for_each_mapping(text, |v, _| each(v))?;
    }
    Ok((found, number))
}

/// Where the numbers of [`mix`] begin.
const FIRST: u64 = 0xcbf2_9ce4_8422_2325;

/// Adds a mapping to a number that stands for all executable mappings of files (FNV-1a, by words).
fn mix(number: u64, v: &Vma) -> u64 {
    if v.kind != vma::Kind::File || v.prot & PROT_EXEC == 0 {
        return number;
    }
    let device = u64::from(v.device[0]) << 32 | u64::from(v.device[1]);
    let words = [v.range.start as u64, v.range.end as u64, v.offset, v.inode, device];
    words.iter().fold(number, |n, word| (n ^ word).wrapping_mul(0x0100_0000_01b3).rotate_left(23))
}
