//! Watches of epoll, which the kernel counts for each user: one call could use up all, and nobody could reach the
//! server any more.

use crate::usage::{children, namespace, walk};
use rustix::{
	event::{
		EventfdFlags,
		epoll::{self, CreateFlags, EventData, EventFlags},
		eventfd,
	},
	io::Errno,
	process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal},
};
use std::{
	collections::BTreeMap,
	fs::{File, read_dir, read_to_string},
	io::{BufRead, BufReader, ErrorKind, Result},
	path::Path,
	time::Duration,
};
use tracing::warn;

/// How often it is tried whether there are any left.
const LOOK: Duration = Duration::from_secs(1);
/// As many any call may have.
const FEW: usize = 1024;

/// Ends what has more than a quarter of its part while none are left.
pub fn guard(concurrency: usize) -> Result<()> {
	let (epoll, event) = (epoll::create(CreateFlags::CLOEXEC)?, eventfd(0, EventfdFlags::CLOEXEC)?);
	let limit = read_to_string("/proc/sys/fs/epoll/max_user_watches").unwrap_or_default();
	let most = FEW.max(limit.trim().parse::<usize>().unwrap_or_default() / (4 * concurrency));
	tokio::spawn(async move {
		let mut told = false;
		loop {
			tokio::time::sleep(LOOK).await;
			if epoll::add(&epoll, &event, EventData::new_u64(0), EventFlags::IN) != Err(Errno::NOSPC) {
				let _ = epoll::delete(&epoll, &event);
				told = false;
				continue;
			}
			let end = move || end_greedy(std::process::id(), most);
			// It fails when the server ends.
			let ended = tokio::task::spawn_blocking(end).await.unwrap_or_default();
			if ended > 0 || !told {
				warn!(
					ended,
					"the user has no watches of epoll left (fs.epoll.max_user_watches): who has many is ended"
				);
			}
			told = true;
		}
	});
	Ok(())
}

/// Ends calls and templates with more below the wardens of a server; tells how many processes. With its first process
/// all of a namespace ends; of a template with threads the calls are one, with their keeper.
fn end_greedy(server: u32, most: usize) -> usize {
	let mut ended = 0;
	for inner in children(server).flat_map(children).filter(|inner| namespace(*inner) != namespace(server)) {
		let mut parts = BTreeMap::<_, (usize, Vec<u32>)>::new();
		walk(inner, 1, None, None, &mut |process, call| {
			let (count, processes) = parts.entry(call.cloned().or_else(|| namespace(inner))).or_default();
			if process != inner && *count <= most {
				*count += watches(process, most);
				processes.push(process);
			}
		});
		parts.retain(|_, (count, _)| *count > most);
		for (name, (_, processes)) in parts {
			let end = |process: &u32| {
				let pid = pidfd_open(Pid::from_raw(*process as i32)?, PidfdFlags::empty()).ok()?;
				// Another may have its number by now.
				(namespace(*process) == name).then(|| pidfd_send_signal(pid, Signal::KILL).ok())?
			};
			ended += processes.iter().filter_map(end).count();
		}
	}
	ended
}

/// Of a process's epoll instances, by the thread that has most: each may have its own descriptors.
fn watches(process: u32, most: usize) -> usize {
	let threads = read_dir(format!("/proc/{process}/task")).into_iter().flatten().flatten();
	threads.map(|thread| watches_in(&thread.path().join("fdinfo"), most)).max().unwrap_or_default()
}

/// One more than `most` stands for all that are more.
fn watches_in(descriptors: &Path, most: usize) -> usize {
	let files = read_dir(descriptors).into_iter().flatten().flatten();
	let is_one = |line: Result<Vec<u8>>| match line {
		Ok(line) => Some(line.starts_with(b"tfd:")),
		// Unless the process has ended the kernel has no memory for so many.
		Err(e) => (e.kind() != ErrorKind::NotFound).then_some(true),
	};
	let lines = |file| BufReader::new(file).split(b'\n').map_while(is_one);
	// One may be closed by now.
	files.filter_map(|file| File::open(file.path()).ok()).flat_map(lines).filter(|one| *one).take(most + 1).count()
}

#[cfg(test)]
mod tests {
	use super::*;
	use std::process::{Command, Stdio};

	#[test]
	fn who_has_too_many_watches_is_ended_but_no_warden() {
		// All that is started has it too.
		let epoll = epoll::create(CreateFlags::empty()).unwrap();
		let events = [(); 65].map(|()| eventfd(0, EventfdFlags::CLOEXEC).unwrap());
		for event in &events {
			epoll::add(&epoll, event, EventData::new_u64(0), EventFlags::IN).unwrap();
		}
		let mut warden = Command::new("unshare");
		warden.args(["-Urpf", "--kill-child", "sh", "-c", "cat; exit $?"]).stdin(Stdio::piped());
		let mut warden = warden.spawn().unwrap();
		let is_cat = |process| read_to_string(format!("/proc/{process}/comm")).unwrap_or_default() == "cat\n";
		while !children(warden.id()).flat_map(children).any(is_cat) {
			std::thread::yield_now();
		}
		assert_eq!(end_greedy(std::process::id(), 65), 0);
		assert_eq!(end_greedy(std::process::id(), 64), 1);
		// The shell says that its program was killed.
		assert_eq!(warden.wait().unwrap().code(), Some(137));
	}
}
