//! What was put into each memfd: the difference to what of it is still mapped is memory that serves nobody.

use crate::apart::Apart;
use core::sync::atomic::{AtomicU64, Ordering::SeqCst};

/// Sealed memfds a process may hold at once. The next seal folds all of them into one.
pub const MAX_GENERATIONS: usize = 8;

/// The same where memory is sealed in parts, and a part in each fork is no occasion for folding. When half as many are
/// there, parts are as large as the rest needs, however long forks wait for them.
pub const MAX_PARTS: usize = 192;

/// More than are ever mapped at once: one is made before those it replaces are gone.
pub const PLACES: usize = MAX_PARTS + 2 * MAX_GENERATIONS;

/// What this process knows of them.
pub(crate) static GENERATIONS: Apart<Generations> = Apart::new(Generations::new());

/// Bytes in memfds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Memfds {
    /// Bytes in those of which something is mapped.
    pub bytes: u64,
    /// Of these, bytes that are mapped no more: unmapped, or discarded.
    pub gone: u64,
}

/// See the module. Clones inherit it.
pub(crate) struct Generations([[AtomicU64; 2]; PLACES]);

impl Generations {
    pub const fn new() -> Generations {
        Generations([const { [const { AtomicU64::new(0) }; 2] }; PLACES])
    }

    /// Notes that the memfd of this inode was filled. Where there is no place left it is taken for as large as what is
    /// mapped of it.
    pub fn add(&self, inode: u64, bytes: u64, is_mapped: impl Fn(u64) -> bool) {
        let free = |place: &&[AtomicU64; 2]| {
            let known = place[0].load(SeqCst);
            known == 0 || known == inode || !is_mapped(known)
        };
        if let Some([place, size]) = self.0.iter().find(free) {
            size.store(bytes, SeqCst);
            place.store(inode, SeqCst);
        }
    }

    /// What is in the memfd of this inode, of which so many bytes are mapped.
    pub fn of(&self, inode: u64, mapped: u64) -> Memfds {
        let known = self.0.iter().find(|[place, _]| place.load(SeqCst) == inode);
        let bytes = known.map_or(mapped, |[_, size]| size.load(SeqCst));
        Memfds { bytes, gone: bytes.saturating_sub(mapped) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_mapped_no_more_is_gone_and_dead_generations_make_room() {
        let generations = Generations::new();
        for inode in 1..1_000 {
            generations.add(inode, 10, |other| other == 1 || other + 1 == inode);
        }
        assert_eq!(generations.of(1, 4), Memfds { bytes: 10, gone: 6 });
        assert_eq!(generations.of(999, 10), Memfds { bytes: 10, gone: 0 });
        assert_eq!(
            generations.of(999, 20),
            Memfds { bytes: 10, gone: 0 },
            "a mapping may reach behind what was put in"
        );
        assert_eq!(generations.of(5_000, 7), Memfds { bytes: 7, gone: 0 }, "made by somebody else");
    }
}
