//! What `flashfork bench` does.

use crate::{
	args::{AllArgs, Args, BenchCommand, Chosen, CompareArgs, FigureArgs, FlashforkCommand, ManArgs, ReportArgs},
	bars::Bars,
	installed::Installed,
};
use clap::CommandFactory;
use flashfork_bench::experiments;
use flashfork_measure::{BenchError, Document, Result, compare};
use flashfork_terminal::{CliError, help, interrupt, output::say, place::Place, places};
use std::{io::Write, path::Path, process::ExitCode};

pub fn main(command: &FlashforkCommand) -> Result<ExitCode, CliError> {
	match command {
		FlashforkCommand::Bench(args) => bench(&args.command)?,
		FlashforkCommand::Man(args) => man_pages(args)?,
	}
	// What was measured is kept, but a script should not go on as if that were all.
	Ok(interrupt::exit_code().map_or(ExitCode::SUCCESS, ExitCode::from))
}

fn bench(command: &BenchCommand) -> Result<(), CliError> {
	match command {
		BenchCommand::Experiment(chosen) => measure(chosen),
		BenchCommand::Figure(args) => draw(args),
		BenchCommand::Compare(args) => compare(args),
		BenchCommand::All(args) => all(args),
		BenchCommand::Report(args) => report(args),
	}
}

fn man_pages(args: &ManArgs) -> Result<(), CliError> {
	let mut all = Args::command().disable_help_subcommand(true);
	all.build();
	let mut own = all.get_subcommands().filter(|command| !command.is_hide_set());
	own.try_for_each(|command| help::man_pages(command, Some(help::COMMAND), &[], &args.dir, &|_, _| ()))
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
		Err(BenchError::Unfinished { outcome, why }) => (*outcome, Err(CliError::from(*why))),
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
