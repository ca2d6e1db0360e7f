//! By when something should be over.

use std::time::{Duration, Instant};

/// A moment by which a caller wants an experiment to be over, or no such moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Deadline(Option<Instant>);

impl Deadline {
	/// As long as it takes.
	pub const NEVER: Self = Self(None);

	/// This long from now.
	pub fn after(time: Duration) -> Self {
		Self(Instant::now().checked_add(time))
	}

	/// What is left: zero when it has passed, [`Duration::MAX`] when there is none.
	pub fn left(self) -> Duration {
		self.0.map_or(Duration::MAX, |moment| moment.saturating_duration_since(Instant::now()))
	}

	/// Whether it has passed.
	pub fn passed(self) -> bool {
		self.left().is_zero()
	}

	/// The deadline of what begins now and may take `share` (0 to 1) of what is left.
	pub fn part(self, share: f64) -> Self {
		if self.0.is_none() { self } else { Self::after(self.left().mul_f64(share.clamp(0.0, 1.0))) }
	}
}

#[cfg(test)]
mod tests {
	use super::*;

	#[test]
	fn a_part_is_a_share_of_what_is_left() {
		let whole = Deadline::after(Duration::from_secs(1000));
		let half = whole.part(0.5);
		assert!((498..=500).contains(&half.left().as_secs()), "{:?}", half.left());
		assert!(whole.part(7.0).left() <= whole.left() + Duration::from_secs(1));
		assert!(Deadline::after(Duration::ZERO).part(0.5).passed() && !half.passed());
	}

	#[test]
	fn never_is_never() {
		assert_eq!(Deadline::NEVER.part(0.1), Deadline::NEVER);
		assert!(!Deadline::NEVER.passed() && Deadline::NEVER.left() == Duration::MAX);
	}
}
