//! The program's system calls, as far as they mean something else on sealed memory.
//!
//! A C library makes each of them at one or two places, and whoever calls it gets there: the program through its symbols, a
//! library with symbols of its own (`RTLD_DEEPBIND`), `dlsym`, an interpreter's foreign functions, the library itself (`realloc`,
//! the end of a thread). So these places are rewritten, in every C library that is loaded, before the first memory is sealed: a
//! jump takes the place of `mov $number,%eax`, and leads to the functions of [`HOOKS`], which answer as the kernel would. Before the
//! first seal nothing is rewritten: a process that is never sealed has nothing of this.
//!
//! What isn't recognised is left alone, and the process is refused ([`Reason::LibcCalls`]): [`site`] says what a place looks like,
//! [`write`] how it is written. At last every function is called once, to see that it leads here: a translator of machine code may
//! go on with what it read before.

pub(crate) mod enter;
mod hooks;
mod object;
mod site;
mod stub;
mod write;

use crate::arena::Arena;
use crate::code;
use crate::code::remembered::CODE;
use crate::never_seal::Reason;
use crate::outcome::{Error, Step};
use crate::proc::vma::{self, Kind, Vma};
use crate::range::Range;
use crate::stack::roomy;
use crate::state::STATE;
use crate::sys::{self, Errno, MAP_ANONYMOUS, MAP_PRIVATE, PAGE, PROT_EXEC, PROT_READ, PROT_WRITE, Result};
use crate::threads::alone;
use crate::threads::pauses::Pauses;
use core::ffi::CStr;
use core::sync::atomic::{AtomicU64, AtomicUsize, Ordering::SeqCst};
use enter::Registers;
use hooks::HOOKS;
use object::{Object, Reader};
use site::{JUMP, SYSCALL, Site, Unclear};
use stub::Page;
use syscalls::Sysno;
use write::Writer;

/// A system call that the program makes: the kernel's arguments.
pub type Arguments = [usize; 6];

/// What takes the place of a system call. To add one: a row in [`HOOKS`].
pub struct Hook {
    /// Its number.
    number: Sysno,
    /// The C library's function that makes it, if it has one: called once with zeros, to see that it leads to the hook.
    function: Option<&'static CStr>,
    /// Answers as the kernel would.
    take: unsafe fn(&Arguments) -> Result<usize>,
}

/// Numbers of system calls are below this.
const NUMBERS: usize = 512;

/// A bit for every number whose calls are looked at: [`WANTED`] until [`let_go`].
static HOOKED: [AtomicU64; NUMBERS / 64] = {
    let mut bits = [const { AtomicU64::new(0) }; NUMBERS / 64];
    let mut i = 0;
    while i < bits.len() {
        bits[i] = AtomicU64::new(WANTED[i]);
        i += 1;
    }
    bits
};

/// A bit for every number with a hook.
const WANTED: [u64; NUMBERS / 64] = {
    let mut bits = [0; NUMBERS / 64];
    let mut i = 0;
    while i < HOOKS.len() {
        let number = HOOKS[i].number as usize;
        bits[number / 64] |= 1 << (number % 64);
        i += 1;
    }
    bits
};

fn is_hooked(number: u32) -> bool {
    WANTED.get(number as usize / 64).is_some_and(|bits| bits >> (number % 64) & 1 == 1)
}

/// The number a trial call is to arrive with, or [`ARRIVED`]; [`NO_TRIAL`] at other times.
static TRIAL: AtomicUsize = AtomicUsize::new(NO_TRIAL);
const NO_TRIAL: usize = usize::MAX;
const ARRIVED: usize = usize::MAX - 1;

/// What was executable when all was last in place: a sum over the mappings.
static SEEN: AtomicU64 = AtomicU64::new(NOTHING);
const NOTHING: u64 = 0;

/// Where a statically linked program's `syscall` is; 0: not known.
static LINKED: AtomicUsize = AtomicUsize::new(0);

