//! `flashfork lab run`: a command in a guest with another kernel.

use clap::{Args, Subcommand};
use flashfork_lab::{GuestFile, Kernel, Lab, Options, Output, Thp};
use flashfork_terminal::{CliError, places, size::Size};
use std::{ffi::OsString, io::Write, path::PathBuf, process::ExitCode, time::Duration};

/// Boot a Linux kernel under QEMU and run a command in it
#[derive(Args)]
#[command(after_help = "Example: flashfork lab run --kernel 6.1 -- uname -a")]
pub struct LabArgs {
	#[command(subcommand)]
	command: LabCommand,
}

#[derive(Subcommand)]
enum LabCommand {
	Run(LabRunArgs),
}

/// Run a command in a fresh guest; its output and exit code are passed on
#[derive(Args)]
#[command(override_usage = "flashfork lab run [OPTIONS] [--] <COMMAND>...")]
#[command(after_help = "Example: flashfork lab run --kernel 6.12 --swap 256M -- cat /proc/swaps")]
struct LabRunArgs {
	/// 6.1, 6.12 (Debian's newest cloud kernels, downloaded once) or the path of a bzImage
	#[arg(long, default_value = "6.12")]
	kernel: Kernel,
	/// Module directory of a kernel given by path
	#[arg(long, value_name = "DIR")]
	modules: Option<PathBuf>,
	/// Guest memory
	#[arg(long, default_value = "1G", value_name = "SIZE")]
	memory: Size,
	/// Guest CPUs
	#[arg(long, default_value_t = 1)]
	cpus: u32,
	/// A host thread for each emulated CPU, so that they race as real ones do
	#[arg(long)]
	threads: bool,
	/// More kernel parameters
	#[arg(long, default_value = "", value_name = "PARAMETERS", hide_default_value = true)]
	append: String,
	/// Swap disk
	#[arg(long, default_value = "0", value_name = "SIZE")]
	swap: Size,
	/// Transparent huge pages: always, madvise or never [default: as the kernel was built]
	#[arg(long)]
	thp: Option<Thp>,
	/// Count instructions instead of time, so that guest clocks repeat from run to run
	#[arg(long)]
	icount: bool,
	/// Give the guest /dev/kvm (emulated AMD SVM)
	#[arg(long)]
	nested_kvm: bool,
	/// Memory limit of the command (cgroup memory.max)
	#[arg(long, value_name = "SIZE")]
	memory_max: Option<Size>,
	/// User id the command runs with
	#[arg(long)]
	user: Option<u32>,
	/// Put a host file or directory into the guest, shared libraries included: PATH, or HOST:GUEST
	#[arg(long = "file", value_name = "PATH[:GUEST]")]
	files: Vec<String>,
	/// Set a variable in the command's environment
	#[arg(long = "env", value_name = "NAME=VALUE", value_parser = variable)]
	env: Vec<(OsString, OsString)>,
	/// Seconds for boot and command together
	#[arg(long, default_value_t = 120)]
	timeout: u64,
	/// Fail when the guest's kernel reports a fault of its own, whatever the command's exit code
	#[arg(long)]
	fail_on_warning: bool,
	/// The command and its arguments
	#[arg(trailing_var_arg = true, required = true, value_name = "COMMAND")]
	command: Vec<OsString>,
}

fn variable(text: &str) -> Result<(OsString, OsString), String> {
	let (name, value) = text.split_once('=').ok_or("write NAME=VALUE")?;
	Ok((name.into(), value.into()))
}

fn mib(size: Size) -> u32 {
	u32::try_from(size.0 >> 20).unwrap_or(u32::MAX)
}

/// Passes a guest's output on as it comes.
struct Terminal;

impl Output for Terminal {
	fn stdout(&mut self, bytes: &[u8]) -> std::io::Result<()> {
		let mut out = std::io::stdout().lock();
		out.write_all(bytes)?;
		out.flush()
	}

	fn stderr(&mut self, bytes: &[u8]) -> std::io::Result<()> {
		std::io::stderr().write_all(bytes)
	}

	fn progress(&mut self, line: &str) {
		eprintln!("{line}");
	}
}

pub fn main(args: &LabArgs) -> Result<ExitCode, CliError> {
	let LabCommand::Run(args) = &args.command;
	let kernel = match (&args.kernel, &args.modules) {
		(Kernel::Image { image, .. }, Some(dir)) => Kernel::Image { image: image.clone(), modules: Some(dir.clone()) },
		(_, Some(_)) => return Err(CliError::Unable("--modules goes with a kernel given by path".into())),
		(kernel, None) => kernel.clone(),
	};
	let options = Options {
		kernel,
		memory_mib: mib(args.memory),
		cpus: args.cpus,
		threads: args.threads,
		kernel_parameters: args.append.clone(),
		swap_mib: mib(args.swap),
		thp: args.thp,
		icount: args.icount,
		nested_kvm: args.nested_kvm,
		timeout: Duration::from_secs(args.timeout),
		memory_max: args.memory_max.map(|s| s.0),
		user: args.user,
		files: args.files.iter().map(|f| guest_file(f)).collect::<Result<_, _>>()?,
		env: args.env.clone(),
	};
	let lab = Lab::new(places::cache("lab")?)?;
	let outcome = lab.run(&options, &args.command, &mut Terminal)?;
	for line in &outcome.kernel_warnings {
		eprintln!("flashfork: the guest's kernel reported: {line}");
	}
	if args.fail_on_warning && !outcome.kernel_warnings.is_empty() {
		return Err(CliError::Unable("the guest's kernel reported a fault".into()));
	}
	Ok(ExitCode::from(u8::try_from(outcome.status.shell_code()).unwrap_or(1)))
}

fn guest_file(text: &str) -> Result<GuestFile, CliError> {
	match text.split_once(':') {
		Some((host, guest)) => Ok(GuestFile { host: host.into(), guest: guest.into() }),
		None => GuestFile::at_same_path(text).map_err(CliError::file("find", text)),
	}
}
