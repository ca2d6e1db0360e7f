//! `flashfork scan`: what a seal would find in the code of files and processes.

use clap::Args;
use flashfork::code::{self, Examined, Verdict};
use flashfork_core::code::Call;
use flashfork_terminal::{CliError, output::say, progress};
use serde::Serialize;
use std::{
	os::fd::AsRawFd,
	path::{Path, PathBuf},
	process::ExitCode,
	time::Duration,
};

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

/// How often each look is timed: single ones are no figures.
const ROUNDS: usize = 15;

/// Says how long the look takes in this process: in turn when it has the first of the files mapped, and all of them.
fn time(paths: &[PathBuf]) -> Result<ExitCode, CliError> {
	let mut sets = vec![(&paths[..1], Looks::default())];
	if paths.len() > 1 {
		sets.push((paths, Looks::default()));
	}
	for _ in 0..ROUNDS {
		for (paths, looks) in &mut sets {
			looks.take(paths)?;
		}
	}
	for (paths, looks) in &mut sets {
		looks.say(paths.len())?;
	}
	Ok(ExitCode::SUCCESS)
}

/// What looks took in a process with some files. All but the first look are at the whole process, which has files of
/// its own.
#[derive(Default)]
struct Looks {
	/// Bytes of code.
	bytes: usize,
	/// All the files are new: what that takes more than the next look.
	first: Vec<Duration>,
	/// All are known, and nothing has been mapped since.
	known: Vec<Duration>,
	/// One that is known has been mapped once more.
	mapped: Vec<Duration>,
}

impl Looks {
	fn take(&mut self, paths: &[PathBuf]) -> Result<(), CliError> {
		code::forget();
		code::time()?;
		let files = paths.iter().map(|path| map(path)).collect::<Result<Vec<_>, _>>()?;
		self.bytes = files.iter().map(|file| file.code).sum();
		let first = code::time()?;
		let known = code::time()?;
		self.first.push(first.saturating_sub(known));
		self.known.push(known);
		let once_more = map(&paths[0])?;
		self.mapped.push(code::time()?);
		drop((once_more, files));
		Ok(())
	}

	fn say(&mut self, files: usize) -> Result<(), CliError> {
		let megabytes = self.bytes as f64 / 1e6;
		let plural = if files == 1 { "" } else { "s" };
		say(&format!("{files} file{plural}, {megabytes:.1} MB of code (medians of {ROUNDS}; lowest and highest)"))?;
		let first = said(&mut self.first);
		let each = self.first[ROUNDS / 2].as_secs_f64() * 1e5 / megabytes;
		say(&format!("  first sight: {first}; {each:.1} ms for 100 MB"))?;
		say(&format!("  every file known: {}", said(&mut self.known)))?;
		say(&format!("  one that is known mapped once more: {}", said(&mut self.mapped)))
	}
}

/// Median, lowest and highest of some times, which it sorts.
fn said(times: &mut [Duration]) -> String {
	times.sort_unstable();
	format!("{:.1?} ({:.1?} to {:.1?})", times[times.len() / 2], times[0], times[times.len() - 1])
}

/// A file mapped as the loader does it.
struct Mapped {
	base: usize,
	len: usize,
	/// Bytes of code.
	code: usize,
}

impl Drop for Mapped {
	fn drop(&mut self) {
		// SAFETY: our own mapping, which nobody refers to. A failure would leave it there, no more.
		unsafe { libc::munmap(self.base as *mut _, self.len) };
	}
}

/// Maps a file. Its code is in memory then: reading it from a disk is not what is measured.
fn map(path: &Path) -> Result<Mapped, CliError> {
	use elf::abi::{EM_X86_64, PF_X, PT_LOAD};
	let file = std::fs::File::open(path).map_err(CliError::file("read", path))?;
	// SAFETY: nothing is made of the bytes but what the headers say.
	let bytes = unsafe { memmap2::Mmap::map(&file) }.map_err(CliError::file("map", path))?;
	let object = elf::ElfBytes::<elf::endian::LittleEndian>::minimal_parse(&bytes).ok();
	let segments = object.filter(|o| o.ehdr.e_machine == EM_X86_64).and_then(|o| o.segments());
	let loads: Vec<_> = segments.into_iter().flatten().filter(|s| s.p_type == PT_LOAD).collect();
	let range = |at: u64, len: u64| (at as usize & !(PAGE - 1), (at + len) as usize);
	let len = loads.iter().map(|s| range(s.p_vaddr, s.p_filesz).1).max().ok_or_else(|| no_object(path))?;
	let map_code = |at, len, offset, prot, flags| {
		map_code(at, len, offset, prot, flags, &file).map_err(CliError::file("map", path))
	};
	let mut mapped = Mapped { base: map_code(0, len, 0, libc::PROT_NONE, 0)?, len, code: 0 };
	for segment in loads {
		let executable = segment.p_flags & PF_X != 0;
		let prot = libc::PROT_READ | if executable { libc::PROT_EXEC } else { 0 };
		let (start, end) = range(segment.p_vaddr, segment.p_filesz);
		let offset = segment.p_offset as usize & !(PAGE - 1);
		map_code(mapped.base + start, end - start, offset, prot, libc::MAP_FIXED)?;
		mapped.code += if executable { segment.p_filesz as usize } else { 0 };
	}
	Ok(mapped)
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
