//! The `flashfork` command: parses, calls, prints. What is typed is its launcher (crates/flashfork-launcher), which
//! serves plain clones itself.
//!
//! Exit codes: 0 done, 1 failed (one line on standard error: what, why, what to do), 2 wrong usage. `run` and `lab run`
//! pass on the exit code of the command they ran.

mod advise;
mod args;
mod doctor;
mod generate;
mod lab;
mod others;
mod run;
mod scan;
mod vm;
mod warm;

use args::{Args, Command};
use clap::{CommandFactory, Parser};
use flashfork_terminal::{CliError, help, output};
use nix::sys::signal::{SigSet, SigmaskHow};
use rustix::process::{Resource, getrlimit};
use std::{process::ExitCode, thread::JoinHandle};

/// Bytes of stack that the work of this program may take.
const STACK: usize = 2 << 20;

/// Under a smaller limit than that (`ulimit -s`) the work has a thread for its stack: a program that it starts has its
/// caller's limit. Signals are that thread's alone.
fn main() -> ExitCode {
	output::end_with_the_pipe();
	be_called_flashfork();
	if getrlimit(Resource::Stack).current.is_none_or(|limit| limit >= STACK as u64) {
		return work();
	}
	let thread = SigSet::all().thread_swap_mask(SigmaskHow::SIG_SETMASK).map_err(Into::into).and_then(|own| {
		let work = move || own.thread_set_mask().map_or(ExitCode::FAILURE, |()| work());
		std::thread::Builder::new().stack_size(STACK).spawn(work)
	});
	match thread.map(JoinHandle::join) {
		// As of a program in Rust that has panicked.
		Ok(done) => done.unwrap_or(ExitCode::from(101)),
		Err(e) => output::end(Err(CliError::Unable(format!(
			"can't start a thread, which the small limit on stacks asks for: {e}; raise it (ulimit -s 8192)"
		)))),
	}
}

fn work() -> ExitCode {
	others::complete();
	help::complete(Args::command);
	let line: Vec<_> = std::env::args_os().skip(1).collect();
	if let Some(done) = warm::go_on(&line).or_else(|| warm::plain_clone(&line)) {
		return output::end(done);
	}
	if let Some(done) = others::main(&line) {
		return output::end(done);
	}
	output::end(match Args::parse().command {
		Command::Doctor(args) => doctor::main(&args),
		Command::Run(args) => run::main(&args),
		Command::Warm(args) => warm::warm(&args),
		Command::Clone(args) => warm::clone(&args),
		Command::Ls(args) => warm::ls(&args),
		Command::Rm(args) => warm::rm(&args),
		Command::Scan(args) => scan::main(&args),
		Command::Advise(args) => advise::main(&args),
		Command::Lab(args) => lab::main(&args),
		Command::Vm(args) => vm::main(&args),
		Command::Completions(args) => generate::completions(&args),
		Command::Man(args) => generate::man_pages(&args),
		Command::Bench(_)
		| Command::Serve(_)
		| Command::Deploy(_)
		| Command::Invoke(_)
		| Command::Logs(_)
		| Command::Functions(_)
		| Command::Undeploy(_)
		| Command::Cluster(_) => unreachable!("these are other programs'"),
	})
}

/// To whoever lists processes, or ends them by their name.
fn be_called_flashfork() {
	// SAFETY: a string. What it could fail with leaves the name of the file.
	unsafe { libc::prctl(libc::PR_SET_NAME, c"flashfork".as_ptr()) };
}
