//! What the program has set for itself: its clones keep it if the program was stopped without knowing of them.

use super::{
	alike::line,
	frozen::{Frozen, PATH, Settings},
	raw::{call, into},
	unfit::{Fit, Unfit, What},
};
use crate::{
	proc::text::{ProcPath, read_file},
	sys,
};
use linux_raw_sys::general as k;
use syscalls::Sysno;

/// When the maker's descriptors are where the program has none, and the program is still there.
pub fn look(frozen: &mut Frozen) -> Fit {
	let pid = frozen.pid;
	let main = *frozen.main().ok_or(Unfit::new(What::MainEnded, pid))?;
	let Frozen { settings, small, .. } = frozen;
	let status = read_file(ProcPath::of(pid).push(b"/status").as_c(), small)?;
	let digits = line(status, b"Umask:").trim_ascii();
	settings.umask = digits.iter().fold(0, |umask, digit| umask << 3 | u32::from(digit & 7));
	let place = || ProcPath::of(pid).push(b"/cwd");
	settings.directory = sys::open(place().as_c(), k::O_PATH | k::O_DIRECTORY | k::O_CLOEXEC)?;
	let len = sys::readlink(place().as_c(), &mut settings.path)?;
	settings.path[if len < PATH { len } else { 0 }] = 0;
	for (which, limit) in settings.limits.iter_mut().enumerate() {
		// SAFETY: the kernel writes two words.
		unsafe { call(Sysno::prlimit64, [pid as usize, which, 0, into(limit)])? };
	}
	(settings.nice, settings.cpus) = (main.nice, main.cpus);
	Ok(())
}

impl Frozen {
	/// What the program has set for itself.
	pub fn settings(&self) -> &Settings {
		&self.settings
	}
}
