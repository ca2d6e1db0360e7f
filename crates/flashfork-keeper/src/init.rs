//! The template's init: the first process of its namespace. It starts the program, makes namespaces for clones, and
//! waits for everything that ends, clones among it: they are its children.

use crate::{
	namespaces,
	notes::{Note, What},
	pool::{self, Space},
	process,
	told::Told,
};
use flashfork_core::environment::WARM;
use rustix::{
	event::{PollFd, PollFlags, poll},
	process::{Pid, PidfdFlags, pidfd_open},
};
use std::{
	os::{
		fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd},
		unix::process::CommandExt,
	},
	process::{Command, Stdio},
};

/// The variable by which the dynamic linker loads the shim.
const PRELOAD: &str = "LD_PRELOAD";

/// What the program gets beside what is told.
pub struct Passed {
	/// Where the program rings.
	pub bell: OwnedFd,
	/// Whether it has no capabilities.
	pub drops: bool,
	/// Where its output and its errors go, if not where the keeper's does.
	pub output: Option<[OwnedFd; 2]>,
}

/// Starts it, in the namespaces of a template. Gives its process and its socket.
pub fn start(told: &Told, passed: Passed) -> std::io::Result<(i32, OwnedFd)> {
	let outside = std::fs::File::open("/proc")?;
	let (ours, theirs) = crate::message::pair()?;
	match process::fork(libc::CLONE_NEWPID | libc::CLONE_NEWNS)? {
		Some(pid) => Ok((pid, ours)),
		None => {
			drop(ours);
			let failed = |what, e: &std::io::Error| {
				let errno = e.raw_os_error().unwrap_or(libc::EIO);
				// Who is gone needs no reason.
				let _ = Note::Failed { what, errno }.send(theirs.as_fd(), &[]);
				std::process::exit(1)
			};
			if let Err(e) = process::end_with_parent().and_then(|()| process::mount_proc()) {
				failed(What::Proc, &e);
			}
			// Whether all that clones need can be had is known before anything is started.
			let made = pool::make(told, 2).and_then(|Space { init, leash, .. }| {
				drop(leash);
				process::wait_for(init)
			});
			if let Err(e) = made {
				failed(What::Namespace, &e);
			}
			let (pid, process) = match begin(told, passed, outside) {
				Ok(program) => program,
				Err(e) => failed(What::Program, &e),
			};
			if (Note::Runs { pid }).send(theirs.as_fd(), &[process.as_fd()]).is_err() {
				std::process::exit(1);
			}
			drop(process);
			run(told, theirs.as_fd())
		}
	}
}

/// Starts the program. `outside`: /proc of the namespace in which the keeper is.
fn begin(told: &Told, passed: Passed, outside: std::fs::File) -> std::io::Result<(i32, OwnedFd)> {
	let Passed { bell, drops, output } = passed;
	let (mut begun, failed) = std::io::pipe()?;
	let Some(pid) = fork_alike(&outside)? else {
		drop(begun);
		if drops {
			namespaces::bound_capabilities();
		}
		let e = execute(told, &bell, output);
		let errno = e.raw_os_error().unwrap_or(libc::ENOENT);
		// Its other end says that it was nothing.
		let _ = std::io::Write::write_all(&mut { failed }, &errno.to_ne_bytes());
		std::process::exit(127);
	};
	drop(failed);
	let mut errno = [0; 4];
	if std::io::Read::read_exact(&mut begun, &mut errno).is_ok() {
		return Err(std::io::Error::from_raw_os_error(i32::from_ne_bytes(errno)));
	}
	let process = Pid::from_raw(pid).ok_or(std::io::ErrorKind::NotFound)?;
	Ok((pid, pidfd_open(process, PidfdFlags::empty())?))
}

/// How often it is tried: between two numbers another process may be started elsewhere.
const ATTEMPTS: usize = 1000;

