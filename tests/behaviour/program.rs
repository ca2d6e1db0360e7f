//! One C program: found, compiled, run.

use crate::rows;
use flashfork_core::{
	never_seal::{Reason, Row},
	stats::Stats,
};
use flashfork_tests::{shim, within::within};
use libtest_mimic::{Completion, Failed, Trial};
use std::{
	collections::HashSet,
	mem::{offset_of, size_of},
	os::unix::process::ExitStatusExt,
	path::{Path, PathBuf},
	process::{Command, Stdio},
	time::Duration,
};

/// What a program says when its behaviour can't be shown on this machine.
const SKIPPED: i32 = 77;
/// Far more than any of them takes.
const TIMEOUT: Duration = Duration::from_secs(300);

/// A program of `never_seal/`, `traps/`, `fork_safety/` or `odf/`.
pub struct Program {
	directory: &'static str,
	/// File name without `.c`; for a row of the table, the row's name.
	pub name: String,
	source: PathBuf,
}

pub fn here() -> PathBuf {
	Path::new(env!("CARGO_MANIFEST_DIR")).join("behaviour")
}

/// Every program, in order of name.
pub fn all() -> Vec<Program> {
	["never_seal", "traps", "fork_safety", "odf"].into_iter().flat_map(programs_of).collect()
}

/// In the lab all lie in one directory.
pub fn every_name_is_one_program() -> Result<(), Failed> {
	let mut names = HashSet::new();
	match all().into_iter().find(|program| !names.insert(program.name.clone())) {
		Some(program) => {
			Err(format!("{}/{}.c: another directory has a program of that name", program.directory, program.name)
				.into())
		}
		None => Ok(()),
	}
}

pub fn programs_of(directory: &'static str) -> Vec<Program> {
	let entries = std::fs::read_dir(here().join(directory)).expect("the directory of programs");
	let sources = entries.map(|e| e.expect("an entry").path()).filter(|p| p.extension().is_some_and(|e| e == "c"));
	let mut all: Vec<_> = sources
		.map(|source| Program {
			directory,
			name: source.file_stem().expect("a name").to_string_lossy().into_owned(),
			source,
		})
		.collect();
	all.sort_by(|a, b| a.name.cmp(&b.name));
	all
}

impl Program {
	pub fn trial(self) -> Trial {
		Trial::ignorable_test(format!("{}/{}", self.directory, self.name), move || self.run())
	}

	/// The comment at the head of the source, without its marks.
	pub fn comment(&self) -> String {
		let source = std::fs::read_to_string(&self.source).expect("the source is readable");
		let comment = source.strip_prefix("/*").and_then(|s| s.split_once("*/")).expect("a comment at the head").0;
		comment.trim().to_string()
	}

	/// The rest of a line `key: ...` in the head comment: `cflags`, `compiler`, `env` or `preload`.
	pub fn directive(&self, key: &str) -> Option<String> {
		let comment = self.comment();
		comment.lines().find_map(|l| l.trim().strip_prefix(key)?.strip_prefix(": ").map(str::to_string))
	}

	/// The C compiler: `CC`, or `cc`.
	pub fn compiler() -> Command {
		Command::new(std::env::var_os("CC").unwrap_or_else(|| "cc".into()))
	}

	pub fn own_compiler(&self) -> Option<String> {
		self.directive("compiler")
	}

	/// Compiles it into a directory of that name; returns the program's path.
	pub fn compile(&self, place: &str) -> Result<PathBuf, Failed> {
		let out = Path::new(env!("CARGO_TARGET_TMPDIR")).join("behaviour").join(place);
		std::fs::create_dir_all(&out)?;
		let out = out.join(&self.name);
		let mut compile = self.own_compiler().map_or_else(Self::compiler, Command::new);
		compile.args(["-Wall", "-Wextra", "-O1", "-pthread", "-include"]).arg(here().join("behaviour.h"));
		compile.args(self.directive("cflags").iter().flat_map(|flags| flags.split_whitespace()));
		let output = compile.arg("-o").arg(&out).arg(&self.source).output();
		let output = output.map_err(|e| format!("the C compiler doesn't run: {e}"))?;
		if !output.status.success() || !output.stderr.is_empty() {
			return Err(format!("the C compiler says:\n{}", String::from_utf8_lossy(&output.stderr)).into());
		}
		Ok(out)
	}

	fn run(&self) -> Result<Completion, Failed> {
		if let Some(compiler) = self.own_compiler()
			&& Command::new(&compiler).arg("--version").output().is_err()
		{
			return Ok(Completion::ignored_with(format!("{compiler} is not installed")));
		}
		let exe = self.compile(self.directory)?;
		let place = tempfile::tempdir()?;
		let stats = place.path().join("stats");
		std::fs::write(&stats, fresh_stats())?;
		let mut preload = self.directive("preload").map_or(String::new(), |first| first + ":");
		preload += shim::path().to_str().ok_or("the path of the shim")?;
		let mut command = Command::new(exe);
		command.current_dir(&place).env("LD_PRELOAD", preload).env("FLASHFORK_STATS", &stats);
		// Seals are made where the program says so, and nowhere else.
		command.env("FLASHFORK_ENGINE", "fork");
		command.envs(self.directive("env").as_ref().and_then(|e| e.split_once('=')));
		command.stdin(Stdio::null());
		let output = within(TIMEOUT, &mut command)?;
		let said = String::from_utf8_lossy(&output.stderr).trim().to_string();
		match (output.status.code(), output.status.signal()) {
			(Some(0), _) => self.check_reason(&std::fs::read(&stats)?),
			(Some(SKIPPED), _) => Ok(Completion::ignored_with(said)),
			(Some(code), _) => Err(format!("exit {code}\n{said}").into()),
			(None, signal) => Err(format!("signal {signal:?}\n{said}").into()),
		}
	}

	/// A row's program must have met the row's own reason, not another one.
	fn check_reason(&self, stats: &[u8]) -> Result<Completion, Failed> {
		if let Some(row) = rows::row(&self.name).filter(|_| self.directory == "never_seal")
			&& !rows::also_known_as(row).iter().any(|reason| count(stats, *reason) > 0)
		{
			return Err(format!("something else than `{}` kept it from being sealed: {}", row.name, seen(stats)).into());
		}
		Ok(Completion::Completed)
	}
}

fn fresh_stats() -> Vec<u8> {
	let mut bytes = vec![0; size_of::<Stats>()];
	let magic = offset_of!(Stats, magic);
	bytes[magic..magic + 8].copy_from_slice(&Stats::MAGIC.to_ne_bytes());
	bytes
}

fn count(stats: &[u8], reason: Reason) -> u64 {
	let at = offset_of!(Stats, refused) + 8 * reason as usize;
	u64::from_ne_bytes(stats[at..at + 8].try_into().expect("8 bytes"))
}

fn seen(stats: &[u8]) -> String {
	let table = flashfork_core::never_seal::TABLE;
	let named = |row: &Row| format!("{} {}", row.name, count(stats, row.reason));
	table.iter().filter(|row| count(stats, row.reason) > 0).map(named).collect::<Vec<_>>().join(", ")
}
