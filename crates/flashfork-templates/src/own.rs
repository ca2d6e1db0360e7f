//! What this process is to the kernel, for a clone that takes it over.

use flashfork_core::inherited::Inherited;
use flashfork_warm::Start;

/// This process and thread, with room for what comes behind it in the memfd: no signal blocked or ignored, no stream
/// closed. The mask for new files is left out where it is `known`.
pub fn describe(known: Option<u32>) -> std::io::Result<Start> {
	let Inherited { scheduling, io_priority, personality, dump_filter, no_new_privs, prctl } = Inherited::look();
	let mut start = Start {
		umask: known.map_or_else(umask, Ok)?,
		nice: rustix::process::getpriority_process(None)?,
		scheduling,
		io_priority,
		personality,
		dump_filter,
		no_new_privs,
		prctl,
		..Start::NOTHING
	};
	// By libc: sets and limits are passed on word by word and by number.
	// SAFETY: the structures are writable and as long as said; the calls can't fail for the calling process.
	unsafe {
		libc::sched_getaffinity(0, size_of_val(&start.cpus), (&raw mut start.cpus).cast());
		for (which, limit) in start.limits.iter_mut().enumerate() {
			let mut now = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
			libc::getrlimit(which as libc::__rlimit_resource_t, &raw mut now);
			*limit = [now.rlim_cur, now.rlim_max];
		}
	}
	Ok(start)
}

/// Not by umask(2), which would have to change it for a moment under other threads' eyes.
fn umask() -> std::io::Result<u32> {
	let status = std::fs::read_to_string("/proc/thread-self/status")?;
	let mask = status.lines().find_map(|line| line.strip_prefix("Umask:"));
	let mask = mask.and_then(|mask| u32::from_str_radix(mask.trim(), 8).ok());
	mask.ok_or_else(|| std::io::Error::other("/proc/thread-self/status has no Umask"))
}

#[cfg(test)]
mod tests {
	use super::*;
	use rustix::fs::Mode;

	#[test]
	fn the_mask_for_new_files_is_read_and_kept() {
		let before = rustix::process::umask(Mode::from_raw_mode(0o027));
		let read = umask();
		assert_eq!(rustix::process::umask(before).as_raw_mode(), 0o027);
		assert_eq!(read.unwrap(), 0o027);
		assert_eq!(describe(Some(0o22)).unwrap().umask, 0o22);
	}
}
