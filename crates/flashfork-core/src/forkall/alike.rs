//! What clones could not be given, because they are forked from the maker, which the main thread has made, and all
//! their threads from one. What the program must have kept since it was started its keeper looks at.

use super::{
	frozen::Frozen,
	raw::call,
	unfit::{Fit, Unfit, What},
};
use crate::{
	proc::text::{ProcPath, decimal, read_file, words},
	state::STATE,
	sys::{self, Result},
	threads::alone,
};
use syscalls::Sysno;

/// Namespaces in which a process, or a thread, may be by itself.
const NAMESPACES: [&[u8]; 7] = [b"mnt", b"net", b"pid_for_children", b"user", b"uts", b"ipc", b"time_for_children"];

/// Lines of /proc/PID/status that all threads must have alike; and those of capabilities.
const CREDENTIALS: [&[u8]; 4] = [b"Uid:", b"Gid:", b"Groups:", b"NoNewPrivs:"];
const CAPABILITIES: [&[u8]; 4] = [b"CapInh:", b"CapPrm:", b"CapEff:", b"CapAmb:"];
/// What a program that it starts may get; no thread gets back what it has given up of that.
const BOUNDS: &[u8] = b"CapBnd:";
const FILTER: &[u8] = b"Seccomp:";

/// With all threads stopped.
pub fn check(frozen: &mut Frozen) -> Fit {
	let pid = frozen.pid;
	if STATE.anybody_inside() {
		return Err(Unfit::new(What::Inside, 0));
	}
	if alone::is_shared(&mut frozen.list, |other| other != pid) {
		return Err(Unfit::new(What::SharedMemory, 0));
	}
	let Frozen { threads, count, text, small, .. } = frozen;
	let main = read_file(ProcPath::of(pid).push(b"/status").as_c(), small)?;
	for thread in &threads[..*count] {
		let tid = thread.tid;
		let place = || ProcPath::of(pid).push(b"/task/").number(tid);
		let children = read_file(place().push(b"/children").as_c(), text)?;
		if let Some(child) = words(children).next().and_then(decimal) {
			return Err(Unfit::new(What::Child, child as i32));
		}
		let status = read_file(place().push(b"/status").as_c(), text)?;
		let alike = |key: &&[u8]| line(status, key) == line(main, key);
		if !alike(&FILTER) {
			return Err(Unfit::new(What::Filter, tid));
		}
		if !CREDENTIALS.iter().chain(&CAPABILITIES).all(alike) || !alike(&BOUNDS) {
			return Err(Unfit::new(What::Credentials, tid));
		}
		if line(status, b"x86_Thread_features:").windows(5).any(|word| word == b"shstk") {
			return Err(Unfit::new(What::ShadowStack, tid));
		}
		if tid != pid && !(shares(pid, tid, KCMP_FILES) && shares(pid, tid, KCMP_FS)) {
			return Err(Unfit::new(What::Apart, tid));
		}
		if tid != pid && !same_place(tid, pid)? {
			return Err(Unfit::new(What::Namespace, tid));
		}
	}
	Ok(())
}

const KCMP_FILES: usize = 2;
const KCMP_FS: usize = 3;

/// Whether two threads have a thing in common (`kcmp(2)`).
fn shares(one: i32, other: i32, what: usize) -> bool {
	// SAFETY: takes numbers.
	unsafe { call(Sysno::kcmp, [one as usize, other as usize, what, 0, 0]) == Ok(0) }
}

/// What stands behind a key, to the end of its line.
pub fn line<'a>(status: &'a [u8], key: &[u8]) -> &'a [u8] {
	status.split(|b| *b == b'\n').find_map(|line| line.strip_prefix(key)).unwrap_or(b"")
}

fn has_none(status: &[u8]) -> bool {
	CAPABILITIES.iter().all(|key| line(status, key).iter().all(|b| b" \t0".contains(b)))
}

/// Whether the program has no capabilities: then its clones have none.
pub fn drops_capabilities(pid: i32, buf: &mut [u8]) -> Result<bool> {
	read_file(ProcPath::of(pid).push(b"/status").as_c(), buf).map(has_none)
}

/// Whether two processes or threads are in the same namespaces and have the same root directory.
fn same_place(one: i32, other: i32) -> Result<bool> {
	for name in NAMESPACES {
		let read = |pid: i32, to: &mut [u8; 64]| {
			match sys::readlink(ProcPath::of(pid).push(b"/ns/").push(name).as_c(), to) {
				// This kernel has none of the kind; or no child was made in it yet.
				Err(sys::Errno::ENOENT) => Ok(0),
				told => told,
			}
		};
		let (mut a, mut b) = ([0; 64], [0; 64]);
		let (a_len, b_len) = (read(one, &mut a)?, read(other, &mut b)?);
		if a[..a_len] != b[..b_len] {
			return Ok(false);
		}
	}
	let root = |pid: i32| sys::status(ProcPath::of(pid).push(b"/root").as_c()).map(|s| (s.device, s.inode));
	Ok(root(one)? == root(other)?)
}
