//! What may stand in the way of a restore beside the mappings. Changes nothing.

use super::{
	Error, Step,
	table::{Saved, Table},
};
use crate::{
	kernel_writers,
	never_seal::Reason,
	outcome::Purpose,
	proc::{
		text::{field, read_file},
		vma::Kind,
	},
	state::STATE,
	sys::{self, Errno},
	threads::alone,
};
use linux_raw_sys::general as k;

/// Everything but the mappings that may stand in the way. Gives whether it is known that the program has made no call
/// since all was as it should be that would matter here: for an object through which the kernel writes memory later,
/// for locks, guards or advice. While memory is sealed, or may be, the engine sees all such calls ([`crate::calls`]).
pub fn check(table: &mut Table) -> Result<bool, Error> {
	let look = |e| Error::System(Step::Look, e);
	// Before any other call: a filter may end the process for it.
	if filters(&mut table.arena.text) != table.filters {
		return Err(Error::Refused(Reason::SeccompFilter));
	}
	if !alone::alone(&mut table.arena.text).map_err(look)? {
		return Err(Error::Refused(Reason::Threads));
	}
	if sys::thread_pointer().map_err(look)? != table.thread_pointer {
		return Err(Error::Thread);
	}
	if table.locks && sys::locks_new_memory().map_err(look)? {
		return Err(Error::Refused(Reason::LocksFuture));
	}
	let nothing_came = table.properties == Some(STATE.properties()) && STATE.sees_calls();
	// What writes memory on behalf of an object that has come since; a userfaultfd would stop the restore at a page.
	if !nothing_came
		&& let Some(reason) = kernel_writers::descriptors(Purpose::Unseal, &mut table.arena.text).map_err(look)?
	{
		return Err(Error::Refused(reason));
	}
	// Its memory may be such that not even a restore can read it, which maps doesn't tell.
	if next_key(table) != table.next_key {
		return Err(Error::Refused(Reason::ProtectionKey));
	}
	for (fd, identity, _) in &table.offsets[..table.offset_count] {
		if sys::identity(*fd) != Ok(*identity) {
			return Err(Error::Descriptor(*fd));
		}
	}
	Ok(nothing_came)
}

/// Pages of file mappings to which copies come back are still there: those behind the end of a file cut since raise
/// SIGBUS.
pub fn files_are_long_enough(table: &Table) -> Result<(), Error> {
	let entry = |saved: &Saved| &table.entries[saved.entry as usize];
	// What is known has been found in memory.
	let of_file = |saved: &&Saved| entry(saved).kind == Kind::File && entry(saved).unknown;
	for saved in table.saved[..table.saved_count].iter().filter(of_file) {
		let range = saved.range;
		// SAFETY: brings pages into memory, no more.
		let populated = unsafe { sys::madvise(range.start, range.len(), k::MADV_POPULATE_READ) };
		if populated.is_err() && !sys::can_read_own(range.start, range.end) {
			return Err(Error::Changed(range));
		}
	}
	Ok(())
}

/// How many seccomp filters this process is under; the same number in any case where nobody can tell.
pub fn filters(buf: &mut [u8]) -> usize {
	match sys::seccomp_mode() {
		// A kernel without them.
		Ok(0) | Err(Errno::EINVAL) => 0,
		_ => {
			let count = read_file(c"/proc/thread-self/status", buf).ok().and_then(|t| field(t, b"Seccomp_filters"));
			count.map_or(usize::MAX, |count| count as usize)
		}
	}
}

/// The protection key that comes next; 0 under a filter, which may end the process for the question.
pub fn next_key(table: &Table) -> usize {
	if table.filters == 0 { sys::next_key() } else { 0 }
}
