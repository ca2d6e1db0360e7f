//! The one place where experiments call the engines: prepare this process, clone it, wait for a clone.

use std::io;

use crate::prelude::*;
use flashfork::{Forked, SealOptions, SealReport, odf};
use rustix::process::{Pid, WaitOptions, WaitStatus, waitpid};

/// Which pages sealed memory is made of.
#[derive(Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Pages {
	/// 2 MB pages where possible.
	Auto,
	/// 4 KB pages.
	Small,
}

/// What a seal did and took.
#[derive(Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Sealed {
	/// How long the call took.
	pub seconds: f64,
	/// Bytes sealed.
	pub bytes: u64,
	/// Of these, bytes on 2 MB pages.
	pub huge_bytes: u64,
	/// Of these, bytes that held no page before.
	pub filled_bytes: u64,
	/// Most extra memory the seal held at any moment, by its own account, in bytes.
	pub peak_extra_bytes: u64,
}

impl Sealed {
	/// The share of sealed bytes on 2 MB pages, 0 to 1.
	pub fn huge_fraction(&self) -> f64 {
		if self.bytes == 0 { 0.0 } else { self.huge_bytes as f64 / self.bytes as f64 }
	}
}

/// Which process one is after a fork.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Side {
	/// The process that forked, and its child.
	Parent(Pid),
	/// The clone.
	Child,
}

/// The program itself: it holds code with system calls of its own, none of which discards memory.
pub fn own_code() -> Vec<PathBuf> {
	vec!["/proc/self/exe".into()]
}

/// Tells the library that [`own_code`] discards no memory.
pub fn trust_own_code() -> Result {
	own_code().iter().try_for_each(|file| flashfork::code::trust(file)).map_err(BenchError::unable)
}

/// Seals this process. Fails when less than `expected` bytes were sealed: what would be measured then is not a seal.
pub fn seal(pages: Pages, expected: u64) -> Result<Sealed> {
	let pages = match pages {
		Pages::Auto => flashfork::Pages::Auto,
		Pages::Small => flashfork::Pages::Small,
	};
	let report = flashfork::seal(&SealOptions { pages, trust: own_code(), ..SealOptions::default() })
		.map_err(BenchError::unable)?;
	if report.sealed_bytes < expected {
		return Err(BenchError::Unable(shortfall(&report, expected)));
	}
	Ok(Sealed {
		seconds: report.elapsed.as_secs_f64(),
		bytes: report.sealed_bytes,
		huge_bytes: report.huge_bytes,
		filled_bytes: report.filled_bytes,
		peak_extra_bytes: report.peak_extra_bytes,
	})
}

/// Why not everything was sealed, in one line: the reason given for the largest mapping left out.
fn shortfall(report: &SealReport, expected: u64) -> String {
	let left = |vma: &&flashfork::VmaReport| vma.range.len() as u64 - vma.sealed_bytes;
	let largest = report.vmas.iter().filter(|vma| vma.reason.is_some()).max_by_key(left);
	let why = largest.and_then(|vma| vma.reason).map_or("no reason given".to_owned(), |reason| reason.to_string());
	format!("only {} of {} were sealed: {why}", show(report.sealed_bytes), show(expected))
}

/// Prepares this process for clones by `method`: seals it, at least `expected` bytes of it, or asks the kernel to fork
/// on demand.
pub fn prepare(method: Method, expected: u64) -> Result<Option<Sealed>> {
	match method {
		Method::Fork4k | Method::ForkThp | Method::Hugetlb => Ok(None),
		Method::Seal => seal(Pages::Auto, expected).map(Some),
		Method::Odf => odf::enable().map(|()| None).map_err(BenchError::unable),
	}
}

/// Drops what reads have put into the page tables that a fork copies, as the policy of the shim does.
pub fn drop_refills() -> Result {
	let failed = |error| unable!("what was read can't be dropped: {error:?}");
	flashfork_core::drop_refills().map(drop).map_err(failed)
}

/// `fork(2)`: through the library where an engine is at work, else through the C library, as a program of each kind
/// calls it.
///
/// # Safety
/// In the child of a process with several threads only async-signal-safe functions may be called.
pub unsafe fn fork(method: Method) -> io::Result<Side> {
	let parent = |pid| Side::Parent(Pid::from_raw(pid).unwrap_or_else(|| unreachable!("a child's id is positive")));
	if matches!(method, Method::Seal | Method::Odf) {
		// SAFETY: the caller keeps to what may be done in the child.
		return match unsafe { flashfork::fork() }? {
			Forked::Child => Ok(Side::Child),
			Forked::Parent(pid) => Ok(parent(pid)),
		};
	}
	// SAFETY: the caller keeps to what may be done in the child.
	match unsafe { libc::fork() } {
		-1 => Err(io::Error::last_os_error()),
		0 => Ok(Side::Child),
		pid => Ok(parent(pid)),
	}
}

/// A clone that has done its work and was reaped.
#[derive(Clone, Copy)]
pub struct Cloned {
	/// What the fork call took, in the parent.
	pub call: Duration,
	/// From before it until the clone was reaped.
	pub whole: Duration,
	/// How it ended.
	pub status: WaitStatus,
}

/// Has a clone work; what `work` gives is its exit status.
///
/// # Safety
/// In the child of a process with several threads `work` may call only async-signal-safe functions.
pub unsafe fn in_clone(method: Method, work: impl FnOnce() -> i32) -> Result<Cloned> {
	let begin = Instant::now();
	// SAFETY: the caller keeps to what may be done in the child.
	match unsafe { fork(method) }.or_cant("fork")? {
		// SAFETY: ends the process without running anything of the parent's.
		Side::Child => unsafe { libc::_exit(work()) },
		Side::Parent(pid) => {
			let call = begin.elapsed();
			let status = reap(pid)?;
			Ok(Cloned { call, whole: begin.elapsed(), status })
		}
	}
}

impl Cloned {
	/// Fails unless the clone's exit status was 0. `what` it was doing; `meanings`: of other statuses.
	pub fn check(&self, what: impl FnOnce() -> String, meanings: &[(i32, &str)]) -> Result {
		check(self.status, what, meanings)
	}
}

/// [`Cloned::check`] of a clone's wait status.
pub fn check(status: WaitStatus, what: impl FnOnce() -> String, meanings: &[(i32, &str)]) -> Result {
	let known = meanings.iter().find(|(code, _)| status.exit_status() == Some(*code));
	match (status.exit_status(), known) {
		(Some(0), _) => Ok(()),
		(_, Some((_, meaning))) => Err(BenchError::Clone { what: what(), status: (*meaning).to_owned() }),
		_ => Err(BenchError::Clone { what: what(), status: ending(status) }),
	}
}

/// How a clone ended, in words.
pub fn ending(status: WaitStatus) -> String {
	match (status.exit_status(), status.terminating_signal()) {
		(Some(code), _) => format!("exit status {code}"),
		(None, Some(signal)) => format!("killed by signal {signal}"),
		(None, None) => format!("wait status {}", status.as_raw()),
	}
}

/// A clone that read other bytes than its parent had written: exit status, and what it means.
pub const WRONG_DATA: (i32, &str) = (3, "it read other bytes than its parent had written");

/// Waits for the end of a clone.
pub fn reap(pid: Pid) -> Result<WaitStatus> {
	loop {
		match waitpid(Some(pid), WaitOptions::empty()) {
			Ok(Some((_, status))) => return Ok(status),
			Ok(None) | Err(rustix::io::Errno::INTR) => {}
			Err(errno) => return Err(BenchError::system("reap a clone", errno)),
		}
	}
}
