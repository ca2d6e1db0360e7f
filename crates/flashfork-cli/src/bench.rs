//! `flashfork bench`: experiments.

use crate::error::CliError;
use crate::places;
use crate::progress::Bars;
use clap::{Args, Subcommand};
use flashfork_bench::Outcome;
use flashfork_bench::fork::ForkOptions;
use flashfork_bench::fuzz::FuzzOptions;
use flashfork_bench::unit_test::UnitTestOptions;
use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use tempfile::NamedTempFile;

/// Run an experiment; every sample is kept in a record file
#[derive(Args)]
#[command(after_help = "Example: flashfork bench fork --sizes 0,256M,1G")]
pub struct BenchArgs {
    #[command(subcommand)]
    experiment: Experiment,
    /// Where the records go [default: a new file in the user's state directory]
    #[arg(long, global = true, value_name = "FILE")]
    records: Option<PathBuf>,
    /// Print the records as JSON instead of the table
    #[arg(long, global = true)]
    json: bool,
}

#[derive(Subcommand)]
enum Experiment {
    /// What a clone costs by size of the parent: 4 KB pages, THP, sealed
    Fork(ForkOptions),
    /// Real SQLite: each test in a clone of one warmed database
    UnitTest(UnitTestOptions),
    /// Real AFL++ on SQLite with a warmed database, plain against the shim
    Fuzz(FuzzOptions),
}

pub fn main(args: &BenchArgs) -> Result<ExitCode, CliError> {
    let path = match &args.records {
        Some(path) => path.clone(),
        None => places::records(args.experiment.name())?,
    };
    // Made before anything is measured: a place that can't be written to is found out now.
    let file = beside(&path)?;
    let outcome = run(&args.experiment)?;
    outcome.document.write(file.path())?;
    file.persist(&path).map_err(|e| CliError::file("write", &path)(e.error))?;
    let mut out = std::io::stdout().lock();
    let printed = if args.json {
        serde_json::to_writer(&mut out, &outcome.document).map_err(Into::into).and_then(|()| writeln!(out))
    } else {
        writeln!(out, "{}\n\nRecords with every sample: {}", outcome.table, path.display())
    };
    printed.map_err(CliError::file("write", "standard output"))?;
    Ok(ExitCode::SUCCESS)
}

impl Experiment {
    fn name(&self) -> &'static str {
        match self {
            Experiment::Fork(_) => flashfork_bench::fork::EXPERIMENT,
            Experiment::UnitTest(_) => flashfork_bench::unit_test::EXPERIMENT,
            Experiment::Fuzz(_) => flashfork_bench::fuzz::EXPERIMENT,
        }
    }
}

fn run(experiment: &Experiment) -> Result<Outcome, CliError> {
    let mut bars = Bars::default();
    Ok(match experiment {
        Experiment::Fork(o) => flashfork_bench::fork::run(o, &mut bars)?,
        Experiment::UnitTest(o) => {
            let o = UnitTestOptions { cache: cache(&o.cache)?, ..o.clone() };
            flashfork_bench::unit_test::run(&o, &mut bars)?
        }
        Experiment::Fuzz(o) => {
            let preload = o.preload.clone().map_or_else(places::shim, Ok)?;
            let o = FuzzOptions { cache: cache(&o.cache)?, preload: Some(preload), ..o.clone() };
            flashfork_bench::fuzz::run(&o, &mut bars)?
        }
    })
}

/// A temporary file in the directory of `path`, to become it when it is complete.
fn beside(path: &Path) -> Result<NamedTempFile, CliError> {
    let dir = path.parent().filter(|d| !d.as_os_str().is_empty()).unwrap_or(Path::new("."));
    std::fs::create_dir_all(dir).map_err(CliError::file("create", dir))?;
    let everyone_reads = std::fs::Permissions::from_mode(0o644);
    let made = tempfile::Builder::new().prefix(".flashfork-").permissions(everyone_reads).tempfile_in(dir);
    made.map_err(CliError::file("write records in", dir))
}

/// Database images and fuzz targets are kept in the user's cache unless another place is given.
fn cache(given: &Option<PathBuf>) -> Result<Option<PathBuf>, CliError> {
    given.clone().map_or_else(|| places::cache("bench"), Ok).map(Some)
}
