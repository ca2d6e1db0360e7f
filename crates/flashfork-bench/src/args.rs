//! The command line of `flashfork bench`: one source for flags, help, man pages and completions.

use clap::{ArgMatches, Args as Options, Command, FromArgMatches, Parser, Subcommand};
use flashfork_bench::experiments;
use flashfork_measure::{
	Result,
	experiment::{Entry, Start},
};
use std::path::PathBuf;

/// The command `flashfork`, as far as it is this program.
#[derive(Parser)]
#[command(name = "flashfork", bin_name = "flashfork", version, propagate_version = true)]
pub struct Args {
	#[command(subcommand)]
	pub command: FlashforkCommand,
}

#[derive(Subcommand)]
pub enum FlashforkCommand {
	Bench(BenchArgs),
	Man(ManArgs),
}

/// Write the man pages of `bench` into a directory, for `flashfork man`
#[derive(Options)]
#[command(hide = true)]
pub struct ManArgs {
	/// The directory
	pub dir: PathBuf,
}

/// Run an experiment and keep every sample in a record file, or draw such a file
#[derive(Options)]
#[command(
	after_help = "Example: flashfork bench fork --sizes 0,256M,1G",
	after_long_help = "\
Example: flashfork bench fork --sizes 0,256M,1G

Exit code: 0 when all was measured that can be, 1 when something failed (one line says what), 2 for wrong usage, 128 plus the signal \
when it was interrupted; what was measured until then is kept."
)]
pub struct BenchArgs {
	#[command(subcommand)]
	pub command: BenchCommand,
}

#[derive(Subcommand)]
pub enum BenchCommand {
	#[command(flatten)]
	Experiment(Chosen),
	Figure(FigureArgs),
	Compare(CompareArgs),
	All(AllArgs),
	Report(ReportArgs),
}

/// One of the experiments, with its options and those of all.
pub struct Chosen {
	pub entry: Entry,
	pub run: Start,
	pub output: OutputArgs,
}

#[derive(Options)]
pub struct OutputArgs {
	/// Where the records go; a file that is there is replaced [default: a new file in the user's state directory]
	#[arg(long, value_name = "FILE")]
	pub records: Option<PathBuf>,
	/// Print the records as JSON instead of the table
	#[arg(long)]
	pub json: bool,
}

/// Draw a record file of `bench fork`, `bench vm-clone` or `bench policy` as SVG
#[derive(Options)]
#[command(
	after_help = "Example: flashfork bench fork --records fork.json && flashfork bench figure fork.json fork.svg"
)]
pub struct FigureArgs {
	/// The record file
	#[arg(value_name = "RECORDS.json")]
	pub records: PathBuf,
	/// The picture; a file that is there is replaced
	#[arg(value_name = "OUT.svg")]
	pub out: PathBuf,
}

/// Compare two record files cell by cell: which figures differ beyond chance, and by how much
#[derive(Options)]
#[command(after_help = "Example: flashfork bench compare before.json after.json")]
pub struct CompareArgs {
	/// The first record file
	#[arg(value_name = "A.json")]
	pub first: PathBuf,
	/// The second, whose figures are called lower or higher
	#[arg(value_name = "B.json")]
	pub second: PathBuf,
	/// Show every cell, not only those that differ
	#[arg(long)]
	pub all: bool,
	/// Print JSON, of every cell
	#[arg(long)]
	pub json: bool,
}

/// Run every experiment about process creation and write a report: one page, and the data beside it
#[derive(Options)]
#[command(after_help = "Example: flashfork bench all --html report --quick && xdg-open report/index.html")]
pub struct AllArgs {
	/// The directory of the report, made if it isn't there; files of the same names are replaced
	#[arg(long, value_name = "DIR")]
	pub html: PathBuf,
	/// Fewer sizes and samples: four minutes instead of forty
	#[arg(long)]
	pub quick: bool,
}

/// Make the report again from records, of one experiment or of all
#[derive(Options)]
#[command(after_help = "Example: flashfork bench report report/data.json --html other")]
pub struct ReportArgs {
	/// The record file
	#[arg(value_name = "RECORDS.json")]
	pub records: PathBuf,
	/// The directory of the report, made if it isn't there; files of the same names are replaced
	#[arg(long, value_name = "DIR")]
	pub html: PathBuf,
}

impl Subcommand for Chosen {
	fn augment_subcommands(command: Command) -> Command {
		command.subcommands(experiments::ALL.iter().map(|entry| OutputArgs::augment_args(entry.command())))
	}

	fn augment_subcommands_for_update(command: Command) -> Command {
		Self::augment_subcommands(command)
	}

	fn has_subcommand(name: &str) -> bool {
		experiments::ALL.iter().any(|entry| entry.name == name)
	}
}

impl FromArgMatches for Chosen {
	fn from_arg_matches(matches: &ArgMatches) -> Result<Self, clap::Error> {
		let found = matches.subcommand().and_then(|(name, own)| {
			experiments::ALL.into_iter().find(|entry| entry.name == name).map(|entry| (entry, own))
		});
		let (entry, own) = found.ok_or_else(|| clap::Error::new(clap::error::ErrorKind::InvalidSubcommand))?;
		Ok(Self { entry, run: entry.parse(own)?, output: OutputArgs::from_arg_matches(own)? })
	}

	fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
		*self = Self::from_arg_matches(matches)?;
		Ok(())
	}
}
