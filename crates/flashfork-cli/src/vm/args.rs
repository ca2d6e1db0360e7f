//! The command line of `flashfork vm`.

use super::{
	disks::DiskArgs,
	names::candidates,
	places::{Copy, Place, Ports, place},
};
use clap::{
	Args, Subcommand, ValueHint,
	builder::{OsStringValueParser, TypedValueParser},
};
use clap_complete::ArgValueCandidates;
use flashfork_proto::{
	api::{MAX_CLONES_AT_ONCE, NAME_RULE, is_name},
	shape::{MAX_DISK_SLOTS, MAX_MEMORY_MIB, MAX_VCPUS, MIN_MEMORY_MIB},
};
use flashfork_terminal::size::{Size, SizeError};
use std::{ffi::OsString, path::PathBuf};

/// The template that `vm run` makes by itself.
pub const DEFAULT_TEMPLATE: &str = "default";

/// A name as the daemon takes it: whatever else is wrong usage, and reaches no path of a request.
fn name(text: &str) -> Result<String, String> {
	if is_name(text) { Ok(text.to_owned()) } else { Err(format!("{text:?} is no name: {NAME_RULE}")) }
}

/// Guest memory that a machine can have.
fn memory(text: &str) -> Result<Size, String> {
	let size: Size = text.parse().map_err(|e: SizeError| e.to_string())?;
	if (u64::from(MIN_MEMORY_MIB)..=u64::from(MAX_MEMORY_MIB)).contains(&(size.0 >> 20)) {
		return Ok(size);
	}
	Err(format!("give {MIN_MEMORY_MIB}M to {}T", MAX_MEMORY_MIB >> 20))
}

/// Clone warmed virtual machines copy-on-write
#[derive(Args)]
#[command(after_help = "Example: flashfork vm run -- echo hello")]
pub struct VmArgs {
	/// The daemon's socket [default: the user's own; `run`, `template create` and `template load` start a daemon there
	/// if there is none]
	#[arg(long, global = true, value_name = "PATH")]
	pub socket: Option<PathBuf>,
	/// Print JSON
	#[arg(long, global = true)]
	pub json: bool,
	#[command(subcommand)]
	pub command: VmCommand,
}

#[derive(Subcommand)]
pub enum VmCommand {
	/// Run the daemon in the foreground
	#[command(after_help = "Example: flashfork vm serve --pool 16")]
	Serve(ServeArgs),
	/// Run a command in a new clone; the template `default` is made of Debian's kernel if it isn't there
	#[command(after_help = "Example: flashfork vm run -- echo hello")]
	Run(RunArgs),
	#[command(subcommand, about = "Make, save, load and remove templates")]
	Template(TemplateCommand),
	/// Make clones of a template
	#[command(
		after_help = "Examples: flashfork vm clone -n 10 web\n          flashfork vm clone --disk app.ext4:/srv/app:ro web"
	)]
	Clone(CloneArgs),
	/// Fork a clone while it runs: make clones of what it is at this moment
	///
	/// The clone goes on, with its connections; it stands still for a moment, a millisecond for 2 GB. All
	/// that the clones have in common exists once. They, and their forks, live on when the clone is removed.
	#[command(
		after_help = "Examples: flashfork vm fork web-1 -n 3\n          flashfork vm fork web-1 --template loaded"
	)]
	Fork(ForkArgs),
	/// Run a command in a clone; signals, and its exit status, are passed on
	#[command(after_help = "Examples: flashfork vm exec web-1 -- uname -a\n          flashfork vm exec web-1 -- sh")]
	Exec(ExecArgs),
	/// Have a port of this host lead to a TCP port of a clone, until Ctrl-C or the clone's end
	#[command(after_help = "Examples: flashfork vm port web-1 8080:80\n          flashfork vm port web-1 0:80")]
	Port(PortArgs),
	/// Copy files and directories between this host and a clone
	///
	/// One of SRC and DST is in a clone. If DST is a directory the copy goes into it, under SRC's name; else it becomes
	/// DST, whose directory must be there. Of a SRC that ends in /. the content is copied. Files that are there are
	/// replaced. Permissions are copied; the copy belongs to you, or to root in the clone. Symbolic links are copied as
	/// links, but none that leads out of what a clone sends.
	#[command(
		after_help = "Examples: flashfork vm cp ./app web-1:/srv\n          flashfork vm cp web-1:/var/log/app.log ."
	)]
	Cp(CpArgs),
	/// Show a clone's console, and type on it; Ctrl-C leaves it
	#[command(after_help = "Example: flashfork vm console web-1")]
	Console(NameArg),
	/// Send a clone back to its template
	#[command(after_help = "Example: flashfork vm rollback web-1")]
	Rollback(NameArg),
	/// List clones, and what went wrong with them
	#[command(after_help = "Example: flashfork vm ls --all")]
	Ls(LsArgs),
	/// End clones, and forget those that have ended
	#[command(after_help = "Example: flashfork vm rm web-1 web-2")]
	Rm(ClonesArg),
	/// Show what the daemon has, and what memory that takes
	#[command(after_help = "Example: flashfork vm stats")]
	Stats,
	/// End the daemon, and with it all templates and clones
	#[command(after_help = "Example: flashfork vm stop")]
	Stop,
	/// Say what this host's KVM can do, by trying: boot Linux, run a tiny guest, or nothing
	#[command(after_help = "Example: flashfork vm doctor")]
	Doctor,
	#[command(subcommand, about = "Make disks")]
	Image(ImageCommand),
}

