//! The files that the program was made of when it was warmed: clones run what was in them then, so their callers are
//! told of changes.
//!
//! Each is watched for itself (`inotify(7)`): a look at the queue is one system call, and what was written before a
//! caller came is in it. An event only says where to look; what counts is which file the name leads to, its length and
//! when it was written.

use super::template::Single;
use core::ffi::{CStr, c_char, c_int, c_void};
use core::mem::{MaybeUninit, size_of};
use core::ptr::null_mut;
use flashfork_warm::{NAME_OF_CHANGED, Tell};

/// Most files, and bytes of their names.
const MOST: usize = 16 * 1024;
const TEXT: usize = 4 << 20;

/// Of the shim itself, which is part of no program.
const SHIM: &[u8] = b"/libflashfork_preload.so";

/// A file as it was.
struct File {
    watch: c_int,
    was: Kept,
    changed: bool,
    name: *const c_char,
}

/// What tells one content of a file from another.
type Kept = (u64, u64, i64, i64, i64);

/// In a mapping of their own, so that nothing is allocated in the program.
struct Files {
    queue: c_int,
    count: usize,
    used: usize,
    changed: u64,
    unwatched: u64,
    all: [MaybeUninit<File>; MOST],
    text: [u8; TEXT],
}

static FILES: Single<*mut Files> = Single::new(null_mut());

/// The template's; none before a file was noted.
unsafe fn files() -> Option<&'static mut Files> {
    // SAFETY: mapped for good, and used by one thread that keeps no other reference.
    unsafe { FILES.get().as_mut() }
}

/// Notes a file, by a name from the root. What is no file, or not there, changes nothing.
///
/// # Safety
/// In the program's only thread.
pub unsafe fn note(name: &CStr) {
    // SAFETY: one thread; the mapping has the size of what it is taken for, in which zeros are valid.
    unsafe {
        if FILES.get().is_null() {
            let (prot, flags) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
            let at = libc::mmap(null_mut(), size_of::<Files>(), prot, flags | libc::MAP_NORESERVE, -1, 0);
            if at == libc::MAP_FAILED {
                return;
            }
            *FILES.get() = at.cast();
            (**FILES.get()).queue = libc::inotify_init1(libc::IN_NONBLOCK | libc::IN_CLOEXEC);
        }
        let (Some(files), Some(was)) = (files(), look(name.as_ptr())) else { return };
        files.add(name, was);
    }
}

/// Notes the program and its libraries.
///
/// # Safety
/// As [`note`].
pub unsafe fn note_objects() {
    unsafe extern "C" fn each(object: *mut libc::dl_phdr_info, _: usize, _: *mut c_void) -> c_int {
        // SAFETY: the loader's own text; the program's name is empty, and so is that of the kernel's object in some
        // versions.
        unsafe {
            let name = CStr::from_ptr((*object).dlpi_name);
            if name.to_bytes().first() == Some(&b'/') && !name.to_bytes().ends_with(SHIM) {
                note(name);
            }
        }
        0
    }
    let mut path = [0u8; 4096];
    // SAFETY: the buffer is longer than said, so the path ends with a NUL.
    unsafe {
        let len = libc::readlink(c"/proc/self/exe".as_ptr(), path.as_mut_ptr().cast(), path.len() - 1);
        if len > 0
            && let Ok(path) = CStr::from_bytes_until_nul(&path)
        {
            note(path);
        }
        libc::dl_iterate_phdr(Some(each), null_mut());
    }
}

/// How many have changed so far, and of how many that would not be seen.
pub fn counts() -> (u64, u64) {
    // SAFETY: one thread.
    unsafe {
        let Some(files) = files() else { return (0, 0) };
        files.look_at_queue();
        (files.changed, files.unwatched)
    }
}

/// What a caller is told, if any has changed.
pub fn told() -> Option<Tell> {
    let (count, _) = counts();
    // SAFETY: one thread; names end with a NUL.
    unsafe {
        let files = files().filter(|_| count > 0)?;
        let first = files.noted().iter().find(|file| file.changed)?;
        let path = CStr::from_ptr(first.name).to_bytes();
        let mut name = [0; NAME_OF_CHANGED];
        // The end of a long one tells more than its begin.
        let end = &path[path.len().saturating_sub(NAME_OF_CHANGED)..];
        name[..end.len()].copy_from_slice(end);
        Some(Tell::Changed { count, name })
    }
}

/// In clones, which don't need it: closes the descriptor, once.
pub fn let_go() {
    // SAFETY: one thread; nobody uses the descriptor any more, and -1 is none.
    unsafe {
        if let Some(files) = files() {
            libc::close(core::mem::replace(&mut files.queue, -1));
        }
    }
}

impl Files {
    fn noted(&mut self) -> &mut [File] {
        // SAFETY: so many have been written.
        unsafe { core::slice::from_raw_parts_mut(self.all.as_mut_ptr().cast(), self.count) }
    }

    fn add(&mut self, name: &CStr, was: Kept) {
        let bytes = name.to_bytes_with_nul();
        let (Some(place), Some(text)) =
            (self.all.get_mut(self.count), self.text.get_mut(self.used..self.used + bytes.len()))
        else {
            self.unwatched += 1;
            return;
        };
        text.copy_from_slice(bytes);
        let events = libc::IN_MODIFY | libc::IN_ATTRIB | libc::IN_MOVE_SELF | libc::IN_DELETE_SELF;
        // SAFETY: the name ends with a NUL.
        let watch = unsafe { libc::inotify_add_watch(self.queue, name.as_ptr(), events) };
        if watch < 0 {
            self.unwatched += 1;
            return;
        }
        place.write(File { watch, was, changed: false, name: text.as_ptr().cast() });
        self.count += 1;
        self.used += bytes.len();
    }

    fn look_at_queue(&mut self) {
        /// As the kernel wants it aligned.
        #[repr(C, align(8))]
        struct Events([u8; 4096]);
        let mut events = Events([0; 4096]);
        loop {
            // SAFETY: the buffer is as long as said.
            let len = unsafe { libc::read(self.queue, events.0.as_mut_ptr().cast(), events.0.len()) };
            let Some(mut rest) = usize::try_from(len).ok().and_then(|len| events.0.get(..len)) else { return };
            const HEAD: usize = size_of::<libc::inotify_event>();
            while rest.len() >= HEAD {
                // SAFETY: the kernel writes whole events.
                let event = unsafe { rest.as_ptr().cast::<libc::inotify_event>().read_unaligned() };
                self.compare(event.wd, event.mask & libc::IN_Q_OVERFLOW != 0);
                rest = rest.get(HEAD + event.len as usize..).unwrap_or_default();
            }
        }
    }

    fn compare(&mut self, watch: c_int, all: bool) {
        let mut more = 0;
        for file in self.noted().iter_mut().filter(|file| !file.changed && (all || file.watch == watch)) {
            // SAFETY: the name ends with a NUL.
            file.changed = unsafe { look(file.name) } != Some(file.was);
            more += u64::from(file.changed);
        }
        self.changed += more;
    }
}

/// None of what is no regular file.
unsafe fn look(name: *const c_char) -> Option<Kept> {
    // SAFETY: a name that ends with a NUL, and a local of which all zeros are a value.
    unsafe {
        let mut stat = MaybeUninit::<libc::stat>::zeroed().assume_init();
        let there = libc::stat(name, &raw mut stat) == 0 && stat.st_mode & libc::S_IFMT == libc::S_IFREG;
        there.then_some((stat.st_dev, stat.st_ino, stat.st_size, stat.st_mtime, stat.st_mtime_nsec))
    }
}
