//! What the engine needs around it to undo a seal: `/proc`, descriptors, addresses. Before a program gives one of them up, its sealed
//! memory becomes anonymous: then nothing is left to undo. Where that can't be done the program's call is made all the same, and
//! what needs anonymous memory later is refused.

use crate::state::STATE;
use crate::sys;
use crate::unseal::for_good;
use linux_raw_sys::general as k;

/// Before a call after which `/proc` may be another one, or none (`chroot(2)`, `mount(2)`, `setns(2)`, `landlock(7)`).
pub fn before_leaving() {
    // What a child of vfork(2) gives up its parent still has.
    if !STATE.is_in_parents_memory() {
        let _ = for_good();
    }
}

/// Before a limit of this process is set: `limits` is where its two words are, the soft one and the hard one.
pub fn before_limit(resource: usize, limits: usize) {
    /// More descriptors than the engine has open at a time.
    const ENOUGH: u64 = 16;
    let mut words = [[0; 8]; 2];
    // What the kernel can't read changes nothing.
    if sys::read_own(limits, words.as_flattened_mut()).is_err() {
        return;
    }
    let [soft, hard] = words.map(u64::from_ne_bytes);
    let narrow = match resource as u32 {
        k::RLIMIT_NOFILE => hard < ENOUGH,
        k::RLIMIT_AS => soft != u64::MAX,
        _ => false,
    };
    if narrow {
        before_leaving();
    }
}
