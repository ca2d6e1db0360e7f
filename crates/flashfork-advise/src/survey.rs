//! A process as a fork sees it.

use std::{
	collections::BTreeMap,
	ffi::CString,
	fs, io,
	os::unix::fs::{FileTypeExt, MetadataExt},
};

use flashfork_core::{
	never_seal::{Reason, Scope},
	survey,
};
use procfs::process::{MMapExtension, Process};
use serde::Serialize;

use crate::error::AdviseError;

const PAGE: u64 = 4096;
const HUGE: u64 = 2 << 20;

/// How often memory is written between forks.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Dirtied {
	/// Pages of 4 KB.
	pub pages: u64,
	/// Regions of 2 MB these lie in.
	pub regions: u64,
	/// Whether they were counted or assumed.
	pub measured: bool,
}

/// The share of pages assumed to be written between forks when nobody counted.
pub const ASSUMED: f64 = 0.001;

/// What a fork of a process has to copy, and what a seal could take off it.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Survey {
	/// The process.
	pub pid: i32,
	/// Its name as the kernel has it.
	pub name: String,
	/// Its threads.
	pub threads: u64,
	/// Its mappings.
	pub vmas: u64,
	/// Page tables, in bytes.
	pub page_table_bytes: u64,
	/// Resident memory, in bytes.
	pub resident_bytes: u64,
	/// Anonymous memory on 4 KB pages, in bytes.
	pub small_bytes: u64,
	/// Anonymous memory on huge pages, in bytes.
	pub huge_bytes: u64,
	/// File pages whose entries a fork copies too, because written pages lie in the same mapping, in bytes.
	pub beside_bytes: u64,
	/// Anonymous memory that could be on huge pages: mappings of 2 MB and more, in bytes.
	pub huge_possible_bytes: u64,
	/// Anonymous memory that could be sealed, in bytes.
	pub sealable_bytes: u64,
	/// Memory sealed already, in bytes of address space.
	pub sealed_bytes: u64,
	/// Anonymous memory that can't be sealed, by reason.
	pub left_out: Vec<LeftOut>,
	/// What the whole process is, if it would not be sealed for that.
	pub refused: Option<String>,
	/// What its user can do about that.
	pub cure: Option<&'static str>,
}

/// Anonymous memory that a seal would leave as it is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct LeftOut {
	/// The short name of the reason.
	pub reason: &'static str,
	/// What is left alone, in words.
	pub what: &'static str,
	/// Bytes.
	pub bytes: u64,
}

impl Survey {
	/// Reads the process `pid`.
	pub fn of(pid: i32) -> Result<Self, AdviseError> {
		let failed = |error: procfs::ProcError| match error {
			procfs::ProcError::NotFound(_) => AdviseError::Unable(format!("there is no process {pid}")),
			procfs::ProcError::PermissionDenied(_) => denied(pid, io::ErrorKind::PermissionDenied.into()),
			other => denied(pid, io::Error::other(other)),
		};
		let process = Process::new(pid).map_err(failed)?;
		let status = process.status().map_err(failed)?;
		let maps = process.smaps().map_err(failed)?;
		if status.vmrss.is_none() {
			return Err(AdviseError::Unable(format!(
				"process {pid} has no memory of its own: it is a kernel thread or dead"
			)));
		}
		let refused =
			refusal(&process, status.threads).map_err(failed)?.map(|reason| (reason, reason.row().what.into()));
		let (reason, refused) = refused.or_else(|| calls(pid)).unzip();
		let mut survey = Self {
			pid,
			name: status.name,
			threads: status.threads,
			vmas: maps.iter().count() as u64,
			page_table_bytes: status.vmpte.unwrap_or(0) * 1024,
			resident_bytes: status.vmrss.unwrap_or(0) * 1024,
			small_bytes: 0,
			huge_bytes: 0,
			beside_bytes: 0,
			huge_possible_bytes: 0,
			sealable_bytes: 0,
			sealed_bytes: 0,
			left_out: Vec::new(),
			refused,
			cure: reason.and_then(Reason::cure),
		};
		for map in maps.iter() {
			let of = |key: &str| value(&map.extension, key);
			let (anonymous, huge) = (of("Anonymous"), of("AnonHugePages"));
			let shared = map.perms.contains(procfs::process::MMPermissions::SHARED);
			if shared || anonymous == 0 {
				continue;
			}
			survey.huge_bytes += huge;
			survey.small_bytes += anonymous - huge.min(anonymous);
			survey.beside_bytes += of("Rss").saturating_sub(anonymous);
			if map.address.1 - map.address.0 >= HUGE {
				survey.huge_possible_bytes += anonymous / HUGE * HUGE;
			}
		}
		survey.seal(pid)?;
		Ok(survey)
	}

