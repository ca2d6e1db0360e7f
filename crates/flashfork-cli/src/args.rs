//! The command line: one source for flags, help, man pages and completions.

use crate::{
	advise::AdviseArgs,
	doctor::DoctorArgs,
	lab::LabArgs,
	others::OtherArgs,
	run::RunArgs,
	scan::ScanArgs,
	vm::VmArgs,
	warm::{CloneArgs, LsArgs, RmArgs, WarmArgs},
};
use clap::{Parser, Subcommand};
use std::path::PathBuf;

/// Warm once, clone in microseconds: clone a warmed process at a cost that does not grow with its memory.
#[derive(Parser)]
#[command(name = "flashfork", version, propagate_version = true)]
#[command(after_help = "Example: flashfork run -- python3 server.py")]
pub struct Args {
	#[command(subcommand)]
	pub command: Command,
}

#[derive(Subcommand)]
pub enum Command {
	Doctor(DoctorArgs),
	Run(RunArgs),
	Warm(WarmArgs),
	Clone(CloneArgs),
	Ls(LsArgs),
	Rm(RmArgs),
	/// Run an experiment and keep every sample in a record file, or draw such a file
	Bench(OtherArgs),
	Advise(AdviseArgs),
	Scan(ScanArgs),
	Lab(LabArgs),
	Vm(VmArgs),
	/// Serve functions by AWS Lambda's APIs, each call in a fresh clone of a warmed process
	Serve(OtherArgs),
	/// Deploy a function: a directory or a zip file with code in Python, JavaScript or Java
	Deploy(OtherArgs),
	/// Call a function, and print its answer
	Invoke(OtherArgs),
	/// Print what a function has printed lately
	Logs(OtherArgs),
	/// List the functions
	Functions(OtherArgs),
	/// Remove a function
	Undeploy(OtherArgs),
	/// Look after the nodes of a cluster of servers
	Cluster(OtherArgs),
	Completions(CompletionsArgs),
	Man(ManArgs),
}

/// Print a completion script for a shell
#[derive(clap::Args)]
#[command(after_help = "Example: flashfork completions bash > /etc/bash_completion.d/flashfork")]
pub struct CompletionsArgs {
	/// The shell
	pub shell: clap_complete::Shell,
}

/// Write the man pages into a directory
#[derive(clap::Args)]
#[command(after_help = "Example: flashfork man /usr/local/share/man/man1")]
pub struct ManArgs {
	/// The directory, made if it isn't there; the one above it must exist
	pub dir: PathBuf,
}
