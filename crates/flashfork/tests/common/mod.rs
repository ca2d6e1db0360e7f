//! What the tests of the library share.
#![allow(dead_code, unused_imports)] // each test program uses a part

#[path = "../../../flashfork-core/tests/common/child.rs"]
#[macro_use]
mod child;
pub use child::{Child, in_child, wait};

/// Anonymous memory of its own, each page written, with advice on its pages.
pub fn populated(len: usize, advice: libc::c_int) -> &'static mut [u8] {
	// SAFETY: a fresh mapping, never unmapped by the tests that use it.
	let bytes = unsafe {
		let prot = libc::PROT_READ | libc::PROT_WRITE;
		let at = libc::mmap(std::ptr::null_mut(), len, prot, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS, -1, 0);
		assert_ne!(at, libc::MAP_FAILED);
		libc::madvise(at, len, advice);
		std::slice::from_raw_parts_mut(at.cast::<u8>(), len)
	};
	bytes.iter_mut().step_by(4096).for_each(|b| *b = 7);
	bytes
}
