//! Where code is read from.

/// Memory that code is read from.
pub trait Memory {
	/// `len` bytes at `at`; `None` where not all of them can be read. At most [`WINDOW`] bytes are asked for.
	fn bytes(&mut self, at: usize, len: usize) -> Option<&[u8]>;

	/// The same where nothing is amiss if there are none.
	fn peek(&mut self, at: usize, len: usize) -> Option<&[u8]> {
		self.bytes(at, len)
	}
}

/// Most bytes asked for at a time.
pub const WINDOW: usize = 256 << 10;
