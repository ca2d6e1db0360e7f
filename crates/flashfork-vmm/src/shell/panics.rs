//! A panic of any thread is the end of this shell, and of no other. The daemon hears why before the process is gone.

use flashfork_proto::shell::{Channel, Ended, FromShell};
use std::{panic, sync::Arc};

/// From now on a panic of this process is told over `channel`: once, in one line.
pub fn tell(channel: &Arc<Channel>) {
	let channel = channel.clone();
	let before = panic::take_hook();
	panic::set_hook(Box::new(move |panic| {
		let payload = panic.payload();
		let what = payload.downcast_ref::<&str>().copied().or(payload.downcast_ref::<String>().map(String::as_str));
		let what = what.unwrap_or("no reason given").replace('\n', " ");
		let place = panic.location().map(ToString::to_string).unwrap_or_default();
		let thread = std::thread::current();
		let thread = thread.name().unwrap_or("unnamed");
		let line =
			format!("the monitor's thread {thread} panicked at {place}: {what}; this is a bug, please report it");
		// A daemon that has gone needs no reason.
		let _ = channel.send(&FromShell::Ended(Ended::Failed(line)), &[]);
		before(panic);
	}));
}