#[derive(Args)]
pub struct ServeArgs {
	/// Shells kept ready for each shape of VM with a template
	#[arg(long, default_value_t = 4, value_name = "N")]
	pub pool: u32,
}

#[derive(Args)]
#[command(override_usage = "flashfork vm run [OPTIONS] [--] <COMMAND>...")]
pub struct RunArgs {
	/// The template
	#[arg(long, default_value = DEFAULT_TEMPLATE, value_name = "NAME", value_parser = name)]
	pub template: String,
	/// Give the command a terminal, as it has one anyway if somebody types its input and looks at its output
	#[arg(short = 't', long)]
	pub terminal: bool,
	#[command(flatten)]
	pub disks: DiskArgs,
	/// The command and its arguments
	#[arg(trailing_var_arg = true, required = true, value_name = "COMMAND")]
	pub command: Vec<OsString>,
}

#[derive(Subcommand)]
pub enum TemplateCommand {
	/// Boot a guest and freeze it when it is ready
	#[command(
		after_help = "Example: flashfork vm template create web --memory 512M --ready-command 'busybox httpd -h /'"
	)]
	Create(Box<CreateArgs>),
	/// Save a template to a new directory
	#[command(after_help = "Example: flashfork vm template save web ./web.template")]
	Save(DirectoryArgs),
	/// Load a template from a directory
	#[command(after_help = "Example: flashfork vm template load web ./web.template")]
	Load(DirectoryArgs),
	/// List templates
	#[command(after_help = "Example: flashfork vm template ls")]
	Ls,
	/// Remove templates with no clones
	#[command(after_help = "Example: flashfork vm template rm web")]
	Rm(NamesArg),
}

