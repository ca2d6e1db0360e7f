//! Whether anybody else uses this process's memory: threads, and processes that share it.

use super::errand::{self, Who};
use crate::{
	proc::{
		directory::{for_each_entry, for_each_process},
		text::{ProcPath, decimal, read_file, words},
	},
	sys::{self, Errno, Result},
};

/// Whether nobody but the calling thread uses this process's memory. `buf` is scratch.
pub fn alone(buf: &mut [u8]) -> Result<bool> {
	// `pthread_join` returns a moment before the kernel has taken the thread off the list (mm_release, release_task),
	// and for a moment more it counts one that is on no list. On a busy machine these are long: while nobody else is to
	// be seen it is asked again.
	const SOON: usize = 5;
	const PATIENCE: usize = 100;
	for turn in 0..PATIENCE {
		if alone_now(buf)? {
			return Ok(true);
		}
		if turn >= SOON && by_another(|| Ok(users(buf)? == 2 && !is_shared(buf, |_| true))) != Ok(true) {
			return Ok(false);
		}
		sys::pause_briefly();
	}
	Ok(false)
}

/// The same without waiting for threads that are just ending.
pub fn alone_now(buf: &mut [u8]) -> Result<bool> {
	// The kernel lets a process unshare its memory only when nobody else uses it, in whatever way they came to share
	// it.
	match sys::unshare_memory() {
		Ok(()) => Ok(true),
		// It counts a main thread that has ended, of which only the name is left: then everybody is asked.
		Err(Errno::EINVAL) => {
			let (me, main) = (sys::gettid(), sys::getpid());
			if me == main || !sys::same_memory(me, me) || sys::compare_memory(me, main) != Ok(false) {
				return Ok(false);
			}
			by_another(|| Ok(tasks(buf)? == 3 && !is_shared(buf, |_| true)))
		}
		// Not allowed (a seccomp filter, as in containers): look around.
		Err(_) => {
			let (me, parent) = (sys::gettid(), sys::getppid());
			by_another(|| Ok(tasks(buf)? == 2 && !shared_with_a_process(me, parent, buf)))
		}
	}
}

/// Has a thread look that has its own table, whoever uses the caller's, and is one more. False where none is to be had.
fn by_another(mut look: impl FnMut() -> Result<bool>) -> Result<bool> {
	let mut found = Ok(false);
	let asked = errand::run(Who::Thread, || {
		found = look();
		Ok(())
	});
	if asked.is_ok() { found } else { Ok(false) }
}

/// Whether another process runs in this address space (`clone(2)` with `CLONE_VM`, `vfork(2)`): parent and children of
/// the thread `me` are asked. Where the kernel has no `kcmp(2)` or list of children we can't know, and such processes
/// are rare.
fn shared_with_a_process(me: i32, parent: i32, buf: &mut [u8]) -> bool {
	let path = ProcPath::of(sys::getpid()).push(b"/task/").number(me).push(b"/children");
	let children = read_file(path.as_c(), buf).unwrap_or(b"");
	let shares = |pid| sys::same_memory(me, pid);
	shares(parent) || words(children).filter_map(decimal).any(|pid| shares(pid as i32))
}

/// Whether another process, of those that `counts` says matter, runs in the memory of the calling thread. Where
/// `kcmp(2)` doesn't know that a thread shares its memory with itself, this tells nothing.
pub fn is_shared(buf: &mut [u8], counts: impl Fn(i32) -> bool) -> bool {
	let (pid, me) = (sys::getpid(), sys::gettid());
	let shares = |other| other != pid && counts(other) && sys::same_memory(me, other);
	for_each_process(buf, |other| shares(other).then_some(())) != Ok(None)
}

fn tasks(buf: &mut [u8]) -> Result<usize> {
	count_tasks(buf, |_| true)
}

/// Threads that use this process's memory, for all that is known: one that ends does so no more while it is listed yet.
fn users(buf: &mut [u8]) -> Result<usize> {
	let me = sys::gettid();
	count_tasks(buf, |task| sys::compare_memory(me, task) != Ok(false))
}

fn count_tasks(buf: &mut [u8], counts: impl Fn(i32) -> bool) -> Result<usize> {
	let mut count = 0;
	for_each_entry(c"/proc/self/task", buf, |task| {
		count += usize::from(decimal(task).is_none_or(|task| counts(task as i32)));
		None::<()>
	})?;
	Ok(count)
}

#[cfg(test)]
mod tests {
	use super::*;

	#[test]
	fn a_test_harness_has_threads() {
		let done = std::sync::mpsc::channel::<()>();
		let other = std::thread::spawn(move || done.1.recv());
		assert_eq!(alone(&mut [0; 4096]), Ok(false));
		drop(done.0);
		other.join().unwrap().unwrap_err();
	}
}
