//! When all is known of it the program itself is needed no more: its memory is the maker's, too. It ends, and takes
//! nothing along.

use super::{
	frozen::{Frozen, Kind},
	inject::inject,
	open::duplicate_to,
	raw::{call, numeric},
	unfit::{Fit, Unfit},
};
use crate::sys::{self, Result};
use linux_raw_sys::general as k;
use syscalls::Sysno;

const WALL: u32 = 0x4000_0000;

impl Frozen {
	/// Ends the program, whose memory stays as it is, and lets go of the streams that it was warmed with: whoever reads
	/// them waits for their end.
	pub(super) fn leave(&self) -> Fit {
		for thread in &self.threads[..self.count] {
			// Or the kernel would write down there that they have ended.
			let forget = |number, arguments| inject(thread.tid, &thread.registers, number, arguments);
			forget(Sysno::set_tid_address, [0; 4])?;
			forget(Sysno::set_robust_list, [0, thread.robust[1], 0, 0])?;
		}
		end(self.pid)?;
		// The main thread last: until then it is waited for.
		for thread in self.threads[..self.count].iter().filter(|thread| thread.tid != self.pid) {
			wait_for_end(thread.tid);
		}
		wait_and_leave(self.pid)?;
		self.let_go_of_streams().map_err(Unfit::from)
	}

	fn let_go_of_streams(&self) -> Result<()> {
		let null = sys::open(c"/dev/null", k::O_RDWR)?;
		let all = &self.files.all[..self.files.count];
		let copies = all.iter().filter(|e| e.kind == Kind::Same && all[e.other].kind == Kind::Stream);
		for number in (0..3).chain(copies.map(|entry| entry.number)) {
			duplicate_to(null, number, k::O_CLOEXEC as usize)?;
		}
		sys::close(null);
		Ok(())
	}
}

fn end(pid: i32) -> Result<()> {
	const SIGKILL: usize = 9;
	numeric(Sysno::kill, [pid as usize, SIGKILL]).map(drop)
}

/// Until a thread is gone that is traced, and was killed.
fn wait_for_end(tid: i32) {
	while let Ok((_, status)) = sys::wait(tid, WALL) {
		if status & 0xff != 0x7f {
			break;
		}
	}
}

/// The same of the main thread, of which its number is left while the maker is there: whoever has noted it, in a pid
/// file for example, finds a process that has ended, and never another program.
fn wait_and_leave(pid: i32) -> Result<()> {
	const P_PID: usize = 1;
	const WEXITED: u32 = 4;
	const WNOWAIT: u32 = 0x0100_0000;
	let options = (WEXITED | WNOWAIT | WALL) as usize;
	// SAFETY: nothing is written.
	unsafe { call(Sysno::waitid, [P_PID, pid as usize, 0, options]) }.map(drop)
}
