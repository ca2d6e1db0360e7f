//! `flashfork bench`: experiments, and figures of what they found.

use crate::error::CliError;
use crate::interrupt;
use crate::output::say;
use crate::place::Place;
use crate::places;
use crate::progress::Bars;
use clap::{Args, Subcommand};
use flashfork_bench::access::{self, AccessMixOptions, FaultOptions};
use flashfork_bench::check::{self, CheckOptions};
use flashfork_bench::clones::{self, ClonesOptions};
use flashfork_bench::compare;
use flashfork_bench::cow_model::CowModelOptions;
use flashfork_bench::creation::CreationOptions;
use flashfork_bench::forecasts::{self, AdviseOptions};
use flashfork_bench::fork::ForkOptions;
use flashfork_bench::fuzz::FuzzOptions;
use flashfork_bench::policy::PolicyOptions;
use flashfork_bench::profile::{self, ProfileOptions};
use flashfork_bench::record::Document;
use flashfork_bench::redis::{self, RedisOptions};
use flashfork_bench::rollback::{self, RollbackOptions};
use flashfork_bench::seal_threads::{self, SealThreadsOptions};
use flashfork_bench::unit_test::UnitTestOptions;
use flashfork_bench::vm_clone::VmCloneOptions;
use flashfork_bench::vm_memory::VmMemoryOptions;
use flashfork_bench::warm::{self, WarmOptions};
use flashfork_bench::write_fraction::WriteFractionOptions;
use flashfork_bench::{BenchError, Installed, Outcome};
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
    Experiment(Experiment),
    Figure(FigureArgs),
    Compare(CompareArgs),
    All(AllArgs),
    Report(ReportArgs),
}

#[derive(Subcommand)]
enum Experiment {
    /// What a clone costs by size of the parent: 4 KB pages, THP, sealed
    Fork(Run<ForkOptions>),
    /// Every way to make a process beside the others: fork, vfork, clone, posix_spawn, threads, sealed
    Creation(Run<CreationOptions>),
    /// The copy-on-write experiment of 1988 with today's figures: what a process, a page and a written page cost
    CowModel(Run<CowModelOptions>),
    /// What `auto` decides beside plain forks and a seal, by size, written share and number of forks
    Policy(Run<PolicyOptions>),
    /// The first write after a fork, where it costs most
    Fault(Run<FaultOptions>),
    /// Fork and go through the memory, reading and writing it in five mixes
    AccessMix(Run<AccessMixOptions>),
    /// Where the time of a plain fork goes in the kernel, by perf
    Profile(Run<ProfileOptions>),
    /// The forecasts of `advise` beside the forks of five processes of different shapes
    Advise(Run<AdviseOptions>),
    /// Our figures beside those of stress-ng, hyperfine, perf and lmbench, in the same minute
    Check(Run<CheckOptions>),
    /// How much of a program's memory changes between two moments: bytes, pages, huge pages
    WriteFraction(Run<WriteFractionOptions>),
    /// Going back to a state: a region's rollback, by pages written since
    Rollback(Run<RollbackOptions>),
    /// Many clones alive at once: how long until all are, and what each holds
    Clones(Run<ClonesOptions>),
    /// How long threads stand still while their process is sealed
    SealThreads(Run<SealThreadsOptions>),
    /// Real Redis: what its clients see while it takes snapshots, and how long its forks take
    Redis(Run<RedisOptions>),
    /// Programs from the shell, started anew and cloned from a warmed template: Python with numpy, Perl, Ruby
    Warm(Run<WarmOptions>),
    /// Real SQLite: each test in a clone of one warmed database
    UnitTest(Run<UnitTestOptions>),
    /// Real AFL++ on SQLite with a warmed database, plain against the shim
    Fuzz(Run<FuzzOptions>),
    /// What a clone of a virtual machine costs by size of its memory, against booting one
    VmClone(Run<VmCloneOptions>),
    /// What touching memory costs in a virtual machine that was booted, and in a clone
    VmMemory(Run<VmMemoryOptions>),
}

