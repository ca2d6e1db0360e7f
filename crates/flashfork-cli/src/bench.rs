//! `flashfork bench`: experiments, and figures of what they found.

use crate::error::CliError;
use crate::interrupt;
use crate::output::say;
use crate::place::Place;
use crate::places;
use crate::progress::Bars;
use clap::{ArgMatches, Args, Command, FromArgMatches, Subcommand};
use flashfork_bench::experiments;
use flashfork_measure::compare;
use flashfork_measure::experiment::{Entry, Run};
use flashfork_measure::record::Document;
use flashfork_measure::{BenchError, Places};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// Run an experiment and keep every sample in a record file, or draw such a file
#[derive(Args)]
#[command(after_help = "Example: flashfork bench fork --sizes 0,256M,1G")]
pub struct BenchArgs {
    #[command(subcommand)]
    command: BenchCommand,
}

#[derive(Subcommand)]
enum BenchCommand {
    #[command(flatten)]
    Experiment(Chosen),
    Figure(FigureArgs),
    Compare(CompareArgs),
    All(AllArgs),
    Report(ReportArgs),
}

/// One of the experiments, with its options and those of all.
struct Chosen {
    entry: Entry,
    run: Run,
    output: OutputArgs,
}

#[derive(Args)]
struct OutputArgs {
    /// Where the records go; a file that is there is replaced [default: a new file in the user's state directory]
    #[arg(long, value_name = "FILE")]
    records: Option<PathBuf>,
    /// Print the records as JSON instead of the table
    #[arg(long)]
    json: bool,
}

/// Draw a record file of `bench fork`, `bench vm-clone` or `bench policy` as SVG
#[derive(Args)]
#[command(
    after_help = "Example: flashfork bench fork --records fork.json && flashfork bench figure fork.json fork.svg"
)]
struct FigureArgs {
    /// The record file
    #[arg(value_name = "RECORDS.json")]
    records: PathBuf,
    /// The picture; a file that is there is replaced
    #[arg(value_name = "OUT.svg")]
    out: PathBuf,
}

/// Compare two record files cell by cell: which figures differ beyond chance, and by how much
#[derive(Args)]
#[command(after_help = "Example: flashfork bench compare before.json after.json")]
struct CompareArgs {
    /// The first record file
    #[arg(value_name = "A.json")]
    first: PathBuf,
    /// The second, whose figures are called lower or higher
    #[arg(value_name = "B.json")]
    second: PathBuf,
    /// Show every cell, not only those that differ
    #[arg(long)]
    all: bool,
    /// Print JSON, of every cell
    #[arg(long)]
    json: bool,
}

/// Run every experiment about process creation and write a report: one page, and the data beside it
#[derive(Args)]
#[command(after_help = "Example: flashfork bench all --html report --quick && xdg-open report/index.html")]
struct AllArgs {
    /// The directory of the report, made if it isn't there; files of the same names are replaced
    #[arg(long, value_name = "DIR")]
    html: PathBuf,
    /// Fewer sizes and samples: four minutes instead of forty
    #[arg(long)]
    quick: bool,
}

/// Make the report again from records, of one experiment or of all
#[derive(Args)]
#[command(after_help = "Example: flashfork bench report report/data.json --html other")]
struct ReportArgs {
    /// The record file
    #[arg(value_name = "RECORDS.json")]
    records: PathBuf,
    /// The directory of the report, made if it isn't there; files of the same names are replaced
    #[arg(long, value_name = "DIR")]
    html: PathBuf,
}

pub fn main(args: &BenchArgs) -> Result<ExitCode, CliError> {
    match &args.command {
        BenchCommand::Experiment(chosen) => measure(chosen)?,
        BenchCommand::Figure(args) => draw(args)?,
        BenchCommand::Compare(args) => compare(args)?,
        BenchCommand::All(args) => all(args)?,
        BenchCommand::Report(args) => report(args)?,
    }
    Ok(ExitCode::SUCCESS)
}

