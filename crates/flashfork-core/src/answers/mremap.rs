//! `mremap(2)` on sealed memory.
//!
//! What is one mapping to the program lies in several pieces after a seal, some sealed and some not, and the kernel
//! grows and moves one piece at a time (`EFAULT`). And a sealed piece must not grow into its memfd: its clones would
//! leave pages there, and after a shrink the old bytes would come back. So where sealed memory grows, or a mapping in
//! pieces moves, this does what the kernel does for a whole one: new memory behind the end, each piece moved by itself.

use crate::answers::anonymous::{self, Need};
use crate::arena::{Arena, Run};
use crate::proc::lookup::{self, Wanted};
use crate::proc::vma::Kind;
use crate::range::Range;
use crate::scratch;
use crate::seal::offset;
use crate::seal::properties::Properties;
use crate::seal::remap::{self, ATTEMPTS};
use crate::seal::unseal::copy_pages;
use crate::stack::roomy;
use crate::state::{Inside, STATE};
use crate::sys::{
    self, ADDRESSES, Errno, HUGE, MAP_ANONYMOUS, MAP_FIXED, MAP_NORESERVE, MAP_PRIVATE, PAGE, PROT_NONE, PROT_READ,
    PROT_WRITE, Result,
};
use crate::threads::alone;
use crate::threads::errand;
use core::sync::atomic::{AtomicBool, Ordering::SeqCst};
use linux_raw_sys::general as k;

const MAYMOVE: usize = k::MREMAP_MAYMOVE as usize;
const FIXED: usize = k::MREMAP_FIXED as usize;
const DONTUNMAP: usize = k::MREMAP_DONTUNMAP as usize;

/// `mremap(2)` with the meaning it has on anonymous memory. On an error everything is where it was.
///
/// # Safety
/// As `mremap(2)`.
pub unsafe fn mremap(from: usize, old: usize, new: usize, flags: usize, to: usize) -> Result<usize> {
    // SAFETY: the program's own call.
    let moved = unsafe { move_or_grow(from, old, new, flags, to) };
    if let (Ok(to), true) = (moved, STATE.sealed()) {
        STATE.moved(Range::pages_of(from, old), Range::pages_of(to, new));
    }
    moved
}

unsafe fn move_or_grow(from: usize, old: usize, new: usize, flags: usize, to: usize) -> Result<usize> {
    // SAFETY: the program's own call.
    let real = || unsafe { sys::mremap(from, old, new, flags, to) };
    let Some(len) = new.checked_next_multiple_of(PAGE) else { return real() };
    let _quiet = STATE.quiet();
    // What is done here takes several steps, between which no other thread may seal.
    let inside = STATE.inside();
    let whole = Range::pages_of(from, old);
    let wrong = flags & !(MAYMOVE | FIXED | DONTUNMAP) != 0
        || flags & (FIXED | DONTUNMAP) != 0 && flags & MAYMOVE == 0
        || flags & FIXED != 0
            && (!to.is_multiple_of(PAGE)
                || !whole.intersect(Range::pages_of(to, len)).is_empty()
                || to.checked_add(len).is_none_or(|end| end > ADDRESSES));
    if !STATE.sealed() || wrong || whole.start != from || whole.is_empty() || len == 0 {
        return real();
    }
    if len > ADDRESSES {
        // Nothing is that large, in pieces or in one.
        return real().map_err(|e| if e == Errno::EFAULT { Errno::ENOMEM } else { e });
    }
    // SAFETY: the program's own call.
    roomy(|| unsafe { in_steps(whole, len, flags, to, real, inside) })
}

