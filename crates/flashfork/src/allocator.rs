//! Allocators and runtimes that trust `MADV_DONTNEED` to give zeros, and the shim that keeps that trust.
//!
//! jemalloc hands out memory it has purged as zeroed (src/extent.c); Go's heap does the same (mheap.go). On sealed memory
//! the old bytes would come back. glibc, mimalloc and gperftools do not rely on it.

use memchr::memmem::Finder;
use std::ffi::CStr;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// Symbols that give such a program away.
const RELIERS: &[(&CStr, &str)] = &[
    (c"mallctl", JEMALLOC),
    (c"je_mallctl", JEMALLOC),
    (c"_rjem_mallctl", JEMALLOC),
    (c"runtime.goexit", "the Go runtime"),
    (c"_cgo_topofstack", "the Go runtime"),
];

const JEMALLOC: &str = "jemalloc";

/// The shim's own call: tells it that this library has sealed memory.
const NOTE: &CStr = c"flashfork_preload_note_sealed";

/// What a loaded object exports by that name.
pub fn symbol(name: &CStr) -> Option<*mut libc::c_void> {
    // SAFETY: a lookup in the objects already loaded.
    let found = unsafe { libc::dlsym(libc::RTLD_DEFAULT, name.as_ptr()) };
    (!found.is_null()).then_some(found)
}

/// The name of what relies on `MADV_DONTNEED`, if it shows itself.
pub fn relies_on_dontneed() -> Option<&'static str> {
    let by_symbol = RELIERS.iter().find(|(name, _)| symbol(name).is_some()).map(|(_, what)| *what);
    by_symbol.or_else(|| jemalloc_is_linked_in().then_some(JEMALLOC))
}

/// Whether some loaded object contains jemalloc without exporting its symbols, as Rust programs and Python modules do.
///
/// jemalloc begins each of its messages with its name in angle brackets, and keeps that text in read-only data. Reading all
/// read-only data takes some tenths of a second per GB, once; and again only after something was loaded.
fn jemalloc_is_linked_in() -> bool {
    /// The number of loads when it was last looked for, times two, plus whether it was there; 0 at first.
    static SEEN: AtomicU64 = AtomicU64::new(0);
    let mut search =
        Search { finder: Finder::new(&needle()).into_owned(), seen: SEEN.load(Relaxed), found: None, loads: 0 };
    // SAFETY: the callback gets the struct it expects, for the duration of the call only.
    unsafe { libc::dl_iterate_phdr(Some(look_into), (&raw mut search).cast()) };
    let found = search.found.unwrap_or(search.seen & 1 == 1);
    SEEN.store(search.loads << 1 | u64::from(found), Relaxed);
    found
}

struct Search {
    finder: Finder<'static>,
    seen: u64,
    loads: u64,
    found: Option<bool>,
}

/// Looks into one object; stops when the answer is known.
unsafe extern "C" fn look_into(
    info: *mut libc::dl_phdr_info,
    size: libc::size_t,
    search: *mut libc::c_void,
) -> libc::c_int {
    // SAFETY: `dl_iterate_phdr(3)` passes a valid struct, and what its caller gave: a `Search` nobody else uses.
    let (info, search) = unsafe { (&*info, &mut *search.cast::<Search>()) };
    let whole = size >= std::mem::offset_of!(libc::dl_phdr_info, dlpi_subs);
    search.loads = if whole { info.dlpi_adds } else { 0 };
    if whole && search.seen >> 1 == search.loads {
        return 1;
    }
    // SAFETY: the struct tells where the program headers are and how many.
    let headers = unsafe { std::slice::from_raw_parts(info.dlpi_phdr, usize::from(info.dlpi_phnum)) };
    let constant =
        |h: &&libc::Elf64_Phdr| h.p_type == libc::PT_LOAD && h.p_flags & (libc::PF_R | libc::PF_W) == libc::PF_R;
    let found = headers.iter().filter(constant).any(|h| {
        let at = (info.dlpi_addr + h.p_vaddr) as *const u8;
        // SAFETY: a loaded, readable segment that is never written; the loader's lock keeps it loaded.
        let bytes = unsafe { std::slice::from_raw_parts(at, h.p_filesz as usize) };
        search.finder.find(bytes).is_some()
    });
    search.found = Some(found);
    libc::c_int::from(found)
}

/// The text to look for, put together at run time: it must not stand in this library's own data.
fn needle() -> [u8; 12] {
    let mut text = std::hint::black_box(*b" :>collamej<");
    text.reverse();
    text
}

/// Whether the preload shim is in this process.
pub fn shim_is_loaded() -> bool {
    symbol(NOTE).is_some()
}

/// Has the shim, if it is there, leave a range out too; false when it could not.
pub fn exclude_in_shim(addr: *const u8, len: usize) -> bool {
    symbol(c"flashfork_preload_exclude").is_none_or(|exclude| {
        // SAFETY: the shim defines this symbol with this type.
        let exclude: extern "C" fn(*const u8, usize) -> libc::c_int = unsafe { std::mem::transmute(exclude) };
        exclude(addr, len) == 0
    })
}

/// Lets the shim know that there is sealed memory to look after.
pub fn tell_shim() {
    if let Some(note) = symbol(NOTE) {
        // SAFETY: the shim defines this symbol as a function without arguments or result.
        let note: extern "C" fn() = unsafe { std::mem::transmute(note) };
        note();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_program_uses_glibc_and_its_own_data_does_not_betray_it() {
        assert_eq!(relies_on_dontneed(), None);
        assert_eq!(relies_on_dontneed(), None, "and again, from what is remembered");
        assert!(!shim_is_loaded());
    }
}
