//! What is advised about programs of different sizes, and that these go on. How near the forecasts are: `flashfork
//! bench advise`.
//!
//! The programs are this executable started again; each prepares its memory, says so, and forks on request.

use std::{
	ffi::OsString,
	io::{BufRead, BufReader, Write},
	process::{Child, ChildStdin, ChildStdout, Command, ExitCode, Stdio},
	time::Duration,
};

use flashfork::{
	CostModel, HostId,
	cost::{ForkPrices, SealPrice, WritePrices},
};
use flashfork_advise::{self as advise, Engine};
use libtest_mimic::{Arguments, Failed, Trial};

const MB: usize = 1 << 20;

/// A program with so many megabytes.
struct Program {
	child: Child,
	input: ChildStdin,
	output: BufReader<ChildStdout>,
}

impl Program {
	fn start(megabytes: usize) -> Result<Self, Failed> {
		let mut child = Command::new(std::env::current_exe()?)
			.args(["be-a-program", &megabytes.to_string()])
			.stdin(Stdio::piped())
			.stdout(Stdio::piped())
			.spawn()?;
		let (input, output) = (child.stdin.take().ok_or("no pipe")?, child.stdout.take().ok_or("no pipe")?);
		let mut program = Self { child, input, output: BufReader::new(output) };
		assert_eq!(program.line()?, "ready");
		Ok(program)
	}

	fn line(&mut self) -> Result<String, Failed> {
		let mut line = String::new();
		self.output.read_line(&mut line)?;
		Ok(line.trim().to_owned())
	}

	fn fork(&mut self) -> Result<String, Failed> {
		writeln!(self.input, "fork")?;
		self.line()
	}
}

impl Drop for Program {
	fn drop(&mut self) {
		let _ = self.child.kill();
		let _ = self.child.wait();
	}
}

/// Maps so many megabytes on 4 KB pages, for good, and writes every page.
fn map(megabytes: usize) {
	let bytes = megabytes * MB;
	// SAFETY: a new mapping, written within its bounds and never unmapped.
	unsafe {
		let (read_write, private) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
		let begin = libc::mmap(std::ptr::null_mut(), bytes, read_write, private, -1, 0);
		assert_ne!(begin, libc::MAP_FAILED);
		libc::madvise(begin, bytes, libc::MADV_NOHUGEPAGE);
		(0..bytes).step_by(4096).for_each(|at| begin.cast::<u8>().add(at).write_volatile(7));
	}
}

/// The `main` of a program that holds so many megabytes on 4 KB pages, and forks for each line it reads.
fn be_a_program(megabytes: usize) -> ExitCode {
	if megabytes > 0 {
		map(megabytes);
	}
	println!("ready");
	let mut line = String::new();
	while std::io::stdin().read_line(&mut line).is_ok_and(|n| n > 0) {
		// SAFETY: this process has one thread; the child ends at once.
		let pid = unsafe { libc::fork() };
		if pid == 0 {
			// SAFETY: ends the process.
			unsafe { libc::_exit(0) };
		}
		let mut status = 1;
		// SAFETY: the status is a local.
		assert_eq!(unsafe { libc::waitpid(pid, &mut status, 0) }, pid);
		assert_eq!(status, 0);
		println!("forked");
		line.clear();
	}
	ExitCode::SUCCESS
}

/// Prices as they are on some machine: what is advised doesn't depend on what else runs on this one.
fn model() -> CostModel {
	let fork = ForkPrices {
		process: 60_000.0,
		page: 25.0,
		huge_page: 500.0,
		vma: 300.0,
		dirty_region: 2_000.0,
		dirty_page: 25.0,
		shared_table: 0.0,
		residual: 0.1,
	};
	let write = |region, page| WritePrices { region, page, residual: 0.1 };
	let seal = |gb| SealPrice { look: 1e6, gb, residual: 0.1 };
	CostModel {
		host: HostId::read(),
		fork,
		cycle: ForkPrices { process: 150_000.0, ..fork },
		write_fork: write(100.0, 2_000.0),
		write_fork_thp: Some(write(4_500.0, 2_200.0)),
		write_seal: write(700.0, 2_100.0),
		write_odf: None,
		seal: seal(0.5e9),
		seal_small: seal(0.3e9),
		calibration_seconds: 0.5,
	}
}

fn the_advice_fits_the_program() -> Result<(), Failed> {
	let advise = |megabytes: usize| -> Result<_, Failed> {
		let program = Program::start(megabytes)?;
		Ok(advise::process(program.child.id() as i32, &model(), None, &|| false)?)
	};
	let small = advise(0)?;
	assert_eq!(small.recommendation.engine, Engine::Now, "{}", small.text());
	let large = advise(256)?;
	assert_ne!(large.recommendation.engine, Engine::Now, "{}", large.text());
	assert!(large.survey.sealable_bytes >= 250 << 20 && large.survey.refused.is_none(), "{:?}", large.survey);
	for part in ["as it is", "sealed", "Written between two forks", "assumed", "1 thread"] {
		assert!(large.text().contains(part), "'{part}' is missing in\n{}", large.text());
	}
	Ok(())
}

fn writes_are_counted_when_asked_for_and_the_target_goes_on() -> Result<(), Failed> {
	let mut program = Program::start(64)?;
	let advice = advise::process(program.child.id() as i32, &model(), Some(Duration::from_millis(100)), &|| false)?;
	assert!(
		advice.forecast.dirtied.measured && advice.forecast.dirtied.pages < 100,
		"it sleeps: {:?}",
		advice.forecast
	);
	assert_eq!(program.fork()?, "forked", "it still answers");
	Ok(())
}

fn a_command_is_started_and_ended() -> Result<(), Failed> {
	let command = ["sleep", "1000"].map(OsString::from);
	let advice = advise::command(&command, &model(), Duration::from_millis(200), None, &|| false)?;
	assert_eq!(advice.survey.name, "sleep");
	assert!(!std::path::Path::new(&format!("/proc/{}", advice.survey.pid)).exists(), "it was left running");
	let gone = advise::process(advice.survey.pid, &model(), None, &|| false).unwrap_err();
	assert!(gone.to_string().starts_with("there is no process"), "{gone}");
	Ok(())
}

fn main() -> ExitCode {
	let args: Vec<OsString> = std::env::args_os().skip(1).collect();
	if args.first().is_some_and(|argument| argument == "be-a-program") {
		let megabytes = args.get(1).and_then(|text| text.to_str()?.parse().ok());
		return megabytes.map_or(ExitCode::FAILURE, be_a_program);
	}
	type Test = fn() -> Result<(), Failed>;
	let tests: [(&str, Test); 3] = [
		("the_advice_fits_the_program", the_advice_fits_the_program),
		("writes_are_counted_when_asked_for", writes_are_counted_when_asked_for_and_the_target_goes_on),
		("a_command_is_started_and_ended", a_command_is_started_and_ended),
	];
	let trials = tests.map(|(name, test)| Trial::test(name, test)).into_iter().collect();
	libtest_mimic::run(&Arguments::from_args(), trials).exit_code()
}