/// # Safety
/// As `mremap(2)`, which `real` is.
unsafe fn in_steps(
    mut whole: Range,
    len: usize,
    flags: usize,
    to: usize,
    real: impl Fn() -> Result<usize>,
    mut inside: Inside<'static>,
) -> Result<usize> {
    let from = whole.start;
    if flags & DONTUNMAP != 0 {
        inside = anonymous::make_anonymous(whole, inside, Need::Must)?;
    }
    // Of a range that shrinks where it is the kernel cuts off the end, whatever lies there.
    let cut_off = Range::new(from + len.min(whole.len()), whole.end);
    let moves = flags & FIXED != 0;
    let had_end = if moves && !cut_off.is_empty() { is_mapped(cut_off) } else { Ok(false) };
    // The scratch memory must be gone before anything grows: it may lie in the very place.
    let look = |whole| with_scratch(|_, runs| list(whole, runs).map(|(end, _)| end));
    let end = if len > whole.len() { look(whole) } else { Err(Errno::EFAULT) };
    match (end, had_end) {
        (Ok(end), _) if end.sealed => {}
        (Ok(_) | Err(Errno::EFAULT), Ok(_)) => match real() {
            Err(Errno::EFAULT) => {}
            other => return other,
        },
        // SAFETY: the program's own call.
        (Err(e), Ok(_)) | (_, Err(e)) => return unsafe { unseen(whole, len, flags, to, e) },
    }
    if !cut_off.is_empty() {
        match had_end {
            // Kernels before 6.17 have cut it off already, and ask about the rest alone. Later ones ask about all of it first.
            Ok(true) if !is_mapped(cut_off)? => whole.end = cut_off.start,
            Ok(true) => {}
            _ => return Err(Errno::EFAULT),
        }
    }
    let mut end = match end.or_else(|_| look(whole)) {
        Err(e) if e != Errno::EFAULT => {
            // SAFETY: the program's own call.
            return unsafe { unseen(whole, len, flags, to, e) };
        }
        end => end?,
    };
    // A sealed piece has been asked for nothing: it would not have been sealed.
    if !end.sealed || STATE.marked.touch(whole) {
        end.properties = with_scratch(|text, _| by_any_means(|| Properties::at(whole.end - PAGE, text)))?;
    }
    if STATE.properties() != 0 && with_scratch(|text, runs| differ(whole, text, runs))? {
        return Err(Errno::EFAULT);
    }
    if whole.end > cut_off.start {
        // SAFETY: the program gives it up.
        unsafe { sys::munmap(cut_off.start, cut_off.len()) }?;
        whole.end = cut_off.start;
    }
    let to = moves.then_some(to);
    // SAFETY: the program's own call; what it meets is the same as on one anonymous mapping.
    let moved = unsafe { Move { whole, len, end, flags }.run(to) };
    drop(inside);
    moved
}

/// Runs `f` with room for text and a list: less of it where no more memory may be mapped (`RLIMIT_AS`).
fn with_scratch<T>(f: impl FnOnce(&mut [u8], &mut [Run]) -> Result<T>) -> Result<T> {
    match Arena::map() {
        Ok(arena) => {
            let result = f(&mut arena.text, &mut arena.runs);
            arena.unmap();
            result
        }
        Err(e) => {
            let Some(mut spare) = Spare::take() else { return Err(e) };
            let Scratch { text, runs } = spare.scratch();
            f(text, runs)
        }
    }
}

struct Scratch {
    text: [u8; 16 << 10],
    runs: [Run; 512],
}

/// The one there is for when none can be mapped, in the hands of whoever has taken it.
struct Spare(());

static TAKEN: AtomicBool = AtomicBool::new(false);

impl Spare {
    fn take() -> Option<Spare> {
        TAKEN.compare_exchange(false, true, SeqCst, SeqCst).ok().map(|_| Spare(()))
    }

    fn scratch(&mut self) -> &mut Scratch {
        const NONE: Run = Run {
            range: Range { start: 0, end: 0 },
            prot: 0,
            advice: 0,
            record: 0,
            resealed: false,
            growth: false,
            filled: 0,
        };
        static mut SCRATCH: Scratch = Scratch { text: [0; 16 << 10], runs: [NONE; 512] };
        let scratch = &raw mut SCRATCH;
        // SAFETY: there is one `Spare` at a time, and it is borrowed as long as the scratch is used.
        unsafe { &mut *scratch }
    }
}

impl Drop for Spare {
    fn drop(&mut self) {
        TAKEN.store(false, SeqCst);
    }
}

/// [`errand::ask`], for an answer.
fn by_any_means<T>(mut ask: impl FnMut() -> Result<T>) -> Result<T> {
    let mut answer = Err(Errno::ESRCH);
    errand::ask(|| {
        answer = ask();
        match answer {
            // That is an answer.
            Err(e) if ![Errno::EFAULT, Errno::E2BIG].contains(&e) => Err(e),
            _ => Ok(()),
        }
    })?;
    answer
}