#[derive(Args)]
pub struct CreateArgs {
	/// The template's name
	#[arg(value_parser = name)]
	pub name: String,
	/// Guest memory
	#[arg(long, default_value = "256M", value_name = "SIZE", value_parser = memory)]
	pub memory: Size,
	/// Virtual CPUs, 1 to 8
	#[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u8).range(1..=i64::from(MAX_VCPUS)))]
	pub cpus: u8,
	/// Guest memory in 2 MB pages
	#[arg(long)]
	pub huge: bool,
	/// Kernel: a bzImage or an ELF file with a PVH entry [default: Debian's cloud kernel, downloaded once]
	#[arg(long, value_name = "PATH")]
	pub kernel: Option<PathBuf>,
	/// Initramfs [default: one with the agent and busybox]
	#[arg(long, value_name = "PATH")]
	pub initramfs: Option<PathBuf>,
	/// Words to add to the kernel's command line
	#[arg(long, default_value = "", value_name = "WORDS")]
	pub append: String,
	/// Disk image, which becomes the guest's root and must not change any more
	#[arg(long, value_name = "PATH")]
	pub disk: Option<PathBuf>,
	/// What a guest may write to its disk, and each clone over that: it is kept in memory
	#[arg(long, default_value = "1G", value_name = "SIZE", requires = "disk")]
	pub disk_limit: Size,
	/// The disk's serial number in the guest, up to 20 characters [default: flashfork]
	#[arg(long, value_name = "TEXT", requires = "disk")]
	pub disk_serial: Option<String>,
	/// The guest can't write to the disk: what it writes to its root stays in its own memory
	#[arg(long, requires = "disk")]
	pub disk_read_only: bool,
	/// Empty disks beside that, up to 4, to which clones and what is made of them can be given images (--disk)
	#[arg(long, default_value_t = 0, value_name = "N", value_parser = clap::value_parser!(u8).range(..=i64::from(MAX_DISK_SLOTS)))]
	pub disk_slots: u8,
	/// Ready when this shell command has run in the guest [default: when the agent is up]
	#[arg(long, value_name = "COMMAND", conflicts_with = "ready_signal")]
	pub ready_command: Option<String>,
	/// Ready when the guest gives the fork signal by itself
	#[arg(long)]
	pub ready_signal: bool,
	/// Retire the template after this many clones
	#[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
	pub max_clones: Option<u64>,
	/// Seconds until the guest must be ready
	#[arg(long, default_value_t = flashfork_proto::api::DEFAULT_TIMEOUT_S, value_parser = clap::value_parser!(u32).range(1..))]
	pub timeout: u32,
}

#[derive(Args)]
pub struct DirectoryArgs {
	/// The template's name
	#[arg(value_parser = name)]
	pub name: String,
	/// The directory
	pub directory: PathBuf,
}

#[derive(Args)]
pub struct CloneArgs {
	/// The template
	#[arg(value_parser = name)]
	pub template: String,
	/// How many
	#[arg(short = 'n', long = "count", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=i64::from(MAX_CLONES_AT_ONCE)))]
	pub count: u32,
	/// The clone's name [default: the template's and a number]
	#[arg(long, value_parser = name)]
	pub name: Option<String>,
	/// What the clone is for: FLASHFORK_JOB in programs of its guest's /etc/flashfork/clone.d
	#[arg(long, default_value = "", value_name = "TEXT")]
	pub job: String,
	/// How often each may fork itself, by /run/flashfork/agent signal fork in its guest; its clones' forks count
	#[arg(long, default_value_t = 0, value_name = "N")]
	pub forks: u32,
	/// Don't wait until the guest is ready
	#[arg(long)]
	pub no_wait: bool,
	#[command(flatten)]
	pub disks: DiskArgs,
}

#[derive(Args)]
pub struct ForkArgs {
	/// The clone that is forked
	#[arg(value_parser = name, add = ArgValueCandidates::new(candidates))]
	pub clone: String,
	/// How many clones [default: 1, or none with --template and no --name]
	#[arg(short = 'n', long = "count", value_parser = clap::value_parser!(u32).range(1..=i64::from(MAX_CLONES_AT_ONCE)))]
	pub count: Option<u32>,
	/// The new clone's name [default: that of the template that it comes from, and a number]
	#[arg(long, value_parser = name)]
	pub name: Option<String>,
	/// What the clones are for: FLASHFORK_JOB in programs of their guests' /etc/flashfork/clone.d
	#[arg(long, default_value = "", value_name = "TEXT")]
	pub job: String,
	/// Don't wait until the guests are ready
	#[arg(long)]
	pub no_wait: bool,
	#[command(flatten)]
	pub disks: DiskArgs,
	/// Keep what the clone is now as a template of this name
	#[arg(long, value_name = "NAME", value_parser = name)]
	pub template: Option<String>,
	/// Fork it wherever it is, without its agent: for guests with none
	#[arg(long)]
	pub now: bool,
}