fn draw(args: &FigureArgs) -> Result<(), CliError> {
    let svg = experiments::figure(&Document::read(&args.records)?)?;
    std::fs::write(&args.out, svg).map_err(CliError::file("write", &args.out))
}

fn compare(args: &CompareArgs) -> Result<(), CliError> {
    let found = compare::files(&args.first, &args.second)?;
    if args.json {
        let value =
            serde_json::json!({ "schema": "flashfork.compare/1", "verdict": found.sentence(), "comparison": found });
        return say(&format!("{value:#}"));
    }
    say(&found.table(args.all))
}

fn all(args: &AllArgs) -> Result<(), CliError> {
    interrupt::catch()?;
    flashfork_measure::report::try_place(&args.html)?;
    let mut bars = Bars::default();
    let whole = flashfork_measure::all::run(&experiments::ALL, args.quick, &Installed, &mut bars)?;
    drop(bars);
    flashfork_bench::report::write(&whole.document, &args.html)?;
    let findings = flashfork_bench::report::findings(&whole.document);
    say(&format!("{}\n\nReport: {}", findings.join("\n"), args.html.join("index.html").display()))?;
    // The report is there, but somebody must hear of this.
    if whole.void.is_empty() { Ok(()) } else { Err(CliError::Unable(whole.void.join("; "))) }
}

fn report(args: &ReportArgs) -> Result<(), CliError> {
    Ok(flashfork_bench::report::write(&Document::read(&args.records)?, &args.html)?)
}

fn measure(Chosen { entry, run, output }: &Chosen) -> Result<(), CliError> {
    interrupt::catch()?;
    let path = match &output.records {
        Some(path) => path.clone(),
        None => places::records(entry.name)?,
    };
    // Before anything is measured: a place that can't be written to is found out now.
    let place = records(&path, output.records.is_none()).map_err(|e| {
        e.if_denied("give --records FILE where you may write, or set XDG_STATE_HOME to such a directory")
    })?;
    // One that failed in the middle has records too.
    let (outcome, failure) = match run(&Installed, &mut Bars::default()) {
        Ok(outcome) => (outcome, Ok(())),
        Err(BenchError::Unfinished { outcome, why }) => (*outcome, Err((*why).into())),
        Err(error) => return Err(error.into()),
    };
    place.write(|out| outcome.document.write_to(out))?;
    let mut out = std::io::stdout().lock();
    let printed = if output.json {
        serde_json::to_writer(&mut out, &outcome.document).map_err(Into::into).and_then(|()| writeln!(out))
    } else {
        writeln!(out, "{}\n\nRecords with every sample: {}", outcome.table, path.display())
    };
    printed.map_err(CliError::file("write", "standard output"))?;
    failure
}

/// The place of the records. Unlike the directory of a file that was given, the user's own is made.
fn records(path: &Path, own: bool) -> Result<Place, CliError> {
    if let Some(directory) = path.parent().filter(|_| own) {
        std::fs::create_dir_all(directory).map_err(CliError::file("create", directory))?;
    }
    Place::open(path)
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

/// What is installed with this command.
struct Installed;

impl Places for Installed {
    fn command(&self) -> Result<PathBuf, BenchError> {
        std::env::current_exe().map_err(|error| BenchError::system("find the flashfork executable", error))
    }

    fn shim(&self) -> Result<PathBuf, BenchError> {
        places::shim().map_err(unable)
    }

    fn shell(&self) -> Result<PathBuf, BenchError> {
        places::monitor("flashfork-shell").map_err(unable)
    }

    fn agent(&self) -> Result<PathBuf, BenchError> {
        places::agent().map_err(unable)
    }

    fn cache(&self, name: &str) -> Result<PathBuf, BenchError> {
        places::cache(name).map_err(unable)
    }
}

fn unable(error: CliError) -> BenchError {
    BenchError::Unable(error.to_string())
}