/// Whether anything is mapped in a range.
fn is_mapped(range: Range) -> Result<bool> {
    let mut found = false;
    by_any_means(|| {
        lookup::for_each(range, Wanted::All, |v| {
            found |= !v.range.intersect(range).is_empty();
            Ok(())
        })
    })?;
    Ok(found)
}

/// [`pieces`], by any means.
fn list(whole: Range, runs: &mut [Run]) -> Result<(End, usize)> {
    by_any_means(|| pieces(runs, whole))
}

/// Whether the program asked for something on a part of a range only: then it is more than one mapping without any
/// seal.
fn differ(whole: Range, text: &mut [u8], runs: &mut [Run]) -> Result<bool> {
    let (_, count) = list(whole, runs)?;
    let mut first = None;
    for run in &runs[..count] {
        let properties = by_any_means(|| Properties::at(run.range.start, text))?;
        if !properties.is_like(first.get_or_insert(properties)) {
            return Ok(true);
        }
    }
    Ok(false)
}

/// `mremap(2)` where nobody can tell what is mapped, for the reason `e`. What was sealed once moves to new memory, byte
/// by byte.
///
/// # Safety
/// As `mremap(2)`.
unsafe fn unseen(whole: Range, len: usize, flags: usize, to: usize, e: Errno) -> Result<usize> {
    if !STATE.holds_sealed() || !STATE.places.touch(whole) {
        // SAFETY: the program's own call.
        let moved = unsafe { sys::mremap(whole.start, whole.len(), len, flags, to) };
        // Anonymous memory that lies in pieces since it was sealed.
        let in_pieces = moved == Err(Errno::EFAULT) && STATE.places.touch(whole) && is_plain(whole);
        if !in_pieces {
            return moved;
        }
    }
    if len < whole.len() || flags & DONTUNMAP != 0 || STATE.marked.touch(whole) || STATE.is_sandboxed() {
        return Err(e);
    }
    let last = whole.end - PAGE;
    // SAFETY: changes no contents.
    let writable = unsafe { sys::madvise(last, PAGE, k::MADV_POPULATE_WRITE) }.is_ok();
    let prot = PROT_READ | if writable { PROT_WRITE } else { 0 };
    let end = End { prot, sealed: true, properties: Properties::default() };
    let tail = Move { whole, len, end, flags };
    // SAFETY: maps only where nothing is.
    if flags & FIXED == 0 && unsafe { tail.grow_in_place() } {
        return Ok(whole.start);
    }
    if flags & MAYMOVE == 0 {
        return Err(Errno::ENOMEM);
    }
    let new = scratch::temporary(len)?;
    // SAFETY: the copy is new; the program gives the old addresses up, and those at `to` with MREMAP_FIXED.
    let moved = unsafe {
        with_scratch(|text, _| copy_pages(whole, new, text)).and_then(|()| sys::mprotect(new, len, prot)).and_then(
            |()| match flags & FIXED {
                0 => Ok(new),
                _ => sys::mremap_fixed(new, len, to).map(|()| to),
            },
        )
    };
    // SAFETY: see above; either is nobody's any more. A failure would leak it, no more.
    unsafe {
        let _ = match moved {
            Ok(_) => sys::munmap(whole.start, whole.len()),
            Err(_) => sys::munmap(new, len),
        };
    }
    moved
}

/// Whether a range is anonymous memory for which nothing was asked, by what the kernel allows there; no where a clone
/// that another thread makes might notice the question.
fn is_plain(whole: Range) -> bool {
    if STATE.properties() != 0 || sys::unshare_memory().is_err() {
        return false;
    }
    // SAFETY: changes what clones get, and back before there can be one.
    unsafe {
        let anonymous = sys::madvise(whole.start, whole.len(), k::MADV_WIPEONFORK).is_ok();
        sys::madvise(whole.start, whole.len(), k::MADV_KEEPONFORK).is_ok() && anonymous
    }
}

/// The last piece of a mapping: new memory behind it is like it.
#[derive(Clone, Copy)]
struct End {
    prot: u32,
    sealed: bool,
    properties: Properties,
}

impl End {
    /// The flag of `mmap(2)` that new memory behind it has in common with it, if it has.
    fn unreserved(&self) -> u32 {
        if self.properties.advice & offset::UNRESERVED != 0 { MAP_NORESERVE } else { 0 }
    }

    /// Gives new memory what holds for this piece.
    fn apply(&self, at: usize, len: usize) -> Result<()> {
        self.properties.apply(at, len, self.prot)
    }
}