/// Tells the address of the C library's `syscall` function, as the caller was linked with it. Needed where the C library is part of the
/// program: there are no symbols to find it by.
pub fn know_libc(syscall: usize) {
    LINKED.store(syscall, SeqCst);
}

/// A system call has arrived at a stub: does what its hook says.
extern "C" fn taken(registers: &mut Registers) {
    let Registers { rax, rdi, rsi, rdx, r10, r8, r9, .. } = *registers;
    // The kernel looks at the lower half.
    let number = rax as u32 as usize;
    if TRIAL.load(SeqCst) == number {
        TRIAL.store(ARRIVED, SeqCst);
        registers.rax = 0;
        return;
    }
    let Some(hook) = HOOKS.iter().find(|h| h.number as usize == number) else { return };
    // SAFETY: the program's own call.
    let result = unsafe { (hook.take)(&[rdi, rsi, rdx, r10, r8, r9]) };
    registers.rax = result.unwrap_or_else(|e| (-e.into_raw()) as isize as usize);
}

/// Most C libraries and loaders of one process that are rewritten: one each, and those of namespaces of their own (`dlmopen(3)`).
const MAX_LIBRARIES: usize = 16;
/// Most pages of stubs that are known again.
const MAX_PAGES: usize = 2 * MAX_LIBRARIES;
/// Most places in one library.
const MAX_SITES: usize = 64;

/// A piece of code that makes system calls for others.
#[derive(Clone, Copy)]
struct Library {
    code: Range,
    /// Where its file begins in memory.
    base: usize,
    kind: Part,
}

