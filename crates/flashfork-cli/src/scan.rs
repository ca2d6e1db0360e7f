//! `flashfork scan`: what a seal would find in the code of files and processes.

use crate::error::CliError;
use crate::output::say;
use clap::Args;
use flashfork::code::{self, Examined, Verdict};
use flashfork_core::code::Call;
use serde::Serialize;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// Say which files make system calls of their own, so that processes with them are not sealed
///
/// Code that calls the kernel without libc can discard or move sealed memory without the engine's knowing; docs/SYSTEM_CALLS.md has
/// the rules. `flashfork run --trust FILE` seals such a process all the same.
#[derive(Args)]
#[command(after_help = "Examples: flashfork scan /usr/lib/x86_64-linux-gnu/libasan.so.8
          flashfork scan --pid 4711")]
pub struct ScanArgs {
    /// Look at the files that this process has mapped to be executed
    #[arg(long, value_name = "PID", value_parser = clap::value_parser!(i32).range(1..))]
    pid: Option<i32>,
    /// Map the files as code, as a program that uses them does, and print how long the look before a seal takes
    #[arg(long, conflicts_with_all = ["pid", "json"])]
    time: bool,
    /// Print JSON
    #[arg(long)]
    json: bool,
    /// Files; of directories all shared objects and programs in them
    #[arg(value_name = "PATH", required_unless_present = "pid")]
    paths: Vec<PathBuf>,
}

#[derive(Serialize)]
struct Row {
    path: PathBuf,
    verdict: Verdict,
    go: bool,
    code_bytes: u64,
    microseconds: f64,
    calls: Vec<Place>,
}

#[derive(Serialize)]
struct Place {
    address: u64,
    what: String,
}

pub fn main(args: &ScanArgs) -> Result<ExitCode, CliError> {
    if args.time {
        return time(&args.paths);
    }
    let mut rows = Vec::new();
    for path in &args.paths {
        if path.is_dir() {
            for path in objects_in(path)? {
                rows.extend(look(path)?.filter(|row| row.verdict != Verdict::NoObject));
            }
        } else {
            rows.extend(look(path.clone())?);
        }
    }
    if let Some(pid) = args.pid {
        let files = code::of_process(pid).map_err(CliError::file("read", format!("/proc/{pid}/maps")))?;
        rows.extend(files.into_iter().map(|(path, seen)| row(path, seen)));
    }
    if args.json {
        say(&format!("{:#}", serde_json::json!({ "schema": "flashfork.scan/1", "files": rows })))?;
    } else {
        for row in &rows {
            say(&text(row))?;
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// Says how long the look takes without and with the files.
fn time(paths: &[PathBuf]) -> Result<ExitCode, CliError> {
    let [before, _] = code::time()?;
    let mut maps = Vec::new();
    for path in paths {
        let file = std::fs::File::open(path).map_err(CliError::file("read", path))?;
        // SAFETY: nothing is made of the bytes but what the look says about them.
        let map = unsafe { memmap2::MmapOptions::new().map_exec(&file) }.map_err(CliError::file("map", path))?;
        // Reading them from a disk is not what is measured.
        map.advise(memmap2::Advice::PopulateRead).map_err(CliError::file("read", path))?;
        maps.push(map);
    }
    let bytes: usize = maps.iter().map(|map| map.len()).sum();
    let [first, again] = code::time()?;
    let own = first.saturating_sub(before);
    let rate = own.as_secs_f64() * 1e3 / (bytes as f64 / 1e8);
    say(&format!(
        "first sight of {:.1} MB: {own:.1?} ({rate:.1} ms for 100 MB); again, whole process: {again:.1?}",
        bytes as f64 / 1e6
    ))?;
    Ok(ExitCode::SUCCESS)
}

fn look(path: PathBuf) -> Result<Option<Row>, CliError> {
    match code::examine(&path) {
        Ok(seen) => Ok(Some(row(path, seen))),
        Err(e) => Err(CliError::file("read", path)(e)),
    }
}

fn row(path: PathBuf, seen: Examined) -> Row {
    let calls = seen.calls.iter().map(|(address, call)| Place { address: *address, what: call.to_string() }).collect();
    let microseconds = seen.elapsed.as_secs_f64() * 1e6;
    Row { path, verdict: seen.verdict, go: seen.go, code_bytes: seen.code_bytes, microseconds, calls }
}

/// Regular files below a directory that are shared objects by name or may be executed, in order of name.
fn objects_in(dir: &Path) -> Result<Vec<PathBuf>, CliError> {
    use std::os::unix::fs::PermissionsExt;
    let mut found = Vec::new();
    let mut todo = vec![dir.to_path_buf()];
    while let Some(dir) = todo.pop() {
        for entry in std::fs::read_dir(&dir).map_err(CliError::file("read", &dir))? {
            let entry = entry.map_err(CliError::file("read", &dir))?;
            let meta = entry.metadata().map_err(CliError::file("read", entry.path()))?;
            if meta.is_dir() {
                todo.push(entry.path());
            } else if meta.is_file() {
                let shared = entry.file_name().to_string_lossy().contains(".so");
                if shared || meta.permissions().mode() & 0o111 != 0 {
                    found.push(entry.path());
                }
            }
        }
    }
    found.sort();
    Ok(found)
}

fn text(row: &Row) -> String {
    let path = row.path.display();
    match row.verdict {
        Verdict::Clean => format!("clean      {path}"),
        Verdict::NoObject => format!("no object  {path}"),
        Verdict::Rewritten => format!("rewritten  {path}: {} calls lead to the engine", row.calls.len()),
        Verdict::Refused => {
            let place = |place: &Place| format!("{} at {:#x}", place.what, place.address);
            let mut what: Vec<_> = row.calls.iter().map(place).collect();
            if row.go {
                what.insert(0, Call::Go.to_string());
            }
            const SHOWN: usize = 3;
            let more = what.len().saturating_sub(SHOWN);
            what.truncate(SHOWN);
            let more = if more > 0 { format!("; and {more} more") } else { String::new() };
            format!("refused    {path}: {}{more}", what.join("; "))
        }
    }
}
