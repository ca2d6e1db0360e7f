//! Variables that an interpreter reads when it starts. A clone has its caller's, but nobody reads them any more: where
//! they are other than the template's were, that is told.

use super::files::Path;
use super::template::Single;
use core::ffi::{CStr, c_char};
use flashfork_warm::variables::{LOADER, PERL, PYTHON, RUBY, RUNTIMES};

/// Those of this program, as it was started.
struct Started {
    names: &'static [&'static CStr],
    /// In memory of the C library's; null for one that is not there, or empty, which is the same.
    values: [*mut c_char; PYTHON.len()],
}

static STARTED: Single<Option<Started>> = Single::new(None);

/// To be called before the interpreter starts.
pub fn note(names: &'static [&'static CStr]) {
    let mut values = [core::ptr::null_mut(); PYTHON.len()];
    for (value, name) in values.iter_mut().zip(names) {
        *value = copied(name);
    }
    // SAFETY: no reference is in use.
    unsafe { *STARTED.get() = Some(Started { names, values }) };
}

/// Tells the caller of a clone, on standard error, of variables that don't count.
pub fn tell(variables: &[*mut c_char]) {
    // SAFETY: no other reference is in use.
    let Some(started) = (unsafe { STARTED.get() }) else { return };
    let mut line = Line { bytes: [0; 512], len: 0 };
    line.add(b"flashfork: the template was started with other values of ");
    let begin = line.len;
    for (name, value) in started.names.iter().zip(started.values) {
        let asked = find(variables, name.to_bytes());
        // SAFETY: null or a string of this module's.
        if asked != unsafe { text(value) } {
            line.add(if line.len == begin { b"" } else { b", " });
            line.add(name.to_bytes());
        }
    }
    if line.len > begin {
        line.add(b", and those count; warm it again with these\n");
        // SAFETY: writes so many bytes; nobody could be told of a failure.
        let _ = unsafe { libc::write(2, line.bytes.as_ptr().cast(), line.len) };
    }
}

/// Those that count in a template which its callers make anew.
const ALL: [&[&CStr]; 5] = [PYTHON, PERL, RUBY, RUNTIMES, LOADER];
const COUNT: usize = PYTHON.len() + PERL.len() + RUBY.len() + RUNTIMES.len() + LOADER.len();

/// Of such a template.
struct Before {
    /// As in [`Started`].
    values: [*mut c_char; COUNT],
    path: *mut c_char,
}

static BEFORE: Single<Option<Before>> = Single::new(None);

/// To be called before the program's own code runs.
pub fn note_all() {
    let mut values = [core::ptr::null_mut(); COUNT];
    for (value, name) in values.iter_mut().zip(ALL.into_iter().flatten()) {
        *value = copied(name);
    }
    // SAFETY: no reference is in use.
    unsafe { *BEFORE.get() = Some(Before { values, path: copied(PATH) }) };
}

const PATH: &CStr = c"PATH";

/// What of a caller's variables is not as the template was started with: how many, and the name of one. `program`: by
/// what name it was looked for in `PATH`, if it was.
pub fn others(variables: &[*mut c_char], program: &[u8]) -> Option<(u64, &'static CStr)> {
    // SAFETY: no other reference is in use; texts of this module's.
    unsafe {
        let before = BEFORE.get().as_ref()?;
        let all = ALL.into_iter().flatten().zip(before.values);
        let mut others = all.filter(|(name, value)| find(variables, name.to_bytes()) != text(*value));
        let path = find(variables, PATH.to_bytes());
        let other_program = !program.is_empty()
            && path != text(before.path)
            && program_in(path, program) != program_in(text(before.path), program);
        let first = others.next().map(|(name, _)| *name);
        let count = u64::from(first.is_some()) + others.count() as u64 + u64::from(other_program);
        Some((count, first.unwrap_or(PATH))).filter(|(count, _)| *count > 0)
    }
}

/// The file that a name leads to.
fn program_in(path: &[u8], name: &[u8]) -> Option<(u64, u64)> {
    path.split(|b| *b == b':').find_map(|directory| {
        let here = if directory.is_empty() { b"." } else { directory };
        let path = Path::of(&[here, b"/", name])?;
        // SAFETY: a path that ends with a NUL.
        let runs = unsafe { libc::access(path.as_ptr(), libc::X_OK) } == 0;
        super::files::file(path.as_ptr()).filter(|_| runs)
    })
}

/// Null for one that is not there, or empty, which is the same.
fn copied(name: &CStr) -> *mut c_char {
    // SAFETY: the program's one thread; the value is copied, because programs write over their environment.
    unsafe {
        let now = libc::getenv(name.as_ptr());
        if now.is_null() || *now == 0 { core::ptr::null_mut() } else { libc::strdup(now) }
    }
}

/// # Safety
/// Null, or a string that is never freed.
unsafe fn text(value: *const c_char) -> &'static [u8] {
    // SAFETY: as the caller says.
    if value.is_null() { b"" } else { unsafe { CStr::from_ptr(value) }.to_bytes() }
}

/// The value of a variable; empty where it is not there.
fn find<'a>(variables: &'a [*mut c_char], name: &[u8]) -> &'a [u8] {
    let mut values = variables.iter().take_while(|string| !string.is_null()).filter_map(|string| {
        // SAFETY: a string, which lives as long as the clone.
        unsafe { CStr::from_ptr(*string) }.to_bytes().strip_prefix(name)?.strip_prefix(b"=")
    });
    values.next().unwrap_or_default()
}

/// All names fit into it.
struct Line {
    bytes: [u8; 512],
    len: usize,
}

impl Line {
    fn add(&mut self, text: &[u8]) {
        if let Some(room) = self.bytes.get_mut(self.len..self.len + text.len()) {
            room.copy_from_slice(text);
            self.len += text.len();
        }
    }
}