/// An experiment's own options and those of all.
#[derive(Args)]
struct Run<Options: Args> {
    #[command(flatten)]
    options: Options,
    #[command(flatten)]
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

/// Draw a record file of `bench fork` or `bench vm-clone` by size of memory, as SVG
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
    /// Print JSON
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
        BenchCommand::Experiment(experiment) => measure(experiment)?,
        BenchCommand::Figure(args) => draw(args)?,
        BenchCommand::Compare(args) => compare(args)?,
        BenchCommand::All(args) => all(args)?,
        BenchCommand::Report(args) => report(args)?,
    }
    Ok(ExitCode::SUCCESS)
}

fn draw(args: &FigureArgs) -> Result<(), CliError> {
    let svg = flashfork_bench::figure::draw(&Document::read(&args.records)?)?;
    std::fs::write(&args.out, svg).map_err(CliError::file("write", &args.out))
}

fn compare(args: &CompareArgs) -> Result<(), CliError> {
    let found = compare::files(&args.first, &args.second)?;
    if args.json {
        let value =
            serde_json::json!({ "schema": "flashfork.compare/1", "verdict": found.sentence(), "comparison": found });
        return say(&format!("{value:#}"));
    }
    say(&found.table())
}

fn all(args: &AllArgs) -> Result<(), CliError> {
    interrupt::catch()?;
    flashfork_bench::report::try_place(&args.html)?;
    let mut bars = Bars::default();
    let whole = flashfork_bench::all::run(args.quick, &mut bars)?;
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

fn measure(experiment: &Experiment) -> Result<(), CliError> {
    let output = experiment.output();
    let path = match &output.records {
        Some(path) => path.clone(),
        None => places::records(experiment.name())?,
    };
    // Before anything is measured: a place that can't be written to is found out now.
    let place = records(&path, output.records.is_none()).map_err(|e| {
        e.if_denied("give --records FILE where you may write, or set XDG_STATE_HOME to such a directory")
    })?;
    // One that failed in the middle has records too.
    let (outcome, failure) = match run(experiment) {
        Ok(outcome) => (outcome, Ok(())),
        Err(CliError::Bench(BenchError::Unfinished { outcome, why })) => (*outcome, Err((*why).into())),
        Err(error) => return Err(error),
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

impl Experiment {
    fn name(&self) -> &'static str {
        match self {
            Experiment::Fork(_) => flashfork_bench::fork::EXPERIMENT,
            Experiment::Creation(_) => flashfork_bench::creation::EXPERIMENT,
            Experiment::CowModel(_) => flashfork_bench::cow_model::EXPERIMENT,
            Experiment::Policy(_) => flashfork_bench::policy::EXPERIMENT,
            Experiment::Fault(_) => access::FAULT,
            Experiment::AccessMix(_) => access::ACCESS_MIX,
            Experiment::Profile(_) => profile::EXPERIMENT,
            Experiment::Advise(_) => forecasts::EXPERIMENT,
            Experiment::Check(_) => check::EXPERIMENT,
            Experiment::WriteFraction(_) => flashfork_bench::write_fraction::EXPERIMENT,
            Experiment::Rollback(_) => rollback::EXPERIMENT,
            Experiment::Clones(_) => clones::EXPERIMENT,
            Experiment::SealThreads(_) => seal_threads::EXPERIMENT,
            Experiment::Redis(_) => redis::EXPERIMENT,
            Experiment::Warm(_) => warm::EXPERIMENT,
            Experiment::UnitTest(_) => flashfork_bench::unit_test::EXPERIMENT,
            Experiment::Fuzz(_) => flashfork_bench::fuzz::EXPERIMENT,
            Experiment::VmClone(_) => flashfork_bench::vm_clone::EXPERIMENT,
            Experiment::VmMemory(_) => flashfork_bench::vm_memory::EXPERIMENT,
        }
    }

    fn output(&self) -> &OutputArgs {
        match self {
            Experiment::Fork(run) => &run.output,
            Experiment::Creation(run) => &run.output,
            Experiment::CowModel(run) => &run.output,
            Experiment::Policy(run) => &run.output,
            Experiment::Fault(run) => &run.output,
            Experiment::AccessMix(run) => &run.output,
            Experiment::Profile(run) => &run.output,
            Experiment::Advise(run) => &run.output,
            Experiment::Check(run) => &run.output,
            Experiment::WriteFraction(run) => &run.output,
            Experiment::Rollback(run) => &run.output,
            Experiment::Clones(run) => &run.output,
            Experiment::SealThreads(run) => &run.output,
            Experiment::Redis(run) => &run.output,
            Experiment::Warm(run) => &run.output,
            Experiment::UnitTest(run) => &run.output,
            Experiment::Fuzz(run) => &run.output,
            Experiment::VmClone(run) => &run.output,
            Experiment::VmMemory(run) => &run.output,
        }
    }
}

fn run(experiment: &Experiment) -> Result<Outcome, CliError> {
    let mut bars = Bars::default();
    Ok(match experiment {
        Experiment::Fork(Run { options: o, .. }) => {
            interrupt::catch()?;
            flashfork_bench::fork::run(o, &mut bars)?
        }
        Experiment::Creation(Run { options: o, .. }) => {
            interrupt::catch()?;
            flashfork_bench::creation::run(o, &mut bars)?
        }
        Experiment::Policy(Run { options: o, .. }) => {
            interrupt::catch()?;
            flashfork_bench::policy::run(o, &mut bars)?
        }
        Experiment::CowModel(Run { options: o, .. }) => {
            interrupt::catch()?;
            flashfork_bench::cow_model::run(o, &mut bars)?
        }
        Experiment::Fault(Run { options: o, .. }) => {
            interrupt::catch()?;
            access::fault(o, &mut bars)?
        }
        Experiment::AccessMix(Run { options: o, .. }) => {
            interrupt::catch()?;
            access::access_mix(o, &mut bars)?
        }
        Experiment::Profile(Run { options: o, .. }) => {
            interrupt::catch()?;
            profile::run(o, &mut bars)?
        }
        Experiment::Advise(Run { options: o, .. }) => {
            interrupt::catch()?;
            forecasts::run(o, &mut bars)?
        }
        Experiment::Check(Run { options: o, .. }) => {
            interrupt::catch()?;
            check::run(o, &mut bars)?
        }
        Experiment::WriteFraction(Run { options: o, .. }) => {
            interrupt::catch()?;
            flashfork_bench::write_fraction::run(o, &mut bars)?
        }
        Experiment::Rollback(Run { options: o, .. }) => {
            interrupt::catch()?;
            rollback::run(o, &mut bars)?
        }
        Experiment::Clones(Run { options: o, .. }) => {
            interrupt::catch()?;
            clones::run(o, &mut bars)?
        }
        Experiment::SealThreads(Run { options: o, .. }) => {
            interrupt::catch()?;
            seal_threads::run(o, &mut bars)?
        }
        Experiment::Redis(Run { options: o, .. }) => {
            interrupt::catch()?;
            let preload = o.preload.clone().map_or_else(places::shim, Ok)?;
            redis::run(&RedisOptions { preload: Some(preload), ..o.clone() }, &mut bars)?
        }
        Experiment::Warm(Run { options: o, .. }) => {
            interrupt::catch()?;
            let flashfork = std::env::current_exe().map_err(CliError::file("find", "the flashfork executable"))?;
            warm::run(o, &flashfork, &mut bars)?
        }
        Experiment::UnitTest(Run { options: o, .. }) => {
            let o = UnitTestOptions { cache: cache(&o.cache)?, ..o.clone() };
            flashfork_bench::unit_test::run(&o, &mut bars)?
        }
        Experiment::Fuzz(Run { options: o, .. }) => {
            let preload = o.preload.clone().map_or_else(places::shim, Ok)?;
            let o = FuzzOptions { cache: cache(&o.cache)?, preload: Some(preload), ..o.clone() };
            flashfork_bench::fuzz::run(&o, &mut bars)?
        }
        Experiment::VmClone(Run { options: o, .. }) => flashfork_bench::vm_clone::run(o, &monitor()?, &mut bars)?,
        Experiment::VmMemory(Run { options: o, .. }) => flashfork_bench::vm_memory::run(o, &monitor()?, &mut bars)?,
    })
}

/// Where the parts of the VM monitor are.
fn monitor() -> Result<Installed, CliError> {
    Ok(Installed { shell: places::monitor("flashfork-shell")?, agent: places::agent()?, cache: places::cache("lab")? })
}

/// Database images and fuzz targets are kept in the user's cache unless another place is given.
fn cache(given: &Option<PathBuf>) -> Result<Option<PathBuf>, CliError> {
    given.clone().map_or_else(|| places::cache("bench"), Ok).map(Some)
}
