//! What waiting takes. Alone in its process: memory is counted of the whole.

use flashfork_proto::shell::{Channel, FromShell};
use std::{fs, thread, time::Duration};

const CHANNELS: usize = 100;

/// KiB of this process's own memory.
fn own() -> usize {
	let status = fs::read_to_string("/proc/self/status").unwrap();
	let line = status.lines().find_map(|line| line.strip_prefix("RssAnon:")).unwrap();
	line.trim().trim_end_matches(" kB").parse().unwrap()
}

/// Threads of this process that sleep in a system call which reads from a socket.
fn waiting() -> usize {
	let tasks = fs::read_dir("/proc/self/task").unwrap();
	let call = |task: std::io::Result<fs::DirEntry>| fs::read_to_string(task.unwrap().path().join("syscall"));
	let receives = |call: &String| call.starts_with("45 ") || call.starts_with("47 ");
	tasks.filter_map(|task| call(task).ok()).filter(receives).count()
}

#[test]
fn a_channel_on_which_nothing_comes_takes_no_buffer() {
	let ends: Vec<_> = (0..CHANNELS).map(|_| Channel::pair().unwrap()).collect();
	let before = own();
	thread::scope(|scope| {
		for (daemon, _) in &ends {
			scope.spawn(|| daemon.receive::<FromShell>().unwrap());
		}
		// As long as it takes.
		while waiting() < CHANNELS {
			thread::sleep(Duration::from_millis(10));
		}
		let each = (own() - before) / CHANNELS;
		ends.iter().for_each(|(_, shell)| shell.send(&FromShell::Ready, &[]).unwrap());
		// A thread's stack is in it.
		assert!(each < 64, "{each} KiB for each channel");
	});
}