/// Forks a process with the same number here and outside. Whoever is told the program's number by the program, in a pid
/// file or by the name of a file in a common directory, finds it by that, and finds no other process.
fn fork_alike(outside: &std::fs::File) -> std::io::Result<Option<i32>> {
	for _ in 0..ATTEMPTS {
		let (mut number, told) = std::io::pipe()?;
		let Some(pid) = process::fork(0)? else {
			let own = rustix::fs::readlinkat(outside, "self", Vec::new()).unwrap_or_default();
			let own = own.to_str().ok().and_then(|text| text.parse::<u32>().ok()).unwrap_or_default();
			let told = std::io::Write::write_all(&mut { told }, &own.to_ne_bytes());
			if told.is_ok() && own == std::process::id() {
				return Ok(None);
			}
			std::process::exit(0);
		};
		drop(told);
		let mut there = [0; 4];
		std::io::Read::read_exact(&mut number, &mut there)?;
		let there = i32::from_ne_bytes(there);
		if there == pid {
			return Ok(Some(pid));
		}
		process::wait_for(pid)?;
		// Of the next, the number there is the next one, unless somebody else takes it.
		std::fs::write("/proc/sys/kernel/ns_last_pid", there.to_string())?;
	}
	Err(std::io::ErrorKind::WouldBlock.into())
}

/// Becomes the program.
fn execute(told: &Told, bell: &OwnedFd, output: Option<[OwnedFd; 2]>) -> std::io::Error {
	let bell = bell.as_raw_fd();
	// SAFETY: takes numbers; the program closes it.
	if let Err(e) = process::check(unsafe { libc::fcntl(bell, libc::F_SETFD, 0) }) {
		return e;
	}
	let at = if matches!(told.moment, crate::moment::Moment::Itself) { told.at } else { told.ready_at() as u8 };
	let mut command = Command::new(&told.command[0]);
	// Into the environment itself: a Command with variables of its own sorts it, and leaves out what is none.
	// SAFETY: this process has one thread.
	unsafe {
		std::env::set_var(PRELOAD, &told.preload);
		std::env::set_var(WARM.name(), format!("threads,{bell},{at}"));
	}
	command.args(&told.command[1..]).stdin(Stdio::null());
	if let Some([output, errors]) = output {
		command.stdout(output).stderr(errors);
	}
	command.exec()
}

/// Until the keeper is gone.
fn run(told: &Told, line: BorrowedFd<'_>) -> ! {
	process::set_name(c"flashfork-init");
	let line = process::keep_only(line);
	let signals = process::signals(&[libc::SIGCHLD]);
	let (Ok(line), Ok(signals), Ok(())) = (line, signals, process::let_go_of_streams()) else { std::process::exit(1) };
	let _ = std::env::set_current_dir("/");
	loop {
		process::take_signals(signals.as_fd());
		while let Some((pid, status)) = process::next_child() {
			// The keeper reads while it lives; a moment later this process is gone, too.
			while let Err(rustix::io::Errno::AGAIN) = (Note::Waited { pid, status }).send(line.as_fd(), &[]) {
				let mut ready = [PollFd::new(&line, PollFlags::OUT)];
				let _ = poll(&mut ready, None);
			}
		}
		let mut ready = [PollFd::new(&line, PollFlags::IN), PollFd::new(&signals, PollFlags::IN)];
		if poll(&mut ready, None).is_err() {
			continue;
		}
		match Note::receive(line.as_fd()) {
			Ok(Some((Note::Namespace { pid }, _))) => answer(told, line.as_fd(), pid),
			Ok(Some((Note::Users, descriptors))) => enter(line.as_fd(), &descriptors),
			Ok(_) => {}
			Err(_) => std::process::exit(0),
		}
	}
}

/// Goes where the clones will be.
fn enter(line: BorrowedFd<'_>, descriptors: &[OwnedFd]) {
	let Some(users) = descriptors.first() else { return };
	// Who is gone needs no answer.
	let _ = match namespaces::go_to_users(users) {
		Ok(()) => Note::Users.send(line, &[]),
		Err(e) => {
			let errno = e.raw_os_error().unwrap_or(libc::EIO);
			Note::Failed { what: What::Namespace, errno }.send(line, &[])
		}
	};
}

fn answer(told: &Told, line: BorrowedFd<'_>, pid: i32) {
	// Who is gone needs none.
	let _ = match pool::make(told, pid) {
		Ok(Space { init, processes, mounts, leash }) => {
			Note::Made { init, pid }.send(line, &[processes.as_fd(), mounts.as_fd(), leash.as_fd()])
		}
		Err(e) => {
			let errno = e.raw_os_error().unwrap_or(libc::EIO);
			Note::Failed { what: What::Namespace, errno }.send(line, &[])
		}
	};
}
