//! What the template was made by, as far as it counts here: its first word, and the environment that it was warmed in.
//! flashfork-templates has written it (`recipe.rs` there): texts, each with a NUL.

use super::template::{Order, Single};
use core::ffi::{CStr, c_char};
use core::ptr::null_mut;

/// Texts before the number of words: the shim, the directory, where and when it is ready, most clones, whether it is
/// made anew.
const BEFORE: usize = 6;

/// In a mapping that stays.
static TEXT: Single<&'static [u8]> = Single::new(&[]);

/// Maps it, where somebody wants to know.
///
/// # Safety
/// Before the program's own code runs.
pub unsafe fn note(order: &Order) {
    if !order.renews && !order.is_wrapped() {
        return;
    }
    // SAFETY: the file is the order's own, and nobody writes to it any more.
    unsafe {
        let mut stat = core::mem::MaybeUninit::<libc::stat>::zeroed().assume_init();
        if libc::fstat(order.recipe, &raw mut stat) != 0 || stat.st_size <= 0 {
            return;
        }
        let len = stat.st_size as usize;
        let at = libc::mmap(null_mut(), len, libc::PROT_READ, libc::MAP_PRIVATE, order.recipe, 0);
        if at != libc::MAP_FAILED {
            *TEXT.get() = core::slice::from_raw_parts(at.cast(), len);
        }
    }
}

fn texts() -> impl Iterator<Item = &'static CStr> {
    // SAFETY: no other reference is in use.
    let text = unsafe { *TEXT.get() };
    text.split_inclusive(|b| *b == 0).filter_map(|text| CStr::from_bytes_with_nul(text).ok())
}

/// How many words the command has; none where there is no recipe.
fn words() -> Option<usize> {
    texts()
        .nth(BEFORE)?
        .to_bytes()
        .iter()
        .try_fold(0usize, |n, b| n.checked_mul(10)?.checked_add(usize::from(b.checked_sub(b'0')?)))
}

pub fn is_there() -> bool {
    words().is_some()
}

/// By what name the program was looked for in `PATH`, if it was.
pub fn searched() -> Option<&'static CStr> {
    texts().nth(BEFORE + 1).filter(|word| !word.to_bytes().contains(&b'/'))
}

/// The environment. None where there is no recipe.
pub fn environment() -> Option<impl Iterator<Item = &'static CStr>> {
    Some(texts().skip(BEFORE + 1 + words()?))
}

/// The last value of a variable there; empty where it is not there.
pub fn variable(name: &[u8]) -> &'static [u8] {
    let value = |text: &'static CStr| text.to_bytes().strip_prefix(name)?.strip_prefix(b"=");
    environment().into_iter().flatten().filter_map(value).last().unwrap_or_default()
}

/// A string that C reads.
pub fn text(of: *const c_char) -> &'static [u8] {
    // SAFETY: a string of an environment, which lives as long as the program looks at it.
    if of.is_null() { b"" } else { unsafe { CStr::from_ptr(of) }.to_bytes() }
}
