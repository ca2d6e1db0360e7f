//! The kernel's random number generator: random(4), ioctls RNDADDENTROPY and RNDRESEEDCRNG; and what it keeps of a
//! hardware generator's bytes, hw_random (Documentation/admin-guide/hw_random.rst).

use std::{
	fs::File,
	io::{self, ErrorKind as Io, Read},
	os::fd::AsRawFd,
	path::Path,
};

use flashfork_proto::agent::{AgentError, ErrorKind};

/// Fewer bytes would not make a generator independent of its siblings.
const LEAST: usize = 32;
/// More bytes add nothing.
const MOST: usize = 4096;

/// `_IOW('R', 3, int[2])`, linux/random.h.
const RNDADDENTROPY: libc::Ioctl = 0x4008_5203;
const RNDRESEEDCRNG: libc::Ioctl = 0x5207;

/// `struct rand_pool_info` with room for [`MOST`] bytes.
#[repr(C)]
struct PoolInfo {
	entropy_bits: libc::c_int,
	bytes: libc::c_int,
	buffer: [u8; MOST],
}

/// The guest's hardware generator, which is the monitor's virtio-rng.
const HARDWARE: &str = "/dev/hwrng";

/// What Linux may have fetched from it ahead of its readers: 64 bytes in the core (`rng_buffer`,
/// drivers/char/hw_random/core.c) and 64 in the driver (`data`, virtio-rng.c), each SMP_CACHE_BYTES.
const PREFETCHED: usize = 128;

/// Credits `seed` as entropy and has the generator use it at once, for all that is drawn from now on. What was fetched
/// from a hardware generator before, the same in every clone, is thrown away.
pub fn reseed(seed: &[u8]) -> Result<(), AgentError> {
	if !(LEAST..=MOST).contains(&seed.len()) {
		let message = format!("{} bytes to reseed with: give {LEAST} to {MOST}", seed.len());
		return Err(AgentError { kind: ErrorKind::Invalid, message });
	}
	credit(seed).map_err(|error| AgentError {
		kind: ErrorKind::Denied,
		message: format!("the kernel's generator can't be reseeded: {error}"),
	})?;
	drop_prefetched(Path::new(HARDWARE)).map_err(|error| AgentError {
		kind: ErrorKind::Failed,
		message: format!("{HARDWARE} can't be emptied of what was fetched before: {error}"),
	})
}

/// Reads from `device` what may be old. A guest without one has nothing that is.
fn drop_prefetched(device: &Path) -> io::Result<()> {
	let mut device = match File::open(device) {
		Err(error) if is_absent(&error) => return Ok(()),
		device => device?,
	};
	match device.read_exact(&mut [0; PREFETCHED]) {
		// The device file is there, a generator isn't.
		Err(error) if is_absent(&error) => Ok(()),
		done => done,
	}
}

fn is_absent(error: &io::Error) -> bool {
	error.kind() == Io::NotFound || matches!(error.raw_os_error(), Some(libc::ENODEV | libc::ENXIO))
}

fn credit(seed: &[u8]) -> io::Result<()> {
	let device = File::options().write(true).open("/dev/random")?;
	let length = seed.len() as libc::c_int;
	let mut info = Box::new(PoolInfo { entropy_bits: length * 8, bytes: length, buffer: [0; MOST] });
	info.buffer[..seed.len()].copy_from_slice(seed);
	// SAFETY: the descriptor is open, and `info` is a rand_pool_info whose buffer holds the bytes it names.
	let added = unsafe { libc::ioctl(device.as_raw_fd(), RNDADDENTROPY, &raw const *info) };
	info.buffer.fill(0);
	if added < 0 {
		return Err(io::Error::last_os_error());
	}
	// SAFETY: the descriptor is open; this request takes no argument.
	if unsafe { libc::ioctl(device.as_raw_fd(), RNDRESEEDCRNG) } < 0 {
		return Err(io::Error::last_os_error());
	}
	Ok(())
}

#[cfg(test)]
mod tests {
	use super::*;

	#[test]
	fn too_little_and_too_much_are_refused() {
		for seed in [vec![], vec![1; LEAST - 1], vec![1; MOST + 1]] {
			assert_eq!(reseed(&seed).unwrap_err().kind, ErrorKind::Invalid);
		}
	}

	#[test]
	fn a_hardware_generator_loses_what_it_has_fetched_and_must_have_as_much() {
		let dir = tempfile::tempdir().unwrap();
		let path = dir.path().join("hwrng");
		drop_prefetched(&path).unwrap();
		// Without its own process: another test's reaper would take its status.
		rustix::fs::mknodat(rustix::fs::CWD, &path, rustix::fs::FileType::Fifo, 0o600.into(), 0).unwrap();
		// Read and write: it doesn't wait for another.
		let mut other = File::options().read(true).write(true).open(&path).unwrap();
		std::io::Write::write_all(&mut other, &[&[1; PREFETCHED][..], &[2; 3]].concat()).unwrap();
		drop_prefetched(&path).unwrap();
		let mut left = [0; 3];
		other.read_exact(&mut left).unwrap();
		assert_eq!(left, [2; 3]);
		// One that fails in the middle leaves a clone that must not be used.
		std::fs::write(dir.path().join("short"), [1; PREFETCHED - 1]).unwrap();
		assert_eq!(drop_prefetched(&dir.path().join("short")).unwrap_err().kind(), Io::UnexpectedEof);
	}
}
