//! Why a seal was refused or failed.

use flashfork_core::{
	self as core,
	name::{self, NAME},
	never_seal::Reason,
};

/// Why nothing was sealed, or not all unsealed. Every byte of memory is as it was, and a plain fork is correct.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SealError {
	/// The process holds something that forbids sealing, or memory is short. [`Reason::cure`] says what to do.
	#[error("refused: {}; memory is unchanged and forks are correct", explain(*.0))]
	Refused(Reason),
	/// Code in this process makes system calls of its own, which the engine doesn't see.
	/// [`code::trust`](crate::code::trust) is for who knows better.
	#[error(
		"refused: {0}, and where it discards, moves or grows sealed memory that way old bytes would come back; {cure}; \
		 memory is unchanged and forks are correct", cure = Reason::SystemCalls.row().cure
	)]
	Code(String),
	/// A runtime in this process gives memory back with `MADV_DONTNEED`, trusts it to read zeros, and makes that call
	/// without libc, where the engine would see it.
	#[error(
		"refused: {0} is in this process, relies on MADV_DONTNEED giving zeros, which sealed memory doesn't, and makes \
		 its system calls itself (docs/SYSTEM_CALLS.md); leave it out, load it in a program that is not sealed, or vouch \
		 for it by `trust_allocator` and its file by `trust`; memory is unchanged and forks are correct"
	)]
	Allocator(&'static str),
	/// The engine was called from within itself, as from a signal handler.
	#[error("a seal of this process is under way (a signal handler called in its middle?); call again when it is over")]
	Busy,
	/// [`exclude`](crate::exclude) was called too often.
	#[error("64 ranges are excluded, the most there can be; exclude one larger range instead of many")]
	TooManyExcluded,
	/// A system call failed.
	#[error("can't {step}: {source}; memory is unchanged and forks are correct")]
	System {
		/// What was being done.
		step: &'static str,
		/// The kernel's answer.
		source: std::io::Error,
	},
}

/// What, why, and what to do.
pub(crate) fn explain(reason: Reason) -> String {
	let row = reason.row();
	let what = if reason == Reason::LowMemory { "memory is short" } else { row.what };
	let which = if reason == Reason::Driver { device() } else { String::new() };
	let cure = reason.cure().map(|cure| format!("; {cure}")).unwrap_or_default();
	format!("{what}{which} ({}){cure}", row.why)
}

/// `: NAME` of the last one in the way.
fn device() -> String {
	let mut buf = [0; NAME];
	let name = name::device().get(&mut buf);
	if name.is_empty() { String::new() } else { format!(": {}", String::from_utf8_lossy(name)) }
}

impl From<core::Error> for SealError {
	fn from(e: core::Error) -> SealError {
		match e {
			core::Error::Refused(Reason::SystemCalls) => {
				SealError::Code(crate::code::culprit().unwrap_or_else(|| explain(Reason::SystemCalls)))
			}
			core::Error::Refused(reason) => SealError::Refused(reason),
			core::Error::Busy => SealError::Busy,
			core::Error::System(step, errno) => SealError::System {
				step: match step {
					core::Step::Begin => "prepare the seal",
					core::Step::Look => "read the process's state in /proc/self",
					core::Step::CreateMemfd => "make a memfd",
					core::Step::Unseal => "make memory anonymous again",
					core::Step::Helper => "start the process that stops the threads, or it was killed",
				},
				source: std::io::Error::from_raw_os_error(errno.into_raw()),
			},
		}
	}
}

#[cfg(test)]
mod tests {
	use super::*;

	#[test]
	fn a_refusal_says_what_why_and_what_to_do_in_one_line() {
		let text = SealError::from(core::Error::Refused(Reason::IoUring)).to_string();
		let what_and_why = "refused: a process with an io_uring (the kernel would complete into the old pages); ";
		let (start, end) = text.split_at(what_and_why.len().min(text.len()));
		assert_eq!(start, what_and_why);
		assert!(end.ends_with("; memory is unchanged and forks are correct") && !end.contains('\n'), "{end}");
		assert!(end.contains(Reason::IoUring.row().cure), "{end}");
	}

	#[test]
	fn short_memory_is_told_as_such() {
		let text = SealError::Refused(Reason::LowMemory).to_string();
		assert!(text.starts_with("refused: memory is short (the memory cgroup would kill the process"), "{text}");
	}

	#[test]
	fn a_failed_call_keeps_its_errno() {
		let e = SealError::from(core::Error::System(core::Step::CreateMemfd, core::Errno::EMFILE));
		assert!(e.to_string().starts_with("can't make a memfd: Too many open files"), "{e}");
		assert!(matches!(e, SealError::System { source, .. } if source.raw_os_error() == Some(libc::EMFILE)));
	}
}