impl Library {
    /// Its function `syscall`.
    fn by_number(&self, reader: &Reader) -> Option<usize> {
        match self.kind {
            Part::Loader | Part::Runtime => None,
            Part::Static => Some(LINKED.load(SeqCst)),
            Part::Libc => Object::at(reader, self.base)?.function(c"syscall"),
        }
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Part {
    Libc,
    /// The loader; or the library for threads that glibc had before 2.34.
    Loader,
    /// The program, with a C library in it.
    Static,
    /// The runtime of a sanitizer, which makes its system calls itself; it may be part of the program.
    Runtime,
}

/// Has the program's calls go where they went before there was an engine: nothing is sealed, nor will be. Where that can't be written
/// they are made by the stubs.
pub(crate) fn let_go() {
    for word in &HOOKED {
        word.store(0, SeqCst);
    }
    SEEN.store(0, SeqCst);
    let Ok(arena) = Arena::map() else { return };
    // Instructions may be replaced only where nobody else executes them.
    if alone::alone_now(&mut arena.text) == Ok(true) {
        let _ = roomy(|| restore(&mut arena.text));
    }
    arena.unmap();
}

fn restore(buf: &mut [u8]) -> Result<()> {
    let own = enter::enter as *const () as usize;
    let mut found = Found::default();
    found.look(buf)?;
    let writer = Writer::open();
    for library in &found.libraries[..found.library_count] {
        // SAFETY: the library's code, which nobody else executes or writes.
        let code = unsafe { code_of(library.code) };
        let mut places = Places { jumps: [Jump::default(); MAX_SITES], count: 0 };
        for_each_jump(code, library.code.start, &found, |site, line, entry| {
            let bytes = line.first_chunk::<JUMP>().copied().filter(|_| entry == own);
            places.push(library.code.start + site.at, line, bytes).ok_or(Unclear(site.at))
        })
        .map_err(|Unclear(_)| Errno::EOPNOTSUPP)?;
        write_all(&places, &writer)?;
    }
    Ok(())
}

/// Sees to it that all of the program's calls that matter lead to [`HOOKS`], or refuses.
pub(crate) fn take(arena: &mut Arena, pauses: &mut Option<Pauses>) -> core::result::Result<(), Error> {
    const ATTEMPTS: usize = 100;
    let look = |e| Error::System(Step::Look, e);
    if sum(&mut arena.text).map_err(look)? == SEEN.load(SeqCst) {
        return Ok(());
    }
    let Some(pauses) = pauses else {
        return take_stopped(&mut arena.text, |_| false).map_err(|_| Error::Refused(Reason::LibcCalls));
    };
    for _ in 0..ATTEMPTS {
        pauses.stop(arena).map_err(Error::Refused)?;
        let taken = take_stopped(&mut arena.text, |range| pauses.executes_in(range));
        pauses.resume();
        match taken {
            Ok(()) => return Ok(()),
            Err(Errno::EAGAIN) => sys::pause_briefly(),
            Err(_) => return Err(Error::Refused(Reason::LibcCalls)),
        }
    }
    Err(Error::Refused(Reason::ThreadUnstoppable))
}

/// What is executable, as one number.
fn sum(buf: &mut [u8]) -> Result<u64> {
    let mut sum = 1;
    vma::for_each(c"/proc/thread-self/maps", buf, |v| {
        if v.prot & PROT_EXEC != 0 {
            for part in [v.range.start as u64, v.range.end as u64, v.inode, u64::from(v.device[1])] {
                // FNV-1a, by words.
                sum = (sum ^ part).wrapping_mul(0x0100_0000_01b3);
            }
        }
        Ok(())
    })?;
    Ok(sum)
}

/// With other threads stopped, if there are any. `executes` tells whether one of them is about to execute in a range: it must not be
/// past a rewritten instruction with its call still to come. `EAGAIN` then.
fn take_stopped(buf: &mut [u8], executes: impl Fn(Range) -> bool) -> Result<()> {
    let mut found = Found::default();
    found.look(buf)?;
    enter::prepare();
    CODE.know_none();
    for library in &found.libraries[..found.library_count] {
        let places = match rewrite(library, &found, buf, &executes) {
            // Whatever is in the way, its calls are found by crate::code then, and the process is refused for them.
            Err(e) if library.kind == Part::Runtime && e != Errno::EAGAIN => continue,
            places => places?,
        };
        match library.kind {
            Part::Runtime if !are_all(library, &places) => continue,
            Part::Runtime => {}
            _ => try_out(library, &places)?,
        }
        CODE.know(library.code.start)?;
    }
    // With the pages that were mapped meanwhile. Where something could not be read a C library may be missing: another look next time.
    let seen = if found.reader.failed() { NOTHING } else { sum(buf)? };
    SEEN.store(seen, SeqCst);
    Ok(())
}

/// Whether these are all places of a library that make a call with a hook, or one that can't be told.
fn are_all(library: &Library, places: &Places) -> bool {
    let is_known = |call: usize| places.all().iter().any(|jump| jump.call == call);
    code::process::all_sites(library.base, library.code, is_known)
}

/// What is executable in this process, as far as it matters here.
struct Found {
    libraries: [Library; MAX_LIBRARIES],
    library_count: usize,
    /// Pages of stubs, by this copy of the engine or another.
    pages: [usize; MAX_PAGES],
    page_count: usize,
    reader: Reader,
}

impl Default for Found {
    fn default() -> Found {
        let none = Library { code: Range::default(), base: 0, kind: Part::Libc };
        Found {
            libraries: [none; MAX_LIBRARIES],
            library_count: 0,
            pages: [0; MAX_PAGES],
            page_count: 0,
            reader: Reader::default(),
        }
    }
}

impl Found {
    fn look(&mut self, buf: &mut [u8]) -> Result<()> {
        let own = enter::enter as *const () as usize;
        let (mut file, mut own_code) = (None::<Vma>, None);
        vma::for_each(c"/proc/thread-self/maps", buf, |v| {
            if v.kind == Kind::File && v.inode != 0 && v.offset == 0 {
                file = Some(*v);
            }
            if v.prot & (PROT_READ | PROT_EXEC) != PROT_READ | PROT_EXEC || v.kind == Kind::Kernel {
                return Ok(());
            }
            if v.kind != Kind::File {
                return self.look_for_stubs(v);
            }
            let base = file.filter(|f| (f.inode, f.device) == (v.inode, v.device) && f.prot & PROT_READ != 0);
            if v.range.start <= own && own < v.range.end {
                own_code = Some(Library { code: v.range, base: 0, kind: Part::Static });
                return Ok(());
            }
            match base {
                Some(base) => self.look_at(base.range.start, v),
                None => Ok(()),
            }
        })?;
        if self.libraries[..self.library_count].iter().all(|l| l.kind != Part::Libc) {
            // Where the C library isn't an object of its own it is part of the program, as this code is.
            let linked = LINKED.load(SeqCst);
            let program = own_code.filter(|l| l.code.start <= linked && linked < l.code.end).ok_or(Errno::ENOSYS)?;
            self.push(program)?;
        }
        Ok(())
    }

    fn look_for_stubs(&mut self, v: &Vma) -> Result<()> {
        // The kernel makes one mapping of pages that touch.
        if v.range.len() > MAX_PAGES * PAGE {
            return Ok(());
        }
        for at in (v.range.start..v.range.end).step_by(PAGE) {
            let mut head = [0; stub::HEAD];
            match sys::read_own(at, &mut head) {
                // A page of the program's own that is a guard, or has nothing behind it.
                Err(Errno::EFAULT) => continue,
                other => other?,
            }
            if stub::is_page(&head) {
                *self.pages.get_mut(self.page_count).ok_or(Errno::E2BIG)? = at;
                self.page_count += 1;
            }
        }
        Ok(())
    }

    /// Looks at a mapping of code, of the file that is mapped from its start at `base`.
    fn look_at(&mut self, base: usize, v: &Vma) -> Result<()> {
        if let Some(last) = self.libraries[..self.library_count].last_mut()
            && last.base == base
            && last.code.end == v.range.start
        {
            last.code.end = v.range.end;
            return Ok(());
        }
        let Some(object) = Object::at(&self.reader, base) else { return Ok(()) };
        let has = |name| object.function(name).is_some();
        let kind = match () {
            () if has(c"__libc_start_main") && has(c"madvise") => Part::Libc,
            // Before the loader, whose function it intercepts.
            () if has(c"__sanitizer_print_stack_trace") || has(c"__sanitizer_set_death_callback") => Part::Runtime,
            () if has(c"__tls_get_addr") || has(c"__pthread_initialize_minimal") => Part::Loader,
            () => return Ok(()),
        };
        self.push(Library { code: v.range, base, kind })
    }

    fn push(&mut self, library: Library) -> Result<()> {
        *self.libraries.get_mut(self.library_count).ok_or(Errno::E2BIG)? = library;
        self.library_count += 1;
        Ok(())
    }

    /// The page of stubs that holds an address.
    fn page_of(&self, at: usize) -> Option<&'static [u8; PAGE]> {
        let page = self.pages[..self.page_count].iter().find(|page| **page == at & !(PAGE - 1))?;
        // SAFETY: mapped by an engine, which never unmaps or changes it.
        Some(unsafe { &*(*page as *const [u8; PAGE]) })
    }
}

/// Whether an address lies in a page of stubs.
pub(crate) fn is_stub(memory: &mut impl code::Memory, at: usize) -> bool {
    memory.bytes(at & !(PAGE - 1), PAGE).is_some_and(stub::is_page)
}

/// The bytes of a piece of code.
///
/// # Safety
/// It is mapped and readable, and nobody writes to it as long as the slice is used.
unsafe fn code_of<'a>(range: Range) -> &'a [u8] {
    // SAFETY: as the caller says.
    unsafe { core::slice::from_raw_parts(range.start as *const u8, range.len()) }
}

/// What is written at one place.
#[derive(Clone, Copy, Default)]
struct Jump {
    at: usize,
    /// Where the instruction `syscall` is that it leads to.
    call: usize,
    /// The number of the call that is made there; `None`: any.
    number: Option<u32>,
    /// `None`: it is there.
    bytes: Option<[u8; JUMP]>,
}

/// All places of one library.
struct Places {
    jumps: [Jump; MAX_SITES],
    count: usize,
}

impl Places {
    fn push(&mut self, at: usize, line: &[u8], bytes: Option<[u8; JUMP]>) -> Option<()> {
        *self.jumps.get_mut(self.count)? = Jump { at, call: at + line.len(), number: site::number(line), bytes };
        self.count += 1;
        Some(())
    }

