//! Where a run lies in its generation's memfd.
//!
//! Each run starts a window of 1 TiB of its own, so that a mapping that grows (`mremap`) reads zeros behind its run and never
//! another run's bytes. The top bits remember the advice of the original VMA: they travel with the mapping through every
//! split, move and fork, and an unseal finds them in `/proc/self/maps`.

use crate::sys::HUGE;
use crate::vma::{Flags, Vma};
use linux_raw_sys::general as k;

/// Length of every memfd: large enough that no mapping reaches the end.
pub const FILE_LEN: u64 = 1 << 62;

const WINDOW_SHIFT: u32 = 40;
const ADVICE_SHIFT: u32 = 57;
const ADVICES: [(&[u8; 2], u32); 4] =
    [(b"hg", k::MADV_HUGEPAGE), (b"nh", k::MADV_NOHUGEPAGE), (b"rr", k::MADV_RANDOM), (b"sr", k::MADV_SEQUENTIAL)];

/// The advice of a VMA as four bits.
pub fn advice_of_flags(flags: &Flags) -> u8 {
    (0..).zip(ADVICES).filter(|(_, (letters, _))| flags.has(letters)).map(|(bit, _)| 1 << bit).sum()
}

/// The advice that a sealed VMA had before.
pub fn advice_of_sealed(vma: &Vma) -> u8 {
    (vma.offset >> ADVICE_SHIFT) as u8 & 15
}

/// The `madvise` values for such bits.
pub fn advices(bits: u8) -> impl Iterator<Item = u32> {
    (0..).zip(ADVICES).filter(move |(bit, _)| bits & (1 << bit) != 0).map(|(_, (_, advice))| advice)
}

/// The offset for a run that starts at `addr`, equal to it modulo 2 MB so that huge pages fit.
pub const fn of_run(index: usize, advice: u8, addr: usize) -> u64 {
    ((advice as u64) << ADVICE_SHIFT) + ((index as u64 + 1) << WINDOW_SHIFT) + (addr & (HUGE - 1)) as u64
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::arena::MAX_RUNS;

    #[test]
    fn offsets_stay_in_the_file_and_apart() {
        let last = of_run(MAX_RUNS - 1, 15, usize::MAX);
        assert!(last + (1 << WINDOW_SHIFT) < FILE_LEN);
        assert!(of_run(1, 0, 0) - of_run(0, 0, HUGE - 1) >= (1 << WINDOW_SHIFT) - HUGE as u64);
        assert_eq!(of_run(7, 5, 0x1234_5000) % HUGE as u64, 0x1234_5000 % HUGE as u64);
        assert!(((MAX_RUNS as u64) << WINDOW_SHIFT) < 1 << ADVICE_SHIFT);
        assert_eq!(of_run(MAX_RUNS - 1, 9, 0) >> ADVICE_SHIFT, 9);
        assert_eq!(advices(0b101).collect::<Vec<_>>(), [k::MADV_HUGEPAGE, k::MADV_RANDOM]);
    }
}
