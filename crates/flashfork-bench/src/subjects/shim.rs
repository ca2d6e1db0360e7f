//! The shim in a program, and what it says it did there.

use std::mem::offset_of;

use flashfork_core::{
	environment::{ENGINE, THREADS},
	never_seal::TABLE,
	stats::{Stats, Timed},
};

use super::Method;
use crate::prelude::*;

/// Has a threaded program be forked by the engine of `method`, if that is ours.
pub fn preload(command: &mut Command, shim: &Path, method: Method) {
	if matches!(method, Method::Seal | Method::Odf) {
		command.env("LD_PRELOAD", shim).env(ENGINE.name(), method.as_ref()).env(THREADS.name(), "stop");
	}
}

/// A statistics file that the shim counts in (`FLASHFORK_STATS`).
pub struct ShimStats {
	path: PathBuf,
}

/// What the shim did, as far as experiments ask.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct ShimReport {
	/// Seconds all seals took.
	pub seal_seconds: f64,
	pub sealed_bytes: u64,
	/// Of these, on 2 MB pages.
	pub huge_bytes: u64,
	/// Forks of the fork server, sealed or on demand.
	pub forks: u64,
	/// What such a fork call took on average, in microseconds.
	pub fork_us: f64,
}

impl ShimStats {
	/// Makes the file `path`, all counters zero.
	pub fn create(path: PathBuf) -> Result<Self> {
		let mut bytes = vec![0; size_of::<Stats>()];
		bytes[..8].copy_from_slice(&Stats::MAGIC.to_ne_bytes());
		std::fs::write(&path, bytes).or_cant(format_args!("write {}", path.display()))?;
		Ok(Self { path })
	}

	pub fn path(&self) -> &Path {
		&self.path
	}

	/// Reads the counters. Fails when nothing was sealed, or with the engine odf forked on demand: what was measured
	/// then was plain fork.
	pub fn read(&self, method: Method) -> Result<ShimReport> {
		let bytes = std::fs::read(&self.path).or_cant(format_args!("read {}", self.path.display()))?;
		report(&bytes, method).map_err(|why| unable!("the shim's {method} is not in the fuzzed program: {why}"))
	}
}

/// The counters are plain 64-bit words at the places their struct gives them.
fn report(bytes: &[u8], method: Method) -> Result<ShimReport, String> {
	let word = |offset: usize| {
		let word = bytes.get(offset..offset + 8).and_then(|word| word.try_into().ok());
		word.map(u64::from_ne_bytes).ok_or("its statistics file was cut short".to_owned())
	};
	let (count, ns) = (offset_of!(Timed, count), offset_of!(Timed, ns));
	let forks = if method == Method::Odf { offset_of!(Stats, on_demand) } else { offset_of!(Stats, sealed) };
	let report = ShimReport {
		seal_seconds: word(offset_of!(Stats, seals) + ns)? as f64 / 1e9,
		sealed_bytes: word(offset_of!(Stats, sealed_bytes))?,
		huge_bytes: word(offset_of!(Stats, huge_bytes))?,
		forks: word(forks + count)?,
		fork_us: word(forks + ns)? as f64 / 1e3 / word(forks + count)?.max(1) as f64,
	};
	if report.sealed_bytes > 0 || method == Method::Odf && report.forks > 0 {
		return Ok(report);
	}
	if word(offset_of!(Stats, programs))? == 0 {
		return Err("it was not loaded; is it the shim of this version?".to_owned());
	}
	let mut reasons = Vec::new();
	for (index, row) in TABLE.iter().enumerate() {
		if word(offset_of!(Stats, refused) + 8 * index)? > 0 {
			reasons.push(row.name);
		}
	}
	let errno = word(offset_of!(Stats, last_error))? & 0xffff;
	let error = (errno != 0).then(|| std::io::Error::from_raw_os_error(errno as i32).to_string());
	Err(reasons.into_iter().map(str::to_owned).chain(error).collect::<Vec<_>>().join(", "))
}

#[cfg(test)]
mod tests {
	use super::*;

	fn bytes(words: &[(usize, u64)]) -> Vec<u8> {
		let mut bytes = vec![0; size_of::<Stats>()];
		for &(offset, word) in words {
			bytes[offset..offset + 8].copy_from_slice(&word.to_ne_bytes());
		}
		bytes
	}

	#[test]
	fn counters_are_read_from_their_places() {
		let sealed = offset_of!(Stats, sealed);
		let bytes = bytes(&[
			(offset_of!(Stats, sealed_bytes), 1 << 30),
			(offset_of!(Stats, huge_bytes), 1 << 29),
			(offset_of!(Stats, seals) + 8, 2_500_000_000),
			(sealed, 10),
			(sealed + 8, 250_000),
		]);
		let report = super::report(&bytes, Method::Seal).unwrap();
		assert_eq!((report.sealed_bytes, report.huge_bytes, report.forks), (1 << 30, 1 << 29, 10));
		assert_eq!((report.seal_seconds, report.fork_us), (2.5, 25.0));
	}

	#[test]
	fn forks_on_demand_are_their_own() {
		let bytes = bytes(&[(offset_of!(Stats, on_demand), 4), (offset_of!(Stats, on_demand) + 8, 40_000)]);
		let report = super::report(&bytes, Method::Odf).unwrap();
		assert_eq!((report.forks, report.fork_us), (4, 10.0));
		assert!(super::report(&bytes, Method::Seal).is_err());
	}

	#[test]
	fn a_shim_that_sealed_nothing_says_why() {
		assert!(report(&bytes(&[]), Method::Odf).unwrap_err().contains("not loaded"));
		let first = offset_of!(Stats, refused);
		let why = report(&bytes(&[(offset_of!(Stats, programs), 1), (first, 1)]), Method::Seal).unwrap_err();
		assert_eq!(why, TABLE[0].name);
		let error = (3 << 16) | libc::ENOMEM as u64;
		let error = bytes(&[(offset_of!(Stats, programs), 1), (offset_of!(Stats, last_error), error)]);
		let why = report(&error, Method::Seal).unwrap_err();
		assert!(why.contains("memory"), "{why}");
		assert!(report(&[0; 8], Method::Seal).unwrap_err().contains("cut short"));
	}
}
