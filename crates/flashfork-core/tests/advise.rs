//! Memory calls on sealed memory, one test for each way in which they once went wrong.

mod common;
use common::{in_child, intact, maps_line, patterned};
use flashfork_core::{Errno, Pages, advise, seal};

const LEN: usize = 8 << 20;

fn sealed(seed: u64) -> &'static mut [u64] {
    let words = patterned(LEN, seed);
    seal(Pages::Small).outcome.expect("seal");
    assert!(maps_line(&words[LEN / 16]).contains("flashfork:"));
    words
}

#[test]
fn a_length_that_wraps_discards_nothing() {
    in_child(|| {
        let words = sealed(1);
        let at = words.as_ptr() as usize;
        for len in [usize::MAX, LEN.wrapping_neg(), usize::MAX - at + 1] {
            for advice in [libc::MADV_DONTNEED, libc::MADV_FREE, 24 /* MADV_DONTNEED_LOCKED */] {
                // SAFETY: the kernel refuses the call.
                let result = unsafe { advise::madvise(at, len, advice as u32) };
                assert_eq!(result, Err(Errno::EINVAL), "{len:#x} {advice}");
            }
        }
        assert!(intact(words, 1));
    });
}
