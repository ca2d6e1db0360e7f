//! `flashfork scan`: what a seal would find in the code of files and processes.

use clap::Args;
use flashfork::code::{self, Examined, Verdict};
use flashfork_core::code::Call;
use flashfork_core::code::times::Times;
use flashfork_terminal::CliError;
use flashfork_terminal::output::say;
use flashfork_terminal::progress;
use serde::Serialize;
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

/// Say which files make system calls of their own, so that processes with them are not sealed
///
/// Code that calls the kernel without libc can discard or move sealed memory without the engine's knowing;
/// docs/SYSTEM_CALLS.md has the rules. A file is clean (makes no such calls), rewritten (a sanitizer's, say: its calls
/// are led to the engine), or refused (a process that has it mapped is not sealed, unless `flashfork run --trust FILE`
/// answers for it).
#[derive(Args)]
#[command(after_help = "Examples: flashfork scan /usr/lib/x86_64-linux-gnu/libasan.so.8
          flashfork scan --pid 4711

Exit code: 0 when everything was looked at, whatever was found, 1 when something could not be read or is no program \
or library for x86-64, 2 for wrong usage.")]
pub struct ScanArgs {
    /// Look at the files that this process has mapped to be executed
    #[arg(long, value_name = "PID", value_parser = clap::value_parser!(i32).range(1..))]
    pid: Option<i32>,
    /// Map the files as a program that uses them does, and print how long the look before a seal takes
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
    // Whatever is amiss with one of the paths, what was found in the others is said.
    let mut failed = false;
    for path in &args.paths {
        match if path.is_dir() { look_below(path) } else { look_at(path).map(|row| vec![row]) } {
            Ok(found) => rows.extend(found),
            Err(e) => {
                eprintln!("flashfork: {e}");
                failed = true;
            }
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
    Ok(if failed { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}

/// Looks at a file that was named.
fn look_at(path: &Path) -> Result<Row, CliError> {
    let row = look(path.to_path_buf())?;
    if row.verdict == Verdict::NoObject { Err(no_object(path)) } else { Ok(row) }
}

fn no_object(path: &Path) -> CliError {
    CliError::Unable(format!("{} is no program or library for x86-64 (ELF)", path.display()))
}

/// Looks at all programs and shared objects in a directory.
fn look_below(dir: &Path) -> Result<Vec<Row>, CliError> {
    let rows = look_at_all(progress::waiting("looking for programs and shared objects", || objects_in(dir))?)?;
    if rows.is_empty() {
        return Err(CliError::Unable(format!("there is no program or shared object below {}", dir.display())));
    }
    Ok(rows)
}

/// Looks at many files, with a bar on a terminal; those that are no objects are left out.
fn look_at_all(files: Vec<PathBuf>) -> Result<Vec<Row>, CliError> {
    let bar = progress::bar("files", files.len() as u64);
    let looked = files.into_iter().map(|path| {
        let row = look(path);
        if let Some(bar) = &bar {
            bar.inc(1);
        }
        row
    });
    let rows: Result<Vec<_>, _> = looked.collect();
    if let Some(bar) = &bar {
        bar.finish_and_clear();
    }
    Ok(rows?.into_iter().filter(|row| row.verdict != Verdict::NoObject).collect())
}

/// Most looks at one set of files: single ones of microseconds are no figures.
const LOOKS: usize = 9;

/// Says how long the look takes: for the files when they are new, and for this process with them when they are known.
/// The process has files of its own, whose share in the first figure is told by looking without the others.
fn time(paths: &[PathBuf]) -> Result<ExitCode, CliError> {
    let before = code::time()?.first;
    let mut bytes = 0;
    for path in paths {
        bytes += map(path)?;
    }
    let first = code::time()?.first;
    let mut again = Vec::new();
    for _ in 0..LOOKS {
        again.push(code::time()?);
    }
    let median = |of: fn(&Times) -> u64| {
        let mut all: Vec<_> = again.iter().map(of).collect();
        all.sort_unstable();
        Duration::from_nanos(all[LOOKS / 2])
    };
    let own = Duration::from_nanos(first.saturating_sub(before));
    let megabytes = bytes as f64 / 1e6;
    say(&format!(
        "first sight of {megabytes:.1} MB of code: {own:.1?} ({:.1} ms for 100 MB)\n\
         with every file known: {:.1?}; with nothing mapped since: {:.1?} (medians of {LOOKS}, whole process)",
        own.as_secs_f64() * 1e5 / megabytes,
        median(|t| t.known),
        median(|t| t.unchanged),
    ))?;
    Ok(ExitCode::SUCCESS)
}

/// Maps a file as the loader does; it stays mapped. Gives the bytes of code, which are in memory then: reading them
/// from a disk is not what is measured.
fn map(path: &Path) -> Result<usize, CliError> {
    use elf::abi::{EM_X86_64, PF_X, PT_LOAD};
    let file = std::fs::File::open(path).map_err(CliError::file("read", path))?;
    // SAFETY: nothing is made of the bytes but what the headers say.
    let bytes = unsafe { memmap2::Mmap::map(&file) }.map_err(CliError::file("map", path))?;
    let object = elf::ElfBytes::<elf::endian::LittleEndian>::minimal_parse(&bytes).ok();
    let segments = object.filter(|o| o.ehdr.e_machine == EM_X86_64).and_then(|o| o.segments());
    let loads: Vec<_> = segments.into_iter().flatten().filter(|s| s.p_type == PT_LOAD).collect();
    let range = |at: u64, len: u64| (at as usize & !(PAGE - 1), (at + len) as usize);
    let end = loads.iter().map(|s| range(s.p_vaddr, s.p_filesz).1).max().ok_or_else(|| no_object(path))?;
    let map_code = |at, len, offset, prot, flags| {
        map_code(at, len, offset, prot, flags, &file).map_err(CliError::file("map", path))
    };
    let base = map_code(0, end, 0, libc::PROT_NONE, 0)?;
    let mut code = 0;
    for segment in loads {
        let executable = segment.p_flags & PF_X != 0;
        let prot = libc::PROT_READ | if executable { libc::PROT_EXEC } else { 0 };
        let (start, end) = range(segment.p_vaddr, segment.p_filesz);
        map_code(base + start, end - start, segment.p_offset as usize & !(PAGE - 1), prot, libc::MAP_FIXED)?;
        code += if executable { segment.p_filesz as usize } else { 0 };
    }
    Ok(code)
}

const PAGE: usize = 4096;

fn map_code(
    at: usize,
    len: usize,
    offset: usize,
    prot: i32,
    flags: i32,
    file: &std::fs::File,
) -> std::io::Result<usize> {
    let flags = flags | libc::MAP_PRIVATE | if prot == libc::PROT_NONE { 0 } else { libc::MAP_POPULATE };
    // SAFETY: new addresses, or such as have been reserved for the file; nobody executes what is there.
    let at = unsafe { libc::mmap(at as *mut _, len, prot, flags, file.as_raw_fd(), offset as libc::off_t) };
    if at == libc::MAP_FAILED { Err(std::io::Error::last_os_error()) } else { Ok(at as usize) }
}

fn look(path: PathBuf) -> Result<Row, CliError> {
    match code::examine(&path) {
        Ok(seen) => Ok(row(path, seen)),
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