/// Lists the pieces of a range as runs; returns what the last one is like. `EFAULT`, as the kernel would say, unless
/// they are one mapping to the program: private memory without a gap, of one protection. Gives their number too.
fn pieces(runs: &mut [Run], whole: Range) -> Result<(End, usize)> {
    let (mut at, mut count) = (whole.start, 0);
    let mut last = None;
    lookup::for_each(whole, Wanted::All, |v| {
        let range = v.range.intersect(whole);
        if range.is_empty() {
            return Ok(());
        }
        let sealed = v.kind == Kind::Sealed;
        let ours = sealed || v.kind == Kind::Anonymous && !v.shared;
        if !ours || range.start != at || last.is_some_and(|l: End| l.prot != v.prot) {
            return Err(Errno::EFAULT);
        }
        *runs.get_mut(count).ok_or(Errno::E2BIG)? = Run { range, ..Run::default() };
        count += 1;
        at = range.end;
        let advice = if sealed { offset::advice_of_sealed(v) } else { 0 };
        let properties = Properties { advice, ..Properties::default() };
        last = Some(End { prot: v.prot, sealed, properties });
        Ok(())
    })?;
    last.filter(|_| at == whole.end).map(|end| (end, count)).ok_or(Errno::EFAULT)
}

struct Move {
    whole: Range,
    /// New length.
    len: usize,
    end: End,
    flags: usize,
}

impl Move {
    /// # Safety
    /// As `mremap(2)`.
    unsafe fn run(self, to: Option<usize>) -> Result<usize> {
        if self.flags & (FIXED | DONTUNMAP) == 0 {
            // SAFETY: maps only where nothing is.
            if unsafe { self.grow_in_place() } {
                return Ok(self.whole.start);
            }
            if self.flags & MAYMOVE == 0 {
                return Err(Errno::ENOMEM);
            }
        }
        self.may_grow()?;
        let to = match to {
            Some(to) => {
                let flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED;
                // SAFETY: MREMAP_FIXED replaces what is there.
                unsafe { sys::mmap(to, self.len, PROT_NONE, flags, -1, 0) }?
            }
            None => match reserve(self.len, self.whole.start) {
                // SAFETY: the caller's.
                Err(Errno::ENOMEM) if self.flags & DONTUNMAP == 0 => return unsafe { self.run_into_gap() },
                reserved => reserved?,
            },
        };
        // SAFETY: the destination is the program's, or reserved just now.
        unsafe { self.run_to(to) }
    }

    /// Whether the program may have more memory by what the mapping grows: where something is mapped already, as at the destination in
    /// the end, `RLIMIT_DATA` isn't asked.
    fn may_grow(&self) -> Result<()> {
        let more = self.len - self.whole.len();
        if more == 0 {
            return Ok(());
        }
        let flags = MAP_PRIVATE | MAP_ANONYMOUS | self.end.unreserved();
        // SAFETY: new memory that nobody uses.
        unsafe { sys::mmap(0, more, self.end.prot, flags, -1, 0).and_then(|at| sys::munmap(at, more)) }
    }

    /// Where the address space may only grow by what the mapping grows (`RLIMIT_AS`) nothing can be reserved: goes to
    /// addresses that nobody uses, as long as nobody else may come there.
    ///
    /// # Safety
    /// As `mremap(2)`.
    unsafe fn run_into_gap(&self) -> Result<usize> {
        let mut buf = [0; 1024];
        let mask = sys::block_signals()?;
        let moved = alone::alone_now(&mut buf).and_then(|alone| {
            let to = if alone { by_any_means(|| gap(self.len, self.whole.start))? } else { None };
            // SAFETY: nothing is mapped there, and nobody else maps anything.
            to.map_or(Err(Errno::ENOMEM), |to| unsafe { self.run_to(to) })
        });
        sys::restore_signals(mask);
        moved
    }

    /// # Safety
    /// The destination is the program's to replace.
    unsafe fn run_to(&self, to: usize) -> Result<usize> {
        // SAFETY: as the caller says.
        let moved = with_scratch(|_, runs| unsafe {
            let (_, count) = list(self.whole, runs)?;
            self.add_tail(to + self.whole.len())?;
            self.move_to(to, &runs[..count])
        });
        if let Err(e) = moved {
            // SAFETY: nothing of the program's is left there.
            return unsafe { sys::munmap(to, self.len) }.and(Err(e));
        }
        Ok(to)
    }

