//! The code of the calling process: looked through before a seal, and when more is mapped later.
//!
//! What was found in a file is remembered by the file's device, inode, size and time of change ([`super::remembered`]), which
//! clones inherit. As long as no executable mapping of a file has come, gone or moved since all was well, not even that is asked.

use super::mapped::Object;
use super::remembered::{CODE, Culprit, WELL};
use super::{Call, Kind, Memory, WINDOW, file, layout, sites};
use crate::answers::anonymous;
use crate::arena::Arena;
use crate::calls;
use crate::never_seal::Reason;
use crate::outcome::{Error, Outcome, Step};
use crate::proc::lookup::{self, Wanted};
use crate::proc::pagemap::{Pagemap, Region, Which};
use crate::proc::vma::{self, Vma};
use crate::range::Range;
use crate::session::{self, Wait};
use crate::stack::roomy;
use crate::state::STATE;
use crate::sys::{self, PAGE, PROT_EXEC, PROT_READ, Result, Status};
use crate::threads::alone;
use core::ffi::CStr;
use core::sync::atomic::Ordering::Relaxed;

/// The caller answers for the system calls of a file, as it is now at this path: it is not looked at. `ENOSPC` for more than 16,
/// or what `stat(2)` said.
pub fn trust(path: &CStr) -> Result<()> {
    CODE.trust(&sys::status(path)?)
}

/// Whether `is_known` says yes to every site in the code of an object that begins at `base`. To be called when nobody else runs.
pub(crate) fn all_sites(base: usize, code: Range, is_known: impl Fn(usize) -> bool) -> bool {
    let mut memory = Own::new(None);
    let table = layout(&mut memory, base).and_then(|layout| layout.functions);
    let mut all = true;
    let readable = sites(&mut memory, code, table.map_or(Kind::Unlisted, Kind::Listed), &mut |site| {
        all = is_known(site.at);
        all
    });
    all && readable
}

/// What the last refusal for [`Reason::SystemCalls`] was about.
pub fn culprit() -> &'static Culprit {
    &CODE.culprit
}

/// What is wrong with a file: as it is remembered, or as `look` says. What can't be told from other files is not remembered.
fn judge(file: Option<&Status>, look: impl FnOnce() -> Option<Call>) -> Option<Call> {
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

/// The process's own memory.
struct Own<'a> {
    /// Where other threads may unmap code meanwhile it is copied first, into this.
    copy: Option<&'a mut [u8; WINDOW]>,
    /// Whether something could not be read.
    failed: bool,
}

impl<'a> Own<'a> {
    fn new(copy: Option<&'a mut [u8; WINDOW]>) -> Own<'a> {
        Own { copy, failed: false }
    }
}

impl Memory for Own<'_> {
    fn bytes(&mut self, at: usize, len: usize) -> Option<&[u8]> {
        if let Some(copy) = &mut self.copy {
            let copy = copy.get_mut(..len)?;
            let read = sys::read_own(at, copy);
            self.failed |= read.is_err();
            return read.ok().map(|()| &*copy);
        }
        let pages = Range::pages_of(at, len);
        // Brings the pages in, and says so where one can't be read: so no access below faults.
        let populated = sys::populate(pages.start, pages.len());
        self.failed |= populated.is_err();
        populated.ok()?;
        // SAFETY: nobody else runs in this memory who could unmap or write it, and the bytes have no other owner.
        Some(unsafe { core::slice::from_raw_parts(at as *const u8, len) })
    }
}

/// What is wrong with a file that is mapped.
fn judge_mapped(object: &Object, memory: &mut Own) -> Option<Call> {
    let code = &object.code[..object.code_count];
    let all = Range::new(code.first()?.start, code.last()?.end);
    // Who links the engine into an object answers for the rest of it: it is their own program, and its calls of the engine are
    // there too.
    let own = calls::enter::address();
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
        let kind = layout.functions.map_or(Kind::Unlisted, Kind::Listed);
        let found = code.iter().find_map(|code| first(memory, *code, kind));
        // What was found without all that tells instructions from data need not be there.
        if memory.failed { Some(Call::Unreadable) } else { found }
    })
}

/// The first thing found in a range of code. What can't be read is noted in `memory`.
fn first(memory: &mut Own, code: Range, kind: Kind) -> Option<Call> {
    let mut found = None;
    sites(memory, code, kind, &mut |site| {
        found = Some(site.call);
        false
    });
    found
}

/// Looks through all code of this process. None: nothing speaks against a seal.
pub(crate) fn look(arena: &mut Arena) -> Result<Option<Reason>> {
    let alone = alone::alone_now(&mut arena.text)?;
    let Arena { text, window, object, regions, .. } = arena;
    let mut memory = Own::new((!alone).then_some(window));
    let (call, now) = generated(text, regions, &mut memory)?;
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
            found = judge_mapped(object, &mut memory);
            if found.is_some() {
                return Ok(());
            }
            object.begin(v, path);
        }
        object.add(v);
        Ok(())
    })?;
    if let Some(call) = found.or_else(|| judge_mapped(object, &mut memory)) {
        CODE.culprit.set(call, object.path().to_bytes());
        return Ok(Some(Reason::SystemCalls));
    }
    CODE.well.store(now, Relaxed);
    Ok(None)
}

