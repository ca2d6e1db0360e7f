//! Progress on a terminal, nothing in a pipe.

use indicatif::{ProgressBar, ProgressStyle};
use std::{io::IsTerminal, time::Duration};

/// A bar of so many steps on standard error; none where that is no terminal. Its prefix stands behind `what`.
pub fn bar(what: &str, steps: u64) -> Option<ProgressBar> {
	let bar = on_terminal(|| ProgressBar::new(steps))?;
	let style = ProgressStyle::with_template("{elapsed:>4} {bar:30} {pos}/{len} {msg}{prefix}");
	bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()));
	bar.set_message(what.to_string());
	bar.enable_steady_tick(Duration::from_millis(500));
	Some(bar)
}

/// Shows that something takes long, and that it goes on.
pub fn waiting<T>(what: &'static str, work: impl FnOnce() -> T) -> T {
	let bar = on_terminal(|| ProgressBar::new_spinner().with_message(what));
	if let Some(bar) = &bar {
		bar.enable_steady_tick(Duration::from_millis(200));
	}
	let result = work();
	if let Some(bar) = bar {
		bar.finish_and_clear();
	}
	result
}

fn on_terminal(bar: impl FnOnce() -> ProgressBar) -> Option<ProgressBar> {
	std::io::stderr().is_terminal().then(bar)
}
