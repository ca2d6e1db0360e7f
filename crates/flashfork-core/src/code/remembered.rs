//! What the engine remembers of code.

use super::Call;
use crate::apart::Apart;
use crate::name::{NAME, Name};
use crate::range::Range;
use crate::sys::{Errno, Result, Status};
use core::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed};

/// What is remembered, of this process and of those it was forked from.
pub(crate) static CODE: Apart<Code> = Apart::new(Code::new());

/// Files remembered.
const FILES: usize = 128;
/// Files that a caller answers for, and objects that are known.
const TRUSTED: usize = 16;
/// Words that tell a version of a file from others: device, inode, size, time of change in seconds and nanoseconds.
pub const KEY: usize = 5;
/// The word for a file in which nothing was found.
pub const WELL: u64 = 1;

/// What the engine remembers of code.
pub(crate) struct Code {
    /// A key, and [`Call::to_word`] or [`WELL`].
    files: [[AtomicU64; KEY + 1]; FILES],
    next: AtomicUsize,
    /// Device and inode.
    trusted: [[AtomicU64; 2]; TRUSTED],
    trusted_count: AtomicUsize,
    known: [AtomicUsize; TRUSTED],
    known_count: AtomicUsize,
    /// All executable mappings of files when all was well, as a number; 0: never.
    pub well: AtomicU64,
    /// What the last refusal was about.
    pub culprit: Culprit,
}

/// What a refusal was about.
#[repr(C)]
#[derive(Debug)]
pub struct Culprit {
    /// [`Call::to_word`]; 0: there was none.
    call: AtomicU64,
    /// The path of the file.
    name: Name,
}

impl Culprit {
    /// None.
    pub const fn new() -> Culprit {
        Culprit { call: AtomicU64::new(0), name: Name::new() }
    }

    pub(crate) fn set(&self, call: Call, path: &[u8]) {
        self.name.set(path);
        self.call.store(call.to_word(), Relaxed);
    }

    /// Takes over what another one says, unless it has something to say itself.
    pub(crate) fn note(&self, other: &Culprit) {
        let call = other.call.load(Relaxed);
        if call != 0 && self.call.compare_exchange(0, call, Relaxed, Relaxed).is_ok() {
            self.name.copy(&other.name);
        }
    }

    /// What the file does, and its path, which is cut at its beginning where it is longer than `name`. `None`: no file
    /// was refused.
    pub fn get<'a>(&self, name: &'a mut [u8; NAME]) -> Option<(Call, &'a [u8])> {
        let call = Call::from_word(self.call.load(Relaxed))?;
        Some((call, self.name.get(name)))
    }
}

impl Default for Culprit {
    fn default() -> Culprit {
        Culprit::new()
    }
}

impl Code {
    pub const fn new() -> Code {
        Code {
            files: [const { [const { AtomicU64::new(0) }; KEY + 1] }; FILES],
            next: AtomicUsize::new(0),
            trusted: [const { [const { AtomicU64::new(0) }; 2] }; TRUSTED],
            trusted_count: AtomicUsize::new(0),
            known: [const { AtomicUsize::new(0) }; TRUSTED],
            known_count: AtomicUsize::new(0),
            well: AtomicU64::new(0),
            culprit: Culprit::new(),
        }
    }

    /// The word for a version of a file; none when it is not remembered.
    pub fn remembered(&self, key: &[u64; KEY]) -> Option<u64> {
        let same = |file: &&[AtomicU64; KEY + 1]| file.iter().zip(key).all(|(a, b)| a.load(Relaxed) == *b);
        self.files.iter().find(same).map(|file| file[KEY].load(Relaxed)).filter(|word| *word != 0)
    }

    /// Remembers it, in the place of the oldest.
    pub fn remember(&self, key: &[u64; KEY], word: u64) {
        let file = &self.files[self.next.fetch_add(1, Relaxed) % FILES];
        for (place, word) in file.iter().zip(key.iter().chain([&word])) {
            place.store(*word, Relaxed);
        }
    }

    /// The caller answers for a file, as it is now. `ENOSPC` for more than 16.
    pub fn trust(&self, file: &Status) -> Result<()> {
        if self.trusts(file) {
            return Ok(());
        }
        let count = self.trusted_count.load(Relaxed);
        let place = self.trusted.get(count).ok_or(Errno::ENOSPC)?;
        place[0].store(file.device, Relaxed);
        place[1].store(file.inode, Relaxed);
        self.trusted_count.store(count + 1, Relaxed);
        Ok(())
    }

    /// Whether somebody answers for a file.
    pub fn trusts(&self, file: &Status) -> bool {
        let count = self.trusted_count.load(Relaxed).min(TRUSTED);
        let same = |t: &[AtomicU64; 2]| t[0].load(Relaxed) == file.device && t[1].load(Relaxed) == file.inode;
        self.trusted[..count].iter().any(same)
    }

    /// Forgets what [`Code::know`] was told.
    pub fn know_none(&self) {
        self.known_count.store(0, Relaxed);
    }

    /// The engine sees the system calls of the object whose code an address lies in. `ENOSPC` for more than 16.
    pub fn know(&self, address: usize) -> Result<()> {
        let count = self.known_count.load(Relaxed);
        self.known.get(count).ok_or(Errno::ENOSPC)?.store(address, Relaxed);
        self.known_count.store(count + 1, Relaxed);
        Ok(())
    }

    /// Whether an address that is known lies in `range`.
    pub fn knows(&self, range: Range) -> bool {
        let count = self.known_count.load(Relaxed).min(TRUSTED);
        self.known[..count].iter().map(|at| at.load(Relaxed)).any(|at| range.start <= at && at < range.end)
    }
}