    unsafe fn grow_in_place(&self) -> bool {
        let Range { start, end } = Range::new(self.whole.end, self.whole.start + self.len);
        if start == end {
            return true;
        }
        let flags = MAP_PRIVATE | MAP_ANONYMOUS | k::MAP_FIXED_NOREPLACE;
        let flags = flags | self.end.unreserved();
        // SAFETY: replaces nothing.
        match unsafe { sys::mmap(start, end - start, self.end.prot, flags, -1, 0) } {
            Ok(at) if at == start && self.end.apply(start, end - start).is_ok() => true,
            Ok(elsewhere) => {
                // It can't be like the rest; or before Linux 4.17, where the address is only a hint.
                // SAFETY: mapped just now.
                let _ = unsafe { sys::munmap(elsewhere, end - start) };
                false
            }
            Err(_) => false,
        }
    }

    unsafe fn add_tail(&self, at: usize) -> Result<()> {
        let len = self.len - self.whole.len();
        if len > 0 {
            // SAFETY: the caller's destination.
            unsafe { remap::fresh_with(Range::new(at, at + len), self.end.prot, self.end.unreserved()) }?;
            self.end.apply(at, len)?;
        }
        Ok(())
    }

    /// Moves every piece; when one can't be moved, all are back where they were.
    ///
    /// With `MREMAP_DONTUNMAP` the kernel leaves each piece's mapping behind as it moves the pages, empty and not
    /// locked: its addresses are free at no moment, or another thread's new memory might come there.
    unsafe fn move_to(&self, to: usize, pieces: &[Run]) -> Result<()> {
        let flags = MAYMOVE | FIXED | self.flags & DONTUNMAP;
        for (done, piece) in pieces.iter().enumerate() {
            let (Range { start, .. }, len) = (piece.range, piece.range.len());
            // SAFETY: the target is reserved for this piece.
            if let Err(e) = unsafe { sys::mremap(start, len, len, flags, self.target(to, piece)) } {
                // SAFETY: they came from there a moment ago.
                unsafe { self.move_back(to, &pieces[..done]) };
                return Err(e);
            }
        }
        Ok(())
    }

    /// # Safety
    /// The pieces have been moved to `to`.
    unsafe fn move_back(&self, to: usize, pieces: &[Run]) {
        for piece in pieces {
            // SAFETY: see above.
            let back = || unsafe { sys::mremap_fixed(self.target(to, piece), piece.range.len(), piece.range.start) };
            let mut attempts = 0;
            while back().is_err() {
                attempts += 1;
                if attempts == ATTEMPTS {
                    STATE.die();
                }
                sys::pause_briefly();
            }
        }
    }

    fn target(&self, to: usize, piece: &Run) -> usize {
        to + (piece.range.start - self.whole.start)
    }
}

/// The highest addresses for `len` bytes where nothing is mapped nor grows to, equal to `like` modulo 2 MB; none if
/// there are none.
fn gap(len: usize, like: usize) -> Result<Option<usize>> {
    const TOP: usize = 1 << 47;
    let (mut before, mut found) = (HUGE, None);
    lookup::for_each(Range::ALL, Wanted::All, |v| {
        if v.kind != Kind::Stack && v.range.start < TOP {
            let highest = v.range.start.saturating_sub(len.saturating_add(2 * HUGE));
            let at = (highest & !(HUGE - 1)) + (like & (HUGE - 1));
            found = if at >= before + HUGE { Some(at) } else { found };
        }
        before = v.range.end;
        Ok(())
    })?;
    Ok(found)
}

/// Addresses for `len` bytes, equal to `like` modulo 2 MB so that huge pages stay huge.
fn reserve(len: usize, like: usize) -> Result<usize> {
    let flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE;
    let most = len.checked_add(HUGE).ok_or(Errno::ENOMEM)?;
    // SAFETY: a fresh mapping, cut to size.
    unsafe {
        let base = sys::mmap(0, most, PROT_NONE, flags, -1, 0)?;
        let at = base + (like.wrapping_sub(base) & (HUGE - 1));
        if at > base {
            sys::munmap(base, at - base)?;
        }
        sys::munmap(at + len, base + most - (at + len))?;
        Ok(at)
    }
}
