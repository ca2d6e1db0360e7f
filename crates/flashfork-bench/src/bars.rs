//! Progress bars on a terminal, nothing in a pipe; notes always.

use flashfork_measure::Progress;
use flashfork_terminal::{interrupt, progress};
use indicatif::ProgressBar;
use std::time::Duration;

/// Shows an experiment's stages on standard error.
#[derive(Default)]
pub struct Bars {
	bar: Option<ProgressBar>,
}

impl Bars {
	fn finish(&mut self) {
		if let Some(bar) = self.bar.take() {
			bar.finish_and_clear();
		}
	}
}

impl Progress for Bars {
	fn begin(&mut self, what: &str, steps: u64) {
		self.finish();
		self.bar = progress::bar(what, steps);
	}

	fn step(&mut self) {
		if let Some(bar) = &self.bar {
			bar.inc(1);
		}
	}

	fn remaining(&mut self, time: Duration) {
		if let Some(bar) = &self.bar {
			bar.set_prefix(format!(" (at most {} left)", left(time)));
		}
	}

	fn note(&mut self, line: &str) {
		match &self.bar {
			Some(bar) => bar.suspend(|| eprintln!("{line}")),
			None => eprintln!("{line}"),
		}
	}

	fn interrupted(&self) -> bool {
		interrupt::caught()
	}
}

/// "38 min", in the end "50 s".
fn left(time: Duration) -> String {
	match time.as_secs() {
		seconds @ ..90 => format!("{seconds} s"),
		seconds => format!("{} min", seconds.div_ceil(60)),
	}
}

impl Drop for Bars {
	fn drop(&mut self) {
		self.finish();
	}
}
