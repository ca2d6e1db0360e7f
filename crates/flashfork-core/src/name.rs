//! The name of what a refusal was about, where several processes and threads may read and write it.

use crate::apart::Apart;
use core::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// Bytes of a name, a zero at its end among them.
pub const NAME: usize = 256;

/// A path, or what the kernel calls an object; empty at first.
#[repr(transparent)]
#[derive(Debug, Default)]
pub struct Name([AtomicU64; NAME / 8]);

impl Name {
	/// An empty name.
	pub const fn new() -> Name {
		Name([const { AtomicU64::new(0) }; NAME / 8])
	}

	pub(crate) fn set(&self, path: &[u8]) {
		let mut name = [[0; 8]; NAME / 8];
		// The end of a path says more than its beginning. The last byte stays zero.
		let tail = &path[path.len().saturating_sub(NAME - 1)..];
		name.as_flattened_mut()[..tail.len()].copy_from_slice(tail);
		for (word, bytes) in self.0.iter().zip(name) {
			word.store(u64::from_ne_bytes(bytes), Relaxed);
		}
	}

	pub(crate) fn copy(&self, other: &Name) {
		for (to, from) in self.0.iter().zip(&other.0) {
			to.store(from.load(Relaxed), Relaxed);
		}
	}

	pub(crate) fn is_empty(&self) -> bool {
		self.0[0].load(Relaxed) == 0
	}

	/// The name, cut at its beginning where it is longer than `buf`.
	pub fn get<'a>(&self, buf: &'a mut [u8; NAME]) -> &'a [u8] {
		for (bytes, word) in buf.chunks_exact_mut(8).zip(&self.0) {
			bytes.copy_from_slice(&word.load(Relaxed).to_ne_bytes());
		}
		let end = buf.iter().position(|b| *b == 0).unwrap_or(NAME);
		&buf[..end]
	}
}

pub(crate) static DEVICE: Apart<Name> = Apart::new(Name::new());

/// The device or object that the last refusal of this process as [`crate::never_seal::Reason::Driver`] was about.
pub fn device() -> &'static Name {
	&DEVICE
}

#[cfg(test)]
mod tests {
	use super::*;

	#[test]
	fn a_name_is_what_was_set_and_a_long_one_keeps_its_end() {
		let (name, other, mut buf) = (Name::new(), Name::new(), [0; NAME]);
		assert!(name.is_empty() && name.get(&mut buf).is_empty());
		name.set(b"/dev/hpet");
		other.copy(&name);
		assert!(!other.is_empty() && other.get(&mut buf) == b"/dev/hpet");
		name.set(&[&[b'a'; 300][..], b"/end"].concat());
		assert!(
			name.get(&mut buf).len() == NAME - 1 && buf.starts_with(b"aa") && name.get(&mut buf).ends_with(b"/end")
		);
	}
}