	/// What a seal would take and leave.
	fn seal(&mut self, pid: i32) -> Result<(), AdviseError> {
		let path = CString::new(format!("/proc/{pid}/smaps")).unwrap_or_default();
		let mut left: BTreeMap<Reason, u64> = BTreeMap::new();
		survey::memory(&path, &mut vec![0; 1 << 16], |vma| {
			let room = vma.range.len() as u64 >= HUGE && vma.anonymous >= HUGE;
			match vma.left_out {
				_ if vma.sealed => self.sealed_bytes += vma.range.len() as u64,
				_ if vma.shared || vma.anonymous == 0 => {}
				None if room => self.sealable_bytes += vma.anonymous,
				None => *left.entry(Reason::Small).or_default() += vma.anonymous,
				Some(reason) => *left.entry(reason).or_default() += vma.anonymous,
			}
		})
		.map_err(|errno| denied(pid, io::Error::from_raw_os_error(errno.into_raw())))?;
		self.left_out = left
			.into_iter()
			.map(|(reason, bytes)| LeftOut { reason: reason.row().name, what: reason.row().what, bytes })
			.collect();
		self.left_out.sort_by_key(|left| std::cmp::Reverse(left.bytes));
		Ok(())
	}

	/// What is taken for granted when nobody counted: a thousandth of the pages, each in its own region.
	pub(crate) fn assumed_dirty(&self) -> Dirtied {
		let bytes = self.small_bytes + self.huge_bytes;
		let pages = ((bytes / PAGE) as f64 * ASSUMED).ceil() as u64;
		Dirtied { pages, regions: pages.min(bytes.div_ceil(HUGE)), measured: false }
	}
}

/// Why the whole process would not be sealed: other threads, or a descriptor through which its memory is written.
fn refusal(process: &Process, threads: u64) -> procfs::ProcResult<Option<Reason>> {
	if threads > 1 {
		return Ok(Some(Reason::Threads));
	}
	for entry in fs::read_dir(format!("/proc/{}/fd", process.pid()))? {
		// A descriptor closed meanwhile stands in nobody's way.
		let Ok(entry) = entry else { continue };
		let Ok(target) = fs::read_link(entry.path()) else { continue };
		let device = fs::metadata(entry.path()).ok().filter(|file| file.file_type().is_char_device());
		let by_name = survey::descriptor(target.as_os_str().as_encoded_bytes());
		if let Some(reason) = by_name.or_else(|| survey::device(device?.rdev())) {
			debug_assert_eq!(reason.row().scope, Scope::Process);
			return Ok(Some(reason));
		}
	}
	Ok(None)
}

/// A file in the process that makes system calls of its own. What can't be read any more is left out.
fn calls(pid: i32) -> Option<(Reason, String)> {
	let files = flashfork::code::of_process(pid).ok()?;
	let (path, seen) = files.into_iter().find(|(_, seen)| seen.verdict == flashfork::code::Verdict::Refused)?;
	let reason = Reason::SystemCalls;
	Some((reason, format!("{} ({} {})", reason.row().what, path.display(), seen.what())))
}

fn value(extension: &MMapExtension, key: &str) -> u64 {
	extension.map.get(key).copied().unwrap_or(0)
}

fn denied(pid: i32, error: io::Error) -> AdviseError {
	AdviseError::system(format!("read process {pid} (run as its user or as root)"), error)
}

#[cfg(test)]
mod tests {
	use super::*;

	#[test]
	fn this_process_is_described() {
		let big = vec![1_u8; 16 << 20];
		let survey = Survey::of(std::process::id() as i32).unwrap();
		assert!(survey.vmas > 10 && survey.page_table_bytes > 0 && survey.threads >= 2, "{survey:?}");
		assert!(survey.small_bytes + survey.huge_bytes >= big.len() as u64, "{survey:?}");
		assert!(survey.sealable_bytes >= 15 << 20 && survey.huge_possible_bytes >= 14 << 20, "{survey:?}");
		// A test harness has threads.
		let refused = survey.refused.as_ref().unwrap();
		assert!(refused.starts_with("a process with other threads"), "{refused}");
		assert!(survey.cure.unwrap().contains("--threads"), "{survey:?}");
		assert!(survey.left_out.iter().any(|left| left.reason == Reason::Stack.row().name), "{survey:?}");
		assert!(survey.assumed_dirty().pages >= 4 && !survey.assumed_dirty().measured);
	}

	#[test]
	fn what_is_no_process_with_memory_is_refused() {
		assert_eq!(Survey::of(i32::MAX - 1).unwrap_err().to_string(), "there is no process 2147483646");
		// The kernel's thread daemon; not visible in every container.
		if fs::read_to_string("/proc/2/comm").is_ok_and(|name| name.trim() == "kthreadd") {
			assert!(Survey::of(2).unwrap_err().to_string().contains("kernel thread"));
		}
	}
}
