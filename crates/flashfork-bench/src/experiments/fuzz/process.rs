//! One `afl-fuzz`: started the same way for every method, and never left behind.

use std::{
	fs::File,
	io::{self, Read, Seek, SeekFrom},
	os::unix::process::CommandExt,
	process::{Child, ExitStatus},
};

use rustix::process::{Pid, Signal, kill_process, kill_process_group};

use crate::{
	prelude::*,
	subjects::{command::on_one_cpu, heap, shim::ShimStats},
};
use flashfork_core::environment;

/// How long one input may take, in milliseconds.
const TIMEOUT: &str = "1000";
/// How long AFL waits for the program to load its database, in milliseconds.
const LOADING: &str = "600000";
/// How long AFL may take to write its files and end.
const ENDING: Duration = Duration::from_secs(30);
/// How much of AFL's last words is quoted, in bytes.
const QUOTED: u64 = 1500;

/// What a campaign is made of; the same for all methods but for `method` and `shim`.
#[derive(Clone)]
pub struct Setup {
	/// The fuzzed program.
	pub target: PathBuf,
	/// The database image it loads.
	pub image: PathBuf,
	pub seeds: PathBuf,
	pub dictionary: PathBuf,
	pub shim: PathBuf,
	/// The CPU AFL and the fuzzed program share.
	pub cpu: usize,
}

/// A running `afl-fuzz`. Dropping it kills and reaps it.
pub struct Fuzzer {
	process: Child,
	log: File,
}

impl Fuzzer {
	/// Starts fuzzing in the new directory `output`. Ends by itself after `executions`, where given.
	pub fn start(
		setup: &Setup,
		method: Method,
		seed: u64,
		executions: Option<u64>,
		output: &Path,
		counter: &Path,
		stats: Option<&ShimStats>,
	) -> Result<Self> {
		let mut command = Command::new("afl-fuzz");
		command.arg("-i").arg(&setup.seeds).arg("-o").arg(output).arg("-x").arg(&setup.dictionary);
		command.args(["-t", TIMEOUT, "-m", "none", "-s", &seed.to_string()]);
		if let Some(executions) = executions {
			command.args(["-E", &executions.to_string()]);
		}
		command.arg("--").arg(&setup.target).arg(&setup.image).arg(counter);
		environment(&mut command, setup, method, stats);
		let cpu = setup.cpu;
		Self::spawn(command, output, move || on_one_cpu(cpu).and_then(|()| heap::choose(method)))
	}

	/// Starts a command that is `afl-fuzz`; `prepare` runs in the new process and makes system calls only. What it says
	/// goes into a file beside `output`.
	pub fn spawn(
		mut command: Command,
		output: &Path,
		prepare: impl Fn() -> io::Result<()> + Send + Sync + 'static,
	) -> Result<Self> {
		let doing = "start afl-fuzz";
		let log_path = output.with_extension("log");
		let log = File::options().create(true).truncate(true).read(true).write(true).open(log_path).or_cant(doing)?;
		command.stdin(Stdio::null()).stdout(log.try_clone().or_cant(doing)?).stderr(log.try_clone().or_cant(doing)?);
		command.process_group(0);
		// SAFETY: between fork and exec only system calls are made.
		unsafe { command.pre_exec(prepare) };
		let process = command.spawn().or_cant(doing)?;
		Ok(Self { process, log })
	}

	/// The process that forks the clones, once it is there: the child of `afl-fuzz`.
	pub fn fork_server(&self) -> Result<i32> {
		let parent = self.process.id() as i32;
		// Processes may end while the list is read.
		let stats = procfs::process::all_processes()
			.or_cant("look for the fork server")?
			.flatten()
			.flat_map(|process| process.stat());
		let mut children = stats.filter(|stat| stat.ppid == parent).map(|stat| stat.pid);
		children.next().ok_or_else(|| unable!("afl-fuzz runs no fork server"))
	}

	/// Fails when AFL has ended, with its last words.
	pub fn check_running(&mut self) -> Result {
		match self.ended()? {
			None => Ok(()),
			Some(status) => Err(self.died(status)),
		}
	}

	/// How AFL has ended, if it has.
	pub fn ended(&mut self) -> Result<Option<ExitStatus>> {
		self.process.try_wait().or_cant("wait for afl-fuzz")
	}

	/// Has AFL write its files and end.
	pub fn stop(&mut self) -> Result {
		// AFL tells its fork server to end; it is the one that must be told.
		kill_process(self.pid(), Signal::INT).or_cant("stop afl-fuzz")?;
		let begin = Instant::now();
		loop {
			match self.ended()? {
				Some(status) if status.success() => return Ok(()),
				Some(status) => return Err(self.died(status)),
				None if begin.elapsed() > ENDING => {
					return Err(unable!("afl-fuzz did not end within {} s", ENDING.as_secs()));
				}
				None => std::thread::sleep(Duration::from_millis(10)),
			}
		}
	}

	/// The error for an AFL that ended by itself, with its last words.
	pub fn died(&mut self, status: ExitStatus) -> BenchError {
		let words = self.last_words().unwrap_or_else(|error| format!("its output can't be read: {error}"));
		unable!("afl-fuzz ended early ({status}): {words}")
	}

	fn last_words(&mut self) -> io::Result<String> {
		let length = self.log.seek(SeekFrom::End(0))?;
		self.log.seek(SeekFrom::Start(length.saturating_sub(QUOTED)))?;
		let mut bytes = Vec::new();
		self.log.read_to_end(&mut bytes)?;
		let text = String::from_utf8_lossy(&bytes);
		let lines: Vec<&str> = text.lines().map(str::trim).filter(|line| !line.is_empty()).collect();
		Ok(lines[lines.len().saturating_sub(6)..].join(" | "))
	}

	fn pid(&self) -> Pid {
		Pid::from_child(&self.process)
	}
}

impl Drop for Fuzzer {
	fn drop(&mut self) {
		if let Ok(None) = self.process.try_wait() {
			// The fork server has its own session, but ends when AFL's end of its pipe closes.
			let _ = kill_process_group(self.pid(), Signal::KILL);
			let _ = self.process.wait();
		}
	}
}

/// Everything AFL and the program see of the environment: nothing of the user's, so that runs are alike.
pub fn quiet(command: &mut Command) {
	command.env_clear().env("PATH", "/usr/local/bin:/usr/bin:/bin").env("LC_ALL", "C");
	for name in
		["AFL_NO_UI", "AFL_NO_AFFINITY", "AFL_SKIP_CPUFREQ", "AFL_I_DONT_CARE_ABOUT_MISSING_CRASHES", "AFL_NO_COLOR"]
	{
		command.env(name, "1");
	}
	command.env("AFL_FORKSRV_INIT_TMOUT", LOADING);
}

/// The shim in the fuzzed program, with the engine of `method`.
pub fn with_shim(command: &mut Command, shim: &Path, method: Method) {
	command.env("AFL_PRELOAD", shim).env(environment::ENGINE.name(), method.as_ref());
}

fn environment(command: &mut Command, setup: &Setup, method: Method, stats: Option<&ShimStats>) {
	quiet(command);
	let (name, value) = heap::tunable(method);
	command.env(name, value);
	if let Some(stats) = stats {
		with_shim(command, &setup.shim, method);
		command.env(environment::STATS.name(), stats.path());
	}
}
