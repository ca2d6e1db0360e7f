//! The writable private memory of a stopped process, as it was at one moment.

use std::{collections::HashMap, fs::File, io, ops::Range, os::unix::fs::FileExt};

use procfs::process::{MMPermissions, MMapPath, Process};

use super::blocks::{Change, Counter, PAGE};
use crate::error::AdviseError;

/// Pages looked at or read at once.
const CHUNK: u64 = 512;
/// Bits of a pagemap entry (Documentation/admin-guide/mm/pagemap.rst): present, swapped.
const THERE: u64 = 1 << 63 | 1 << 62;

/// The contents of a process's pages.
#[derive(Debug, Default)]
pub struct Snapshot {
	/// Where each page's bytes begin in `bytes`.
	index: HashMap<u64, usize>,
	bytes: Vec<u8>,
}

impl Snapshot {
	/// Reads the memory of the process `pid`, which should be stopped. Needs as much memory again.
	pub fn of(pid: i32) -> Result<Self, AdviseError> {
		let mut snapshot = Self::default();
		Memory::open(pid)?.each_page(|address, page| {
			snapshot.index.insert(address, snapshot.bytes.len());
			snapshot.bytes.extend_from_slice(page);
		})?;
		Ok(snapshot)
	}

	/// What has changed in the process `pid` since.
	pub fn compare(&self, pid: i32) -> Result<Change, AdviseError> {
		const ZEROES: [u8; PAGE as usize] = [0; PAGE as usize];
		let mut counter = Counter::default();
		Memory::open(pid)?.each_page(|address, page| {
			let before = self.index.get(&address).map_or(&ZEROES[..], |&at| &self.bytes[at..at + PAGE as usize]);
			let changed = if before == page { 0 } else { page.iter().zip(before).filter(|(a, b)| a != b).count() };
			counter.page(address, changed as u64);
		})?;
		Ok(counter.change())
	}

	/// Bytes in it.
	pub fn bytes(&self) -> u64 {
		self.bytes.len() as u64
	}
}

/// Bytes of writable private memory the process `pid` holds, without reading them.
pub(super) fn populated(pid: i32) -> Result<u64, AdviseError> {
	let mut pages = 0;
	let memory = Memory::open(pid)?;
	for range in &memory.ranges {
		pages += memory.pages_there(range.clone())?.len() as u64;
	}
	Ok(pages * PAGE)
}

struct Memory {
	pid: i32,
	ranges: Vec<Range<u64>>,
	pages: File,
	contents: File,
}

impl Memory {
	fn open(pid: i32) -> Result<Self, AdviseError> {
		let gone = |error: procfs::ProcError| match error {
			procfs::ProcError::NotFound(_) => AdviseError::Unable(format!("there is no process {pid}")),
			other => denied(pid, io::Error::other(other)),
		};
		let maps = Process::new(pid).and_then(|process| process.maps()).map_err(gone)?;
		let writable = MMPermissions::WRITE | MMPermissions::PRIVATE | MMPermissions::READ;
		let ranges = maps
			.iter()
			.filter(|map| map.perms.contains(writable))
			.filter(|map| !matches!(map.pathname, MMapPath::Vdso | MMapPath::Vvar | MMapPath::Vsyscall))
			.map(|map| map.address.0..map.address.1)
			.collect();
		let open = |name: &str| File::open(format!("/proc/{pid}/{name}")).map_err(|error| denied(pid, error));
		Ok(Self { pid, ranges, pages: open("pagemap")?, contents: open("mem")? })
	}

	/// Calls `see` with the address and bytes of every page that is there.
	fn each_page(&self, mut see: impl FnMut(u64, &[u8])) -> Result<(), AdviseError> {
		let mut page = [0; PAGE as usize];
		for range in &self.ranges {
			for address in self.pages_there(range.clone())? {
				match self.contents.read_exact_at(&mut page, address) {
					Ok(()) => see(address, &page),
					// A page the kernel itself can't read, such as a guard page or one of a device.
					Err(error) if error.raw_os_error() == Some(libc::EIO) => {}
					Err(error) => return Err(denied(self.pid, error)),
				}
			}
		}
		Ok(())
	}

