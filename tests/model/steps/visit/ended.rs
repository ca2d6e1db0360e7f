//! Processes that end early: by exec, or before their own children.

use super::{Cue, World};
use crate::{steps::family::Signal, world::check::Depth};
use flashfork_tests::Result;

impl World {
	pub(super) fn visit_exec(&mut self) -> Result {
		let visitor = self.invite("to become another program", |w, _| {
			w.check_all(Depth::Written)?;
			let program = c"/proc/self/exe".as_ptr();
			let arguments = [program, c"--help".as_ptr(), std::ptr::null()];
			// SAFETY: valid descriptors and strings; on success nothing of this process goes on. What the program
			// prints is not ours.
			unsafe {
				let nowhere = libc::open(c"/dev/null".as_ptr(), libc::O_WRONLY);
				libc::dup2(nowhere, 1);
				libc::execv(program, arguments.as_ptr());
			}
			Err(format!("exec: {}", std::io::Error::last_os_error()))
		})?;
		self.see_off(&visitor.child)
	}

	/// A child ends before its own child, which then compares everything and writes.
	pub(super) fn visit_orphan(&mut self) -> Result {
		if self.depth > 0 {
			return Ok(());
		}
		let range = self.range();
		let done = Signal::new()?;
		let told = done.again();
		let visitor = self.invite("to end before its child", move |w, _| {
			let orphan = w.invite("to be an orphan", move |w, Cue { go, .. }| {
				// Nobody gives it: it ends with the parent.
				go.wait();
				w.check_all(Depth::All)?;
				if let Some(range) = range {
					w.write_pages(range.clone());
					w.check(range, Depth::All)?;
				}
				w.check_all(Depth::Written)?;
				told.give();
				Ok(())
			})?;
			// Its signals must last while this process does.
			std::mem::forget(orphan);
			Ok(())
		})?;
		self.see_off(&visitor.child)?;
		if done.wait() { Ok(()) } else { Err("an orphan failed; what it found is told above".into()) }
	}
}
