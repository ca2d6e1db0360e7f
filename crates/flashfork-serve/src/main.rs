//! Functions as a service: `flashfork serve`, and the commands that ask it for something. The command hands its whole
//! command line to this program (ARCHITECTURE.md). Exit codes are the command's.

mod bodies;
mod client;
mod closed;
mod cluster;
mod connections;
mod deploys;
mod error;
mod events;
mod front;
mod groups;
mod instance;
mod keys;
mod lease;
mod listen;
mod log;
mod machine;
mod metrics;
mod operations;
mod parked;
mod pool;
mod process;
mod programs;
mod runtime;
mod serve;
mod store;
mod systemd;
mod tls;
#[cfg(feature = "otlp")]
mod traces;
mod usage;
mod warden;
mod watches;

use clap::{CommandFactory, Parser, Subcommand};
use flashfork_terminal::{help, output};
use std::{
	path::PathBuf,
	process::ExitCode,
	sync::{Mutex, MutexGuard, PoisonError},
};

/// The argument of a warden, which is this program.
const WARDEN: &str = "warden of a function";

/// No panic leaves half of anything behind a lock.
fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
	mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The command `flashfork`, as far as it is this program.
#[derive(Parser)]
#[command(name = "flashfork", bin_name = "flashfork", version, propagate_version = true)]
struct Args {
	#[command(subcommand)]
	command: Command,
}

#[derive(Subcommand)]
enum Command {
	Serve(serve::ServeArgs),
	Deploy(client::DeployArgs),
	Invoke(client::InvokeArgs),
	/// Print what a function has printed lately
	#[command(after_help = "Example: flashfork logs hello")]
	Logs(client::FunctionArgs),
	/// List the functions
	#[command(after_help = "Example: flashfork functions")]
	Functions(client::Endpoint),
	/// Remove a function
	#[command(after_help = "Example: flashfork undeploy hello")]
	Undeploy(client::FunctionArgs),
	Cluster(cluster::ClusterArgs),
	Man(ManArgs),
}

/// Write the man pages of these commands into a directory, for `flashfork man`
#[derive(clap::Args)]
#[command(hide = true)]
struct ManArgs {
	/// The directory
	dir: PathBuf,
}

fn main() -> ExitCode {
	if std::env::args_os().nth(1).is_some_and(|first| first == WARDEN) {
		warden::main();
		return ExitCode::SUCCESS;
	}
	if let [_, first, socket, prefix] = &std::env::args_os().collect::<Vec<_>>()[..]
		&& first == machine::WATCHER
	{
		machine::main(socket.as_ref(), &prefix.to_string_lossy());
		return ExitCode::SUCCESS;
	}
	output::end_with_the_pipe();
	help::complete(Args::command);
	output::end(match Args::parse().command {
		Command::Serve(args) => args.main(),
		Command::Deploy(args) => args.main(),
		Command::Invoke(args) => args.main(),
		Command::Logs(args) => args.logs(),
		Command::Functions(args) => args.functions(),
		Command::Undeploy(args) => args.undeploy(),
		Command::Cluster(args) => args.main(),
		Command::Man(args) => {
			let mut all = Args::command().disable_help_subcommand(true);
			all.build();
			let mut own = all.get_subcommands().filter(|command| !command.is_hide_set());
			own.try_for_each(|command| help::man_pages(command, Some(help::COMMAND), &[], &args.dir, &|_, _| ()))
				.map(|()| ExitCode::SUCCESS)
		}
	})
}