/// What the look before a seal takes, in nanoseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Times {
    /// With nothing known of what has been mapped since the last look.
    pub first: u64,
    /// Every file is known, but has to be recognised: something has been mapped or unmapped.
    pub known: u64,
    /// Nothing has been.
    pub unchanged: u64,
}

/// Looks three times.
pub fn time() -> core::result::Result<Times, Error> {
    let look_once = || {
        let mut took = 0;
        let looked = session::run(Wait::Yes, |arena| {
            calls::take(arena, &mut None)?;
            let start = sys::now_ns();
            let found = look(arena).map_err(|e| Error::System(Step::Look, e))?;
            took = sys::now_ns() - start;
            found.map_or(Ok(Outcome::default()), |reason| Err(Error::Refused(reason)))
        });
        looked.outcome.map(|_| took)
    };
    let first = look_once()?;
    CODE.well.store(0, Relaxed);
    Ok(Times { first, known: look_once()?, unchanged: look_once()? })
}

/// Looks through executable memory that the program has filled itself; gives too the number of [`mix`] for all mappings.
fn generated(text: &mut [u8], regions: &mut [Region], memory: &mut Own) -> Result<(Option<Call>, u64)> {
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
            found = found.or_else(|| first_generated(memory, pages));
        })
    };
    // Where the kernel tells mappings of code from others, that is a tenth of the list.
    if lookup::ask(Range::ALL, Wanted::Executable, &mut each)?.is_none() {
        vma::for_each_mapping(text, |v, _| each(v))?;
    }
    Ok((found, number))
}

/// The first thing found in such memory, but for the engine's own stubs.
fn first_generated(memory: &mut Own, mut code: Range) -> Option<Call> {
    // Most often there is nothing else.
    while !code.is_empty() && calls::stub::is_stub(memory, code.start) {
        code.start += PAGE;
    }
    let mut found = [None; 64];
    let mut count = 0;
    sites(memory, code, Kind::Generated, &mut |site| {
        found[count] = Some(site);
        count += 1;
        count < found.len()
    });
    found.into_iter().flatten().find(|site| !calls::stub::is_stub(memory, site.at)).map(|site| site.call)
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

/// Before a file is mapped to be executed, or a mapping of it becomes executable. Where it has system calls of its own all memory
/// becomes anonymous again, and stays so.
///
/// An error means that it could not: then the code must not become executable.
pub fn before_mapping(fd: i32) -> Result<()> {
    if STATE.holds_sealed() { roomy(|| mind_file(fd)) } else { Ok(()) }
}

fn mind_file(fd: i32) -> Result<()> {
    let file = sys::fstatus(fd)?;
    let looked = session::run(Wait::Yes, |arena| {
        let found = judge(Some(&file), || {
            let mut found = None;
            let size = usize::try_from(file.size).unwrap_or(usize::MAX);
            let examined = file::examine(fd, size, &mut arena.window, &mut |site| {
                found = Some(site.call);
                false
            });
            match (examined.go, examined.readable) {
                (true, _) => Some(Call::Go),
                (false, true) => found,
                (false, false) => found.or(Some(Call::Unreadable)),
            }
        });
        match found {
            None => Ok(Outcome::default()),
            Some(_) => Err(Error::Refused(Reason::SystemCalls)),
        }
    });
    if looked.outcome.is_ok() {
        return Ok(());
    }
    drop(looked);
    anonymous::for_good()
}

/// The same for memory that is going to be executable: as far as it can be read now, what is in it now counts.
pub fn before_executable(range: Range) -> Result<()> {
    if STATE.holds_sealed() { roomy(|| mind_code(range)) } else { Ok(()) }
}

fn mind_code(range: Range) -> Result<()> {
    let looked = session::run(Wait::Yes, |arena| {
        let look = |e| Error::System(Step::Look, e);
        let alone = alone::alone_now(&mut arena.text).map_err(look)?;
        let Arena { text, window, .. } = arena;
        let mut memory = Own::new((!alone).then_some(window));
        let mut found = None;
        vma::for_each_mapping(text, |v, path| {
            let part = v.range.intersect(range);
            if found.is_none() && !part.is_empty() && v.prot & PROT_READ != 0 {
                found = match v.kind {
                    vma::Kind::File => {
                        let found = first(&mut memory, part, Kind::Unlisted);
                        found.or(memory.failed.then_some(Call::Unreadable))
                    }
                    _ => first_generated(&mut memory, part),
                };
                if let Some(call) = found {
                    CODE.culprit.set(call, path);
                }
            }
            Ok(())
        })
        .map_err(look)?;
        if found.is_some() { Err(Error::Refused(Reason::SystemCalls)) } else { Ok(Outcome::default()) }
    });
    if looked.outcome.is_ok() {
        return Ok(());
    }
    drop(looked);
    anonymous::for_good()
}
