//! A QEMU that is a fork server of AFL's, and its requests.

use std::{
	fs::File,
	io::{self, ErrorKind, PipeReader, Read, Write},
	os::{
		fd::AsRawFd,
		unix::{
			fs::FileExt,
			net::UnixStream,
			process::{CommandExt, ExitStatusExt},
		},
	},
	process::{Child, ExitStatus},
};

use flashfork_core::environment::{STATS, TRUST};
use rustix::process::{Pid, Signal, kill_process_group};

use crate::{
	prelude::*,
	subjects::{
		command::{last_line, on_one_cpu},
		heap, held,
		shim::{ShimReport, ShimStats, preload},
		vm_host::PATIENCE,
	},
};

/// AFL's descriptors for requests and answers, here the same socket; where the library tells how long forks take.
const REQUESTS: i32 = 198;
const ANSWERS: i32 = 199;
const TIMES: i32 = 197;

/// What all servers have in common.
pub struct Setup<'a> {
	/// What [`super::machine::make`] has made.
	pub dir: &'a Path,
	/// For files of their own.
	pub work: &'a Path,
	pub shim: PathBuf,
	pub cpu: usize,
}

/// A running QEMU. Dropping it ends it.
pub struct Server {
	pub method: Method,
	/// Bytes that it had in memory before its first fork.
	pub resident: u64,
	process: Child,
	afl: UnixStream,
	times: PipeReader,
	input: File,
	log: PathBuf,
	stats: Option<ShimStats>,
}

/// One execution, in microseconds.
pub struct Execution {
	pub whole: f64,
	pub fork: f64,
	pub status: ExitStatus,
}

impl Server {
	/// Starts QEMU, and waits until its guest's driver asks for the fork server. `trusted`: see
	/// [`Self::library_with_system_calls`].
	pub fn start(setup: &Setup<'_>, method: Method, trusted: Option<PathBuf>) -> Result<Self> {
		let doing = "start qemu-system-x86_64";
		let place = |what: &str| setup.work.join(format!("{}.{what}", method.as_ref()));
		let log = place("log");
		let input = tempfile::tempfile_in(setup.work).or_cant(doing)?;
		let (afl, theirs) = UnixStream::pair().or_cant(doing)?;
		let (times, their_times) = io::pipe().or_cant(doing)?;
		afl.set_read_timeout(Some(PATIENCE)).or_cant(doing)?;
		let mut command = Command::new(setup.dir.join("qemu"));
		command.env_clear().env("PATH", "/usr/local/bin:/usr/bin:/bin").env("LC_ALL", "C");
		command.stdin(input.try_clone().or_cant(doing)?).stdout(Stdio::null());
		command.stderr(File::create(&log).or_cant(doing)?).process_group(0);
		let stats = (method == Method::Seal).then(|| ShimStats::create(place("stats"))).transpose()?;
		preload(&mut command, &setup.shim, method);
		command.envs(trusted.map(|library| (TRUST.name(), library)));
		command.envs(stats.as_ref().map(|stats| (STATS.name(), stats.path())));
		let cpu = setup.cpu;
		let [end, times_end] = [theirs.as_raw_fd(), their_times.as_raw_fd()];
		let prepare = move || {
			on_one_cpu(cpu)?;
			heap::choose(method)?;
			for (end, number) in [(end, REQUESTS), (end, ANSWERS), (times_end, TIMES)] {
				// SAFETY: a system call on numbers; those that it replaces are nobody's in a process that becomes a
				// program.
				if unsafe { libc::dup2(end, number) } < 0 {
					return Err(io::Error::last_os_error());
				}
			}
			Ok(())
		};
		// SAFETY: between fork and exec only system calls are made.
		unsafe { command.pre_exec(prepare) };
		let process = command.spawn().or_cant(doing)?;
		drop((theirs, their_times));
		let mut server = Self { method, resident: 0, process, afl, times, input, log, stats };
		server.answer()?;
		server.resident = held::mapped(server.process.id())?;
		Ok(server)
	}

	/// The library that QEMU has of those that make system calls of their own. It must be named to be sealed in spite
	/// of them: fork_server.c keeps it from making any.
	pub fn library_with_system_calls(&self) -> Result<Option<PathBuf>> {
		let maps = std::fs::read_to_string(format!("/proc/{}/maps", self.process.id()));
		let maps = maps.or_cant("read QEMU's mappings")?;
		let line = maps.lines().find(|line| line.contains("/liburing.so"));
		Ok(line.and_then(|line| Some(line[line.find('/')?..].into())))
	}

	/// What the shim did; an error if this is the sealed one and nothing was sealed.
	pub fn shim(&self) -> Result<Option<ShimReport>> {
		self.stats.as_ref().map(|stats| stats.read(self.method)).transpose()
	}

	/// Has a child make the system calls of an input.
	pub fn execute(&mut self, input: &[u8]) -> Result<Execution> {
		let doing = "ask a fork server for an execution";
		self.input.set_len(0).and_then(|()| self.input.write_all_at(input, 0)).or_cant(doing)?;
		let start = Instant::now();
		self.afl.write_all(&[0; 4]).map_err(|error| self.ended(&error))?;
		self.answer()?;
		let status = self.answer()?;
		let whole = micros(start);
		let mut took = [0; 8];
		self.times.read_exact(&mut took).or_cant(doing)?;
		Ok(Execution { whole, fork: u64::from_ne_bytes(took) as f64 / 1e3, status: ExitStatus::from_raw(status) })
	}

	/// Its next word.
	fn answer(&mut self) -> Result<i32> {
		let mut word = [0; 4];
		self.afl.read_exact(&mut word).map_err(|error| self.ended(&error))?;
		Ok(i32::from_ne_bytes(word))
	}

	/// An error, with the last that QEMU or its guest's console said.
	fn ended(&self, error: &io::Error) -> BenchError {
		let why = match error.kind() {
			ErrorKind::WouldBlock => format!("it said nothing for {} s", PATIENCE.as_secs()),
			_ => error.to_string(),
		};
		let log = std::fs::read(&self.log).unwrap_or_default();
		let text = String::from_utf8_lossy(&log);
		let panic = text.lines().find(|line| line.contains("Kernel panic")).map(str::to_owned);
		let last = panic.unwrap_or_else(|| last_line(&log, "it said nothing"));
		unable!(
			"QEMU is no fork server ({}): {why}: {last} (qemu-system-x86_64 is in Debian's package qemu-system-x86)",
			self.method
		)
	}
}

impl Drop for Server {
	fn drop(&mut self) {
		// It may be waiting for a child.
		let _ = kill_process_group(Pid::from_child(&self.process), Signal::KILL);
		let _ = self.process.wait();
	}
}