    fn all(&self) -> &[Jump] {
        &self.jumps[..self.count]
    }
}

/// Has all places of a library lead to stubs.
fn rewrite(library: &Library, found: &Found, buf: &mut [u8], executes: &impl Fn(Range) -> bool) -> Result<Places> {
    let mut places = Places { jumps: [Jump::default(); MAX_SITES], count: 0 };
    let own = enter::enter as *const () as usize;
    let mut page = Page::new(place_near(library, buf)?, own);
    let (mut busy, mut another) = (false, false);
    let start = library.code.start;
    {
        // SAFETY: the library's code, which nobody writes to while threads are stopped.
        let code = unsafe { code_of(library.code) };
        let mut add = |site: Site, line: &[u8], entry: Option<usize>| {
            let unclear = Unclear(site.at);
            let (at, call) = (start + site.at, start + site.at + site.line);
            if entry == Some(own) {
                return places.push(at, line, None).ok_or(unclear);
            }
            // Another copy of the engine, in a library or in the shim, has been here: it stays so for what it has sealed.
            another |= entry.is_some();
            busy |= executes(Range::new(at + 1, call + 1));
            let stub = page.add(line, call + SYSCALL.len()).ok_or(unclear)?;
            let jump = stub::jump(at, stub).ok_or(unclear)?;
            places.push(at, line, Some(jump)).ok_or(unclear)
        };
        let by_number = library.by_number(&found.reader).and_then(|function| function.checked_sub(start));
        let whole = |site: Site| add(site, &code[site.at..site.at + site.line], None);
        let new = site::for_each(code, by_number, is_hooked, whole);
        let old = for_each_jump(code, start, found, |site, line, entry| add(site, line, Some(entry)));
        new.and(old).map_err(|Unclear(_)| Errno::EOPNOTSUPP)?;
    }
    if busy {
        return Err(Errno::EAGAIN);
    }
    if places.all().is_empty() && library.kind != Part::Loader {
        return Err(Errno::EOPNOTSUPP);
    }
    if another {
        // Its discards come here from now on.
        STATE.note_another();
    }
    if places.all().iter().any(|jump| jump.bytes.is_some()) {
        let writer = Writer::open();
        publish(&page, &writer)?;
        write_all(&places, &writer)?;
    }
    Ok(places)
}

/// Puts the jumps in place.
fn write_all(places: &Places, writer: &Writer) -> Result<()> {
    /// A mapping more costs a fork as much as copying what page tables say about this much.
    const SPAN: usize = 512 << 10;
    let mut pages = Range::default();
    for jump in places.all().iter().filter(|jump| jump.bytes.is_some()) {
        let own = Range::pages_of(jump.at, JUMP);
        let both = Range::new(pages.start.min(own.start), pages.end.max(own.end));
        if !pages.is_empty() && both.len() <= SPAN {
            pages = both;
        } else {
            set_apart(pages);
            pages = own;
        }
    }
    set_apart(pages);
    for (at, bytes) in places.all().iter().filter_map(|jump| Some((jump.at, jump.bytes?))) {
        // SAFETY: the jump replaces one whole instruction, or the beginning of one, that nobody is in the middle of, and leads to a
        // stub that does the same.
        unsafe { writer.write(at, &bytes) }?;
        // SAFETY: code that can be read.
        if unsafe { code_of(Range::new(at, at + JUMP)) } != bytes {
            return Err(Errno::EIO);
        }
    }
    Ok(())
}

/// A fork copies the page tables of a file mapping that has written pages: let that be the mapping of these pages alone. Advice on reading
/// ahead tells it from its neighbours. Where that is refused forks are slower.
fn set_apart(pages: Range) {
    if !pages.is_empty() {
        // SAFETY: nothing is discarded.
        let _ = unsafe { sys::madvise(pages.start, pages.len(), linux_raw_sys::general::MADV_RANDOM) };
    }
}

/// Calls `each` with the places that lead to stubs already: what the stub executes in their stead, and where it leads to.
fn for_each_jump(
    code: &[u8],
    start: usize,
    found: &Found,
    mut each: impl FnMut(Site, &[u8], usize) -> core::result::Result<(), Unclear>,
) -> core::result::Result<(), Unclear> {
    if found.page_count == 0 {
        return Ok(());
    }
    for at in site::places_of(0xe9, code) {
        let Some(to) = stub::target(&code[at..], start + at) else { continue };
        let Some(page) = found.page_of(to) else { continue };
        // Bytes of another instruction may look like a jump there: one page in some dozens is met by chance.
        let Some(line) = stub::line_of(page, to % PAGE) else { continue };
        if code.get(at + line.len()..at + line.len() + SYSCALL.len()) != Some(&SYSCALL) {
            return Err(Unclear(at));
        }
        each(Site { at, line: line.len() }, &page[line], stub::entry(page))?;
    }
    Ok(())
}

/// A free page that jumps from everywhere in the library's code reach.
///
/// Straight below a mapping, where the program's next one would have ended too: above one the program may let it grow. Best below the
/// library itself, or another object: nobody discards what lies there, as a program may that has made a hole between mappings of its
/// own. Last below what the engine has mapped for this call alone: the page would be left behind in the middle of a gap. Not below the
/// stack, which grows down.
fn place_near(library: &Library, buf: &mut [u8]) -> Result<usize> {
    const REACH: usize = (1 << 31) - (1 << 20);
    let here = 0u8;
    let own = [&raw const here as usize, buf.as_ptr() as usize];
    // The page, with what it is ranked by: less is better.
    let (mut end, mut best) = (0, None::<((u8, usize), usize)>);
    vma::for_each(c"/proc/thread-self/maps", buf, |v| {
        let at = v.range.start.saturating_sub(PAGE);
        let distance = at.abs_diff(library.code.start).max(at.abs_diff(library.code.end));
        let (kind, gap) = match v.kind {
            _ if v.range.start == library.base => (0, 4 * PAGE),
            Kind::File if v.offset == 0 && v.prot == PROT_READ => (1, 4 * PAGE),
            _ if own.iter().any(|at| v.range.start <= *at && *at < v.range.end) => (3, 16 * PAGE),
            _ => (2, 16 * PAGE),
        };
        let fits = v.kind != Kind::Stack && at >= end + gap && distance < REACH;
        if fits && best.is_none_or(|(rank, _)| (kind, distance) < rank) {
            best = Some(((kind, distance), at));
        }
        end = v.range.end;
        Ok(())
    })?;
    best.map(|(_, at)| at).ok_or(Errno::ENOMEM)
}

/// Maps the page where it was made for.
fn publish(page: &Page, writer: &Writer) -> Result<()> {
    use linux_raw_sys::general::MAP_FIXED_NOREPLACE;
    let map = |prot| {
        let flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE;
        // SAFETY: replaces nothing.
        let at = unsafe { sys::mmap(page.at, PAGE, prot, flags, -1, 0) }?;
        if at != page.at {
            // SAFETY: mapped just now.
            unsafe { sys::munmap(at, PAGE) }?;
            return Err(Errno::EEXIST);
        }
        Ok(())
    };
    // SAFETY: the page is new, and nothing leads there yet.
    unsafe {
        map(PROT_READ | PROT_WRITE)?;
        sys::copy_bytes(page.bytes.as_ptr() as usize, page.at, PAGE);
        if sys::mprotect(page.at, PAGE, PROT_READ | PROT_EXEC).is_ok() {
            return Ok(());
        }
        // Memory that was writable may not become executable here. But it may be born so, and written as code is.
        sys::munmap(page.at, PAGE)?;
        map(PROT_READ | PROT_EXEC)?;
        writer.write(page.at, &page.bytes).inspect_err(|_| {
            let _ = sys::munmap(page.at, PAGE);
        })
    }
}

/// Calls every function of a library that should lead to a hook.
fn try_out(library: &Library, places: &Places) -> Result<()> {
    /// Bytes from a function's beginning within which it makes its call.
    const FUNCTION: usize = 256;
    // Or it would be called with a breakpoint in its way.
    let is_rewritten = |function: usize, number: Option<u32>| {
        let near = function..function + FUNCTION;
        let found = places.all().iter().any(|jump| near.contains(&jump.at) && jump.number == number);
        if found { Ok(function) } else { Err(Errno::EOPNOTSUPP) }
    };
    if library.kind == Part::Loader {
        return Ok(());
    }
    let reader = Reader::default();
    let syscall = library.by_number(&reader).ok_or(Errno::EOPNOTSUPP)?;
    let object = (library.kind == Part::Libc).then(|| Object::at(&reader, library.base)).flatten();
    for hook in HOOKS {
        let number = hook.number as usize;
        if let Some(function) = hook.function.zip(object.as_ref()).and_then(|(name, o)| o.function(name)) {
            // SAFETY: the trial takes the place of the system call, and without it all arguments are zeros, which every call refuses or
            // takes for nothing.
            unsafe { arrives(number, is_rewritten(function, Some(number as u32))?, [0; 6]) }?;
        }
        // SAFETY: as above.
        unsafe { arrives(number, is_rewritten(syscall, None)?, [number, 0, 0, 0, 0, 0]) }?;
    }
    Ok(())
}

/// # Safety
/// A function of the C library, to which the arguments do no harm.
unsafe fn arrives(number: usize, function: usize, arguments: Arguments) -> Result<()> {
    // SAFETY: as the caller says; C functions of fewer arguments don't look at the rest.
    let function: unsafe extern "C" fn(usize, usize, usize, usize, usize, usize) -> usize =
        unsafe { core::mem::transmute(function) };
    let [a, b, c, d, e, f] = arguments;
    TRIAL.store(number, SeqCst);
    // SAFETY: see above.
    unsafe { function(a, b, c, d, e, f) };
    if TRIAL.swap(NO_TRIAL, SeqCst) == ARRIVED { Ok(()) } else { Err(Errno::EOPNOTSUPP) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scratch;

    #[test]
    fn bytes_that_look_like_a_jump_to_a_page_of_stubs_are_none() {
        let at = scratch::temporary(2 * PAGE).unwrap();
        let mut page = Page::new(at + PAGE, 0x1234);
        let line = [0xb8, 28, 0, 0, 0];
        let stub = page.add(&line, at + line.len() + SYSCALL.len()).unwrap();
        // SAFETY: the second of the pages just mapped.
        unsafe { sys::copy_bytes(page.bytes.as_ptr() as usize, page.at, PAGE) };
        let mut found = Found { page_count: 1, ..Found::default() };
        found.pages[0] = page.at;
        let mut code = [0x90; 64];
        code[..JUMP].copy_from_slice(&stub::jump(at, stub).unwrap());
        code[JUMP..JUMP + SYSCALL.len()].copy_from_slice(&SYSCALL);
        // The end of an instruction, as libc's strtof has one: `xor %r13,%r9` and what follows.
        code[32..32 + JUMP].copy_from_slice(&stub::jump(at + 32, page.at + 0xb14).unwrap());
        let mut jumps = Vec::new();
        let listed = for_each_jump(&code, at, &found, |site, line, entry| {
            jumps.push((site.at, line.to_vec(), entry));
            Ok(())
        });
        assert!(listed.is_ok());
        assert_eq!(jumps, [(0, line.to_vec(), 0x1234)]);
        // SAFETY: nobody has them.
        unsafe { sys::munmap(at, 2 * PAGE) }.unwrap();
    }
}
