//! The names in a directory, by `getdents64(2)`.

use super::text::{self, decimal};
use crate::sys::{self, Errno, Result};
use core::ffi::CStr;

/// Calls `each` with the names in a directory, `.` and `..` left out, until it gives something.
pub fn for_each_entry<T>(path: &CStr, buf: &mut [u8], mut each: impl FnMut(&[u8]) -> Option<T>) -> Result<Option<T>> {
	let fd = text::open(path, sys::O_RDONLY | sys::O_DIRECTORY)?;
	let result = walk(fd, buf, &mut each);
	sys::close(fd);
	result
}

fn walk<T>(fd: i32, buf: &mut [u8], each: &mut impl FnMut(&[u8]) -> Option<T>) -> Result<Option<T>> {
	loop {
		let n = match sys::getdents(fd, buf)? {
			0 => return Ok(None),
			n => n,
		};
		if let Some(found) = entries(&buf[..n], each)? {
			return Ok(Some(found));
		}
	}
}

/// Walks `struct linux_dirent64`: inode 8 bytes, offset 8, length 2, type 1, name.
fn entries<T>(mut list: &[u8], each: &mut impl FnMut(&[u8]) -> Option<T>) -> Result<Option<T>> {
	while !list.is_empty() {
		let header = list.get(..19).ok_or(Errno::EIO)?;
		let len = usize::from(u16::from_ne_bytes([header[16], header[17]]));
		let name = list.get(19..len).ok_or(Errno::EIO)?;
		let name = name.split(|b| *b == 0).next().unwrap_or(name);
		if name != b"."
			&& name != b".."
			&& let Some(found) = each(name)
		{
			return Ok(Some(found));
		}
		list = &list[len..];
	}
	Ok(None)
}

/// Calls `each` with the numbers of all processes until it gives something.
pub fn for_each_process<T>(buf: &mut [u8], mut each: impl FnMut(i32) -> Option<T>) -> Result<Option<T>> {
	for_each_entry(c"/proc", buf, |name| decimal(name).and_then(|pid| each(pid as i32)))
}

/// Calls `each` with every open descriptor but the one it looks through. `buf` is scratch.
pub fn for_each_descriptor(buf: &mut [u8], mut each: impl FnMut(i32)) -> Result<()> {
	let fd = text::open(c"/proc/thread-self/fd", sys::O_RDONLY | sys::O_DIRECTORY)?;
	let result = walk(fd, buf, &mut |name| {
		if let Some(found) = decimal(name).map(|n| n as i32).filter(|found| *found != fd) {
			each(found);
		}
		None::<()>
	});
	sys::close(fd);
	result.map(drop)
}

#[cfg(test)]
mod tests {
	use super::*;

	#[test]
	fn entries_are_walked_whole() {
		let mut seen = Vec::new();
		for_each_entry(c"/proc/thread-self/fd", &mut [0; 96], |n| {
			seen.push(String::from_utf8(n.to_vec()).unwrap());
			None::<()>
		})
		.unwrap();
		for fd in ["0", "1", "2"] {
			assert!(seen.contains(&fd.to_string()), "{seen:?}");
		}
	}
}
