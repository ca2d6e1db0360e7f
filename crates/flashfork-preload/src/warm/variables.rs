//! Variables that an interpreter reads when it starts. A clone has its caller's, but nobody reads them any more: where
//! they are other than the template's were, that is told.

use super::template::Single;
use core::ffi::{CStr, c_char};

/// Which ones, for each interpreter.
pub const PYTHON: &[&CStr] = &[
    c"PYTHONPATH",
    c"PYTHONHOME",
    c"PYTHONOPTIMIZE",
    c"PYTHONWARNINGS",
    c"PYTHONIOENCODING",
    c"PYTHONUTF8",
    c"PYTHONHASHSEED",
    c"PYTHONDEVMODE",
    c"PYTHONSAFEPATH",
    c"PYTHONNOUSERSITE",
    c"PYTHONUSERBASE",
    c"PYTHONDONTWRITEBYTECODE",
    c"PYTHONPYCACHEPREFIX",
    c"PYTHONINTMAXSTRDIGITS",
    c"PYTHONUNBUFFERED",
    c"PYTHONFAULTHANDLER",
    c"PYTHONTRACEMALLOC",
];
pub const PERL: &[&CStr] = &[c"PERL5LIB", c"PERLLIB", c"PERL5OPT", c"PERL_UNICODE", c"PERLIO"];
pub const RUBY: &[&CStr] = &[c"RUBYLIB", c"RUBYOPT"];

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
        // SAFETY: the program's one thread; the value is copied, because programs write over their environment.
        *value = unsafe {
            let now = libc::getenv(name.as_ptr());
            if now.is_null() || *now == 0 { core::ptr::null_mut() } else { libc::strdup(now) }
        };
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
        let before = if value.is_null() { b"" } else { unsafe { CStr::from_ptr(value) }.to_bytes() };
        if asked != before {
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
