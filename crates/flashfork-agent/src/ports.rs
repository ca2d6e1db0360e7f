//! I/O ports from user space: ioperm(2), then the instructions themselves.

use std::{arch::asm, io};

use flashfork_proto::signal::{COMMAND_PORT, PORTS, PortIo};

/// The signal ports, as the kernel has opened them to this thread. Children of the thread inherit them,
/// so they are closed while any is started.
pub struct Ports(());

impl Ports {
	/// Opens the signal ports to the calling thread. Needs CAP_SYS_RAWIO.
	pub fn open() -> io::Result<Self> {
		// SAFETY: opens a range of ports and changes nothing else.
		let result = unsafe { libc::ioperm(COMMAND_PORT.into(), PORTS.into(), 1) };
		if result == 0 { Ok(Self(())) } else { Err(io::Error::last_os_error()) }
	}
}

impl Drop for Ports {
	fn drop(&mut self) {
		// SAFETY: closes the range that was opened. It needs no right and can't fail.
		unsafe { libc::ioperm(COMMAND_PORT.into(), PORTS.into(), 0) };
	}
}

impl PortIo for Ports {
	fn write_byte(&mut self, port: u16, value: u8) {
		// SAFETY: the ports are open to this thread, and `out` touches no memory.
		unsafe { asm!("out dx, al", in("dx") port, in("al") value, options(nomem, nostack, preserves_flags)) }
	}

	fn write_word(&mut self, port: u16, value: u32) {
		// SAFETY: as above.
		unsafe { asm!("out dx, eax", in("dx") port, in("eax") value, options(nomem, nostack, preserves_flags)) }
	}

	fn read_byte(&mut self, port: u16) -> u8 {
		let value;
		// SAFETY: the ports are open to this thread, and `in` touches no memory.
		unsafe { asm!("in al, dx", in("dx") port, out("al") value, options(nomem, nostack, preserves_flags)) }
		value
	}

	fn read_word(&mut self, port: u16) -> u32 {
		let value;
		// SAFETY: as above.
		unsafe { asm!("in eax, dx", in("dx") port, out("eax") value, options(nomem, nostack, preserves_flags)) }
		value
	}

	fn write_bytes(&mut self, port: u16, bytes: &[u8]) {
		// SAFETY: the ports are open to this thread; the instruction reads `bytes` from its start to its end.
		unsafe {
			asm!("rep outsb", in("dx") port, inout("rsi") bytes.as_ptr() => _, inout("rcx") bytes.len() => _,
                options(readonly, nostack, preserves_flags));
		}
	}

	fn read_bytes(&mut self, port: u16, bytes: &mut [u8]) {
		// SAFETY: the ports are open to this thread; the instruction writes `bytes` from its start to its end.
		unsafe {
			asm!("rep insb", in("dx") port, inout("rdi") bytes.as_mut_ptr() => _, inout("rcx") bytes.len() => _,
                options(nostack, preserves_flags));
		}
	}
}