#[derive(Args)]
#[command(override_usage = "flashfork vm exec [OPTIONS] <NAME> [--] <COMMAND>...")]
pub struct ExecArgs {
	/// The clone
	#[arg(value_parser = name, add = ArgValueCandidates::new(candidates))]
	pub name: String,
	/// Give the command a terminal, as it has one anyway if somebody types its input and looks at its output
	#[arg(short = 't', long)]
	pub terminal: bool,
	/// The command and its arguments
	#[arg(trailing_var_arg = true, required = true, value_name = "COMMAND")]
	pub command: Vec<OsString>,
}

#[derive(Args)]
pub struct PortArgs {
	/// The clone
	#[arg(value_parser = name, add = ArgValueCandidates::new(candidates))]
	pub name: String,
	/// This host's port, on 127.0.0.1 or ADDRESS, or 0 for any that is free; and the clone's, on its 127.0.0.1
	#[arg(value_name = "[ADDRESS:]HOST:GUEST")]
	pub ports: Ports,
}

#[derive(Args)]
pub struct CpArgs {
	/// What is copied: NAME:/PATH in the clone NAME, or a path here
	#[arg(value_name = "SRC", value_parser = OsStringValueParser::new().try_map(place), value_hint = ValueHint::AnyPath)]
	source: Place,
	/// Where the copy goes, likewise
	#[arg(value_name = "DST", value_parser = OsStringValueParser::new().try_map(place), value_hint = ValueHint::AnyPath)]
	destination: Place,
}

impl CpArgs {
	/// Ends this process if that is wrong usage.
	pub fn copy(&self) -> Copy<'_> {
		Copy::between(&self.source, &self.destination).unwrap_or_else(|| {
			let message = "one of SRC and DST has to be in a clone, and the other here: give it as NAME:/PATH\n";
			clap::Error::raw(clap::error::ErrorKind::ValueValidation, message).exit()
		})
	}
}

#[derive(Args)]
pub struct LsArgs {
	/// Those that have ended too, and how; the last 1000 are remembered until they are removed
	#[arg(short = 'a', long)]
	pub all: bool,
	/// With templates: who was cloned or forked from whom, and what memory is whose
	#[arg(long)]
	pub tree: bool,
}

#[derive(Args)]
pub struct NameArg {
	/// The clone
	#[arg(value_parser = name, add = ArgValueCandidates::new(candidates))]
	pub name: String,
}

#[derive(Args)]
pub struct ClonesArg {
	/// Their names
	#[arg(required_unless_present = "all", value_parser = name, add = ArgValueCandidates::new(candidates))]
	pub names: Vec<String>,
	/// All clones, whoever made them; templates stay
	#[arg(long, conflicts_with = "names")]
	pub all: bool,
}

#[derive(Args)]
pub struct NamesArg {
	/// Their names
	#[arg(required = true, value_parser = name)]
	pub names: Vec<String>,
}

#[derive(Subcommand)]
pub enum ImageCommand {
	/// Make an ext4 disk image of a directory
	#[command(after_help = "Example: flashfork vm image from-dir ./root root.ext4")]
	FromDir(FromDirArgs),
}

#[derive(Args)]
pub struct FromDirArgs {
	/// The directory
	pub directory: PathBuf,
	/// The image, which must not exist yet
	pub image: PathBuf,
	/// Size of the disk [default: what the directory needs and 512 MB]
	#[arg(long, value_name = "SIZE")]
	pub size: Option<Size>,
}
