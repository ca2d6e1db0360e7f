//! The kernel's random number generator: random(4), ioctls RNDADDENTROPY and RNDRESEEDCRNG.

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;

use flashfork_proto::agent::{AgentError, ErrorKind};

/// Fewer bytes would not make a generator independent of its siblings.
const LEAST: usize = 32;
/// More bytes add nothing.
const MOST: usize = 4096;

/// `_IOW('R', 3, int[2])`, linux/random.h.
const RNDADDENTROPY: libc::Ioctl = 0x4008_5203;
/// `_IO('R', 7)`.
const RNDRESEEDCRNG: libc::Ioctl = 0x5207;

/// `struct rand_pool_info` with room for [`MOST`] bytes.
#[repr(C)]
struct PoolInfo {
    entropy_bits: libc::c_int,
    bytes: libc::c_int,
    buffer: [u8; MOST],
}

/// Credits `seed` as entropy and has the generator use it at once, for all that is drawn from now on.
pub fn reseed(seed: &[u8]) -> Result<(), AgentError> {
    if !(LEAST..=MOST).contains(&seed.len()) {
        let message = format!("{} bytes to reseed with: give {LEAST} to {MOST}", seed.len());
        return Err(AgentError { kind: ErrorKind::Invalid, message });
    }
    credit(seed).map_err(|error| AgentError {
        kind: ErrorKind::Denied,
        message: format!("the kernel's generator can't be reseeded: {error}"),
    })
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
}
