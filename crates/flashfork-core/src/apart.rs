//! Data that the engine writes while a seal runs.
//!
//! A page written between its copy and the remap would lose what was written, and one that a restore puts back would
//! take the engine back in time. So each of the engine's statics that lasts from call to call lies on pages of its own,
//! which nothing else shares, and which neither a seal nor a restore touches: [`crate::own_pages`] lists them all.

use crate::range::Range;
use core::ops::Deref;

/// On pages of its own. A static of this type must be in the list of [`crate::own_pages`].
#[repr(C, align(4096))]
pub(crate) struct Apart<T>(T);

impl<T> Apart<T> {
	pub const fn new(data: T) -> Apart<T> {
		Apart(data)
	}

	/// The pages it lies on. Its alignment makes its size a multiple of theirs.
	pub fn pages(&self) -> Range {
		let own = &raw const *self as usize;
		Range::new(own, own + size_of::<Apart<T>>())
	}
}

impl<T> Deref for Apart<T> {
	type Target = T;

	fn deref(&self) -> &T {
		&self.0
	}
}
