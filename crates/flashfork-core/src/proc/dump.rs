//! What core dumps contain (`core(5)`, `/proc/self/coredump_filter`): sealed memory is file memory, and would be
//! missing.
//!
//! A program that is started inherits the filter and has no sealed memory. So what was added is marked: it is taken
//! away before ([`crate::answers::exec`]), and where that could not be, the shim does it there.

use super::text::{number, read_file};
use crate::{
	apart::Apart,
	state::STATE,
	sys::{self, Errno, Result},
};
use core::{
	ffi::CStr,
	sync::atomic::{AtomicU64, Ordering::Relaxed},
};

const FILTER: &CStr = c"/proc/self/coredump_filter";

const ANONYMOUS_PRIVATE: u64 = 1 << 0;

const FILE_PRIVATE: u64 = 1 << 2;

/// Shared memory of files on persistent memory (DAX): the mark. Who dumps that dumps private file memory too, and then
/// nothing is added.
const MARK: u64 = 1 << 8;

const ADDED: u64 = FILE_PRIVATE | MARK;

/// The filter that this process, or one it was forked from, had before something was added; [`NOTHING_ADDED`].
pub(crate) static BEFORE: Apart<AtomicU64> = Apart::new(AtomicU64::new(NOTHING_ADDED));
const NOTHING_ADDED: u64 = u64::MAX;

/// Adds private file memory. Where that isn't allowed core dumps lack it; everything else works.
pub(crate) fn add_file_memory(buf: &mut [u8]) {
	let Ok(filter) = read(buf) else { return };
	if lacks_sealed(filter) && write(filter | ADDED).is_ok() {
		BEFORE.store(filter, Relaxed);
	}
}

/// Whether core dumps with this filter lack sealed memory, and would have it if it weren't sealed.
fn lacks_sealed(filter: u64) -> bool {
	filter & (ANONYMOUS_PRIVATE | FILE_PRIVATE) == ANONYMOUS_PRIVATE
}

pub(crate) fn is_widened() -> bool {
	BEFORE.load(Relaxed) != NOTHING_ADDED
}

/// Takes away what was added, while the filter is that. An error where it isn't, because the program has set another,
/// too.
pub(crate) fn narrow() -> Result<()> {
	let before = BEFORE.load(Relaxed);
	if read(&mut [0; 64])? != before | ADDED {
		return Err(Errno::EINVAL);
	}
	write(before)
}

/// Adds again what [`narrow`] has taken away.
pub(crate) fn widen() -> Result<()> {
	let before = BEFORE.load(Relaxed);
	if read(&mut [0; 64])? == before { write(before | ADDED) } else { Ok(()) }
}

/// Nothing is sealed any more: takes away what was added.
pub(crate) fn all_unsealed() {
	// Where it can't be written core dumps are larger.
	if is_widened() && narrow().is_ok() {
		BEFORE.store(NOTHING_ADDED, Relaxed);
	}
}

/// Takes back, in a program that was just started, what the one before had added.
pub fn take_back() {
	if let Ok(filter) = read(&mut [0; 64])
		&& filter & ADDED == ADDED
	{
		// As above.
		let _ = write(filter & !ADDED);
	}
}

/// The filter that a program would have which this process starts: without what was added, by whichever copy of the
/// engine. `None` where it can't be read.
pub(crate) fn inherited() -> Option<u32> {
	let filter = read(&mut [0; 64]).ok()?;
	Some(if filter & ADDED == ADDED { filter & !ADDED } else { filter } as u32)
}

/// Gives a clone the filter of its caller, with private file memory where something is sealed.
pub(crate) fn take(filter: u64) -> Result<()> {
	let widens = lacks_sealed(filter) && STATE.holds_sealed();
	let (before, wanted) = if widens { (filter, filter | ADDED) } else { (NOTHING_ADDED, filter) };
	write(wanted)?;
	BEFORE.store(before, Relaxed);
	Ok(())
}

fn read(buf: &mut [u8]) -> Result<u64> {
	number(read_file(FILTER, buf)?, 16).ok_or(Errno::EINVAL)
}

fn write(filter: u64) -> Result<()> {
	let digit = |n: u64| b"0123456789abcdef"[(n & 15) as usize];
	let fd = sys::open(FILTER, sys::O_WRONLY)?;
	let written = sys::write(fd, &[b'0', b'x', digit(filter >> 8), digit(filter >> 4), digit(filter)]);
	sys::close(fd);
	written.map(drop)
}