	/// The addresses of the pages in `range` that are in memory or swap.
	fn pages_there(&self, range: Range<u64>) -> Result<Vec<u64>, AdviseError> {
		let mut found = Vec::new();
		let mut entries = vec![0; 8 * CHUNK as usize];
		let (mut page, end) = (range.start / PAGE, range.end / PAGE);
		while page < end {
			let count = CHUNK.min(end - page);
			let entries = &mut entries[..8 * count as usize];
			self.pages.read_exact_at(entries, page * 8).map_err(|error| denied(self.pid, error))?;
			for (number, entry) in (page..).zip(entries.chunks_exact(8)) {
				let entry = entry.try_into().map_or(0, u64::from_ne_bytes);
				if entry & THERE != 0 {
					found.push(number * PAGE);
				}
			}
			page += count;
		}
		Ok(found)
	}
}

fn denied(pid: i32, error: io::Error) -> AdviseError {
	let hint = match error.kind() {
		io::ErrorKind::PermissionDenied => " (run as the process's user or as root)",
		_ => "",
	};
	AdviseError::system(format!("read the memory of process {pid}{hint}"), error)
}

#[cfg(test)]
mod tests {
	use super::{super::stopped::Stopped, *};
	use std::{
		io::{BufRead, BufReader, Write},
		process::{Child, Command, Stdio},
	};

	/// Holds 64 pages; `w` writes two bytes in 40 of them, `b` writes back what was there, `z` writes zeroes to 64
	/// more.
	const PROGRAM: &str = "#include <stdio.h>
        #include <sys/mman.h>
        int main(void) {
            char *m = mmap(0, 1 << 20, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
            for (int i = 0; i < 64; i++) m[i * 4096] = 1;
            for (int c = '\\n'; c != EOF; c = getchar()) {
                for (int i = 0; i < 40 && (c == 'w' || c == 'b'); i++)
                    m[i * 4096 + 7] = m[i * 4096 + 8] = c == 'w' ? 9 : 0;
                for (int i = 128; i < 192 && c == 'z'; i++) m[i * 4096] = 0;
                if (c == '\\n') puts(\"\"), fflush(stdout);
            }
        }";

	/// A process of [`PROGRAM`], which answers each line.
	fn helper() -> (Child, impl FnMut(&str)) {
		let place = tempfile::tempdir().unwrap();
		let (source, program) = (place.path().join("helper.c"), place.path().join("helper"));
		std::fs::write(&source, PROGRAM).unwrap();
		assert!(Command::new("cc").arg("-o").arg(&program).arg(&source).status().unwrap().success());
		let mut child = Command::new(&program).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
		let (mut input, mut output) = (child.stdin.take().unwrap(), BufReader::new(child.stdout.take().unwrap()));
		let mut answer = move || assert!(output.read_line(&mut String::new()).unwrap() > 0);
		answer();
		(child, move |line: &str| {
			writeln!(input, "{line}").unwrap();
			answer();
		})
	}

	#[test]
	fn written_pages_of_another_process_are_found_and_reading_makes_none() {
		let (mut child, mut run) = helper();
		let pid = child.id() as i32;
		run("");
		let before = {
			let _stopped = Stopped::hold(pid).unwrap();
			let held = populated(pid).unwrap();
			let before = Snapshot::of(pid).unwrap();
			let idle = before.compare(pid).unwrap();
			assert_eq!((before.bytes(), idle.bytes, idle.changed_bytes), (held, held, 0), "looking changed something");
			before
		};
		run("w");
		let change = before.compare(pid).unwrap();
		// The program itself writes some pages when it reads a line.
		assert!((80..80 + 60_000).contains(&change.changed_bytes), "{change:?}");
		assert!((40..40 + 120).contains(&change.blocks[0].1), "{change:?}");
		run("b");
		run("z");
		let zeroes = before.compare(pid).unwrap();
		assert!(zeroes.bytes >= change.bytes + 64 * PAGE, "pages of zeroes are there: {zeroes:?}");
		child.kill().unwrap();
		child.wait().unwrap();
	}

	#[test]
	fn a_process_that_is_not_there_is_said_to_be_so() {
		assert_eq!(Snapshot::of(i32::MAX - 1).unwrap_err().to_string(), "there is no process 2147483646");
	}
}
