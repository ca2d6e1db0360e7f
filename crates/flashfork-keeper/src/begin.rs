//! A template that is ready gets its name, and lets go of who has started it.

use crate::{message, numbers::Numbers, process, serve::Keeper, told::Told, warm::Ready};
use flashfork_warm::{Facts, Tell, WAITING, Word};
use rustix::{
	io::Errno,
	net::{RecvFlags, listen, recv},
};
use std::{
	collections::{BTreeMap, BTreeSet, VecDeque},
	os::fd::AsFd,
	time::Instant,
};

/// Says that the template is ready, and waits until it has its name.
pub fn begin(told: Told, ready: Ready) -> std::io::Result<Keeper> {
	let Ready { init, init_process, kept, line, word, files, listeners } = ready;
	let Word::Frozen { free, sealed, unsealed, clocks, .. } = word else { return Err(Errno::INVAL.into()) };
	// Said by the maker, who is the program's.
	if free[0] < 0 || free[1] <= free[0] || free[1] > MOST {
		return Err(Errno::RANGE.into());
	}
	let pid = i32::try_from(std::process::id()).map_err(|_| Errno::RANGE)?;
	let (at, max) = (told.ready_at(), told.max);
	let facts = Facts { pid, at, sealed, unsealed, made: 0, running: 0, max, changed: 0, unwatched: 0 };
	// Again, by this process: it is whom callers find to be at the other end.
	listen(&told.listener, WAITING)?;
	let all = [libc::SIGTERM, libc::SIGINT, libc::SIGQUIT, libc::SIGHUP];
	let signals = process::signals(&all)?;
	process::let_go_of_streams()?;
	let _ = std::env::set_current_dir("/");
	raise_descriptor_limit();
	process::outlive_parent()?;
	// The command gives the socket its name, and tells its inode. If it is gone nobody could ever find us.
	message::send(told.control.as_fd(), &Tell::Facts(facts).encode(), &[])?;
	let mut inode = [0; 8];
	let (got, _) = recv(&told.control, &mut inode, RecvFlags::empty())?;
	if got != inode.len() {
		return Err(Errno::PIPE.into());
	}
	let inode = u64::from_ne_bytes(inode);
	let (connections, next) = (BTreeMap::new(), 0);
	Ok(Keeper {
		told,
		init,
		init_process,
		line,
		signals,
		inode,
		facts,
		clocks,
		files,
		listeners,
		gone: None,
		retired: false,
		paused: false,
		connections,
		next,
		wanted: VecDeque::new(),
		ordered: None,
		early: BTreeMap::new(),
		spaces: VecDeque::new(),
		asked: false,
		time: None,
		begins_until: Instant::now(),
		inits: BTreeSet::new(),
		kept,
		numbers: Numbers::new(free),
	})
}

/// The highest number that a process can have (`PID_MAX_LIMIT`).
pub const MOST: i32 = 1 << 22;

/// A descriptor for every caller, or as many as can be had.
fn raise_descriptor_limit() {
	// SAFETY: the structure is a local.
	unsafe {
		let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
		if libc::getrlimit(libc::RLIMIT_NOFILE, &raw mut limit) == 0 {
			limit.rlim_cur = limit.rlim_max;
			libc::setrlimit(libc::RLIMIT_NOFILE, &raw const limit);
		}
	}
}
