//! What a clone has of its caller. Its threads are not there yet; nothing here may lock or allocate.

use super::{is_ready_at, maker::OF_CALLER, no_signals, runtime};
use crate::warm::{
	follow, inherited,
	take_over::{self, environ, is_default, limits, schedule},
	template::Given,
};
use core::ffi::c_int;
use flashfork_core::{
	Errno,
	forkall::{Settings, call, go_to},
};
use flashfork_warm::{PATH, ReadyAt, Start, Step};
use syscalls::Sysno;

/// What was given.
pub struct Caller {
	pub start: &'static Start,
	pub given: Given,
}

type Failed = (Step, Errno);

impl Caller {
	/// Goes to the clone's namespaces, directory and standard streams, and maps what is given. Where the program knows
	/// nothing of clones directory and umask are `kept`, as it left them. Where it was `called` as a function, by
	/// somebody elsewhere, they are, too, and it has more namespaces.
	pub fn take(
		mounts: c_int,
		time: c_int,
		rest: &[c_int; OF_CALLER],
		path: &[u8; PATH],
		kept: Option<&Settings>,
		called: Option<&Settings>,
	) -> Result<Caller, Failed> {
		let [memory, directory, streams @ ..] = *rest;
		let of = |step| move |e| (step, e);
		// SAFETY: this is the clone, with one thread, and nothing of the program runs before this is over.
		unsafe {
			go_to(time, libc::CLONE_NEWTIME as u32).map_err(of(Step::Namespaces))?;
			if called.is_some() {
				runtime::enter(mounts).map_err(of(Step::Namespaces))?;
			}
			go_to(mounts, libc::CLONE_NEWNS as u32).map_err(of(Step::Namespaces))?;
			call(Sysno::setpgid, [0, 0]).map_err(of(Step::Namespaces))?;
			for (to, stream) in streams.into_iter().enumerate() {
				call(Sysno::dup3, [stream as usize, to, 0]).map_err(of(Step::Streams))?;
			}
			let (directory, path) = kept.or(called).map_or((directory, path), |own| (own.directory, &own.path));
			go_to_directory(directory, path).map_err(of(Step::Directory))?;
			let (start, arguments, variables) = take_over::map(memory).map_err(|step| (step, last()))?;
			let variables = follow::environment(variables);
			let umask = kept.or(called).map_or(start.umask, |own| own.umask);
			call(Sysno::umask, [umask as usize]).map_err(of(Step::Directory))?;
			let mut mask = no_signals();
			for signal in (1..=64).filter(|signal| start.blocked >> (signal - 1) & 1 == 1) {
				libc::sigaddset(&raw mut mask, signal);
			}
			let processes = start.limits[libc::RLIMIT_NPROC as usize];
			let given = Given { arguments, variables, mask, ignored: start.ignored, processes };
			Ok(Caller { start, given })
		}
	}

	/// Before there are threads, which inherit it.
	pub fn begin(&self, kept: Option<&Settings>) -> Result<(), Failed> {
		// SAFETY: as above.
		unsafe {
			for stream in (0..3).filter(|stream| self.start.closed >> stream & 1 == 1) {
				let _ = call(Sysno::close, [stream]);
			}
			match kept {
				// What may not be had stays as the template's maker has it.
				Some(own) => {
					let _ = call(Sysno::setpriority, [libc::PRIO_PROCESS as usize, 0, own.nice as isize as usize]);
					let _ = call(Sysno::sched_setaffinity, [0, size_of_val(&own.cpus), own.cpus.as_ptr() as usize]);
					inherited::take_privileges(self.start)?;
				}
				None => {
					schedule(self.start);
					inherited::take(self.start)?;
				}
			}
			for signal in (1..=64).filter(|signal| self.start.ignored >> (signal - 1) & 1 == 1) {
				if is_default(signal) {
					libc::signal(signal, libc::SIG_IGN);
				}
			}
			// A program that said itself that it is ready goes on with the caller's; of others threads may be reading.
			if [Some(ReadyAt::Call), Some(ReadyAt::Runtime), None].into_iter().any(is_ready_at) {
				environ = self.given.variables.as_ptr().cast_mut().cast();
			}
		}
		Ok(())
	}

	/// When all threads, descriptors and pending signals are there: a limit is no reason against what the template has.
	pub fn limit(start: &Start, kept: Option<&Settings>) {
		// SAFETY: as above.
		unsafe { limits(kept.map_or(&start.limits, |own| &own.limits)) };
	}
}

/// By its name, under the clone's own mounts; where that leads elsewhere, by the descriptor.
unsafe fn go_to_directory(directory: c_int, path: &[u8; PATH]) -> Result<(), Errno> {
	let flags = (libc::O_PATH | libc::O_DIRECTORY | libc::O_CLOEXEC) as usize;
	// SAFETY: the path ends with a NUL; the structures are locals.
	unsafe {
		let at = libc::AT_FDCWD as isize as usize;
		let opened = call(Sysno::openat, [at, path.as_ptr() as usize, flags]);
		let same = opened.is_ok_and(|fd| identity(fd as c_int) == identity(directory));
		let there = match opened {
			Ok(fd) if same => fd,
			_ => directory as usize,
		};
		call(Sysno::fchdir, [there])?;
		if let Ok(fd) = opened {
			let _ = call(Sysno::close, [fd]);
		}
		Ok(())
	}
}

/// Device and inode.
unsafe fn identity(fd: c_int) -> Option<(u64, u64)> {
	let mut stat = [0u64; 18];
	// SAFETY: struct stat is 18 words on this architecture.
	unsafe { call(Sysno::fstat, [fd as usize, stat.as_mut_ptr() as usize]) }.ok()?;
	Some((stat[0], stat[1]))
}

fn last() -> Errno {
	// SAFETY: the main thread's word, which is put back later.
	Errno::new(unsafe { *libc::__errno_location() })
}
