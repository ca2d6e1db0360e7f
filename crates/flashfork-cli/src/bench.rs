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
use std::path::PathBuf;
use std::process::ExitCode;

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
    let mut bars = Bars::default();
    let (name, outcome) = match &args.experiment {
        Experiment::Fork(o) => ("fork", flashfork_bench::fork::run(o, &mut bars)?),
        Experiment::UnitTest(o) => {
            let o = UnitTestOptions { cache: cache(&o.cache)?, ..o.clone() };
            ("unit-test", flashfork_bench::unit_test::run(&o, &mut bars)?)
        }
        Experiment::Fuzz(o) => {
            let preload = o.preload.clone().map_or_else(places::shim, Ok)?;
            let o = FuzzOptions { cache: cache(&o.cache)?, preload: Some(preload), ..o.clone() };
            ("fuzz", flashfork_bench::fuzz::run(&o, &mut bars)?)
        }
    };
    drop(bars);
    let path = match &args.records {
        Some(path) => path.clone(),
        None => places::records(name)?,
    };
    write(&path, &outcome)?;
    let mut out = std::io::stdout().lock();
    let printed = if args.json {
        serde_json::to_writer(&mut out, &outcome.document).map_err(Into::into).and_then(|()| writeln!(out))
    } else {
        writeln!(out, "{}\n\nRecords with every sample: {}", outcome.table, path.display())
    };
    printed.map_err(CliError::file("write", "standard output"))?;
    Ok(ExitCode::SUCCESS)
}

/// Database images and fuzz targets are kept in the user's cache unless another place is given.
fn cache(given: &Option<PathBuf>) -> Result<Option<PathBuf>, CliError> {
    given.clone().map_or_else(|| places::cache("bench"), Ok).map(Some)
}

fn write(path: &std::path::Path, outcome: &Outcome) -> Result<(), CliError> {
    if let Some(dir) = path.parent().filter(|d| !d.as_os_str().is_empty()) {
        std::fs::create_dir_all(dir).map_err(CliError::file("create", dir))?;
    }
    Ok(outcome.document.write(path)?)
}
