//! Runs a seed: a process on plain memory, then one with the engine, each started afresh, with a limit of time.

use crate::{
	mode::{Allocator, Mode, name},
	rollback::TURNS,
	seeds::Seed,
	template,
};
use flashfork_tests::{Result, own_code::TRUST, past, route::Route, within::within};
use std::{
	ffi::OsString,
	fmt,
	fs::File,
	os::unix::process::CommandExt,
	path::{Path, PathBuf},
	process::{Command, Stdio},
	time::{Duration, Instant},
};

/// What a run that went well did.
pub struct Report {
	processes: usize,
	calls: usize,
	/// The route to the engine, and what it counted: pages sealed, or page tables shared.
	pub engine: Option<(Route, usize)>,
	took: Duration,
}

impl fmt::Display for Report {
	fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
		write!(f, "{} calls in {} processes", self.calls, self.processes)?;
		match self.engine {
			Some((Route::Odf, tables)) => write!(f, ", {tables} page tables shared")?,
			Some((_, pages)) => write!(f, ", up to {pages} pages sealed")?,
			None => {}
		}
		write!(f, ", {:.1} s", self.took.as_secs_f64())
	}
}

/// Runs one seed; `engine` is the route to the engine, or `None` to stop after the run on plain memory. `disk` is
/// overwritten with the template's contents where the seed has direct reads; a file takes its place.
pub fn run(seed: &Seed, engine: Option<Route>, disk: Option<&Path>, shim: impl FnOnce() -> PathBuf) -> Result<Report> {
	let start = Instant::now();
	let dir =
		tempfile::Builder::new().prefix("flashfork-model-").tempdir().map_err(|e| format!("no directory: {e}"))?;
	let result = company(seed, disk, dir.path()).and_then(|company| {
		let run = Run { seed, dir: dir.path(), company };
		run.both(engine, shim)
	});
	match result {
		Ok(counted) => {
			let (processes, calls) = count(&dir.path().join("plain"))?;
			Ok(Report { processes, calls, engine: engine.zip(counted), took: start.elapsed() })
		}
		Err(message) => {
			let kept = dir.keep();
			Err(format!(
				"seed {} failed: {message}\n  journals: {}\n  again: cargo run -p flashfork-tests --bin model -- \
				 --no-replay --seed {} --steps {} --mode {} --allocator {} {}",
				seed.seed,
				kept.display(),
				seed.seed,
				seed.steps,
				name(seed.mode),
				name(seed.allocator),
				match seed.route {
					Route::Odf => "--engine odf".to_string(),
					route => format!("--route {}", format!("{route:?}").to_lowercase()),
				},
			))
		}
	}
}

/// The disk that others read from, when others act on the memory of this seed.
fn company(seed: &Seed, disk: Option<&Path>, dir: &Path) -> Result<Option<PathBuf>> {
	if seed.route != Route::Odf {
		return Ok(None);
	}
	let disk = disk.map_or_else(|| dir.join("disk"), Path::to_path_buf);
	let written = || {
		let mut file = File::options().write(true).create(true).truncate(false).open(&disk)?;
		template::write(&mut file)?;
		file.sync_all()
	};
	written().map_err(|e| format!("{}: {e}", disk.display()))?;
	Ok(Some(disk))
}

struct Run<'a> {
	seed: &'a Seed,
	dir: &'a Path,
	company: Option<PathBuf>,
}

impl Run<'_> {
	/// On plain memory, then with the engine; what the engine counted.
	fn both(&self, engine: Option<Route>, shim: impl FnOnce() -> PathBuf) -> Result<Option<usize>> {
		let plain = self.dir.join("plain");
		if matches!(self.seed.mode, Mode::PastShim | Mode::Raw | Mode::Flags) {
			past::build(self.dir)?;
		}
		// Between a snapshot and its restores all turns are one process's; plainly each is taken by one that begins
		// anew.
		for turn in 0..if self.seed.mode == Mode::Rollback { TURNS } else { 1 } {
			self.tested(Route::Plain, &plain, None, None, &["--turn", &turn.to_string()])?;
		}
		let Some(route) = engine else { return Ok(None) };
		let shim = (route == Route::Shim).then(shim);
		let counted = self.tested(route, &self.dir.join("engine"), Some(&plain), shim.as_deref(), &[])?;
		// Beside the shim's engine nothing is copied back.
		if self.seed.mode == Mode::Rollback && route == Route::Linked {
			let own = self.dir.join("engine-that-copies");
			self.tested(route, &own, Some(&plain), shim.as_deref(), &["--copies"])
				.map_err(|e| format!("copying back: {e}"))?;
		}
		Ok(Some(counted))
	}

	fn tested(
		&self,
		route: Route,
		own: &Path,
		plain: Option<&Path>,
		shim: Option<&Path>,
		more: &[&str],
	) -> Result<usize> {
		let Seed { seed, steps, mode, allocator, .. } = self.seed;
		std::fs::create_dir_all(own).map_err(|e| format!("{}: {e}", own.display()))?;
		let program = std::env::current_exe().map_err(|e| format!("the path of the running program: {e}"))?;
		let mut command = Command::new(program);
		command.args(["--seed", &seed.to_string(), "--steps", &steps.to_string()]);
		command.args(["--route", &format!("{route:?}").to_lowercase()]).arg("--worker").arg(own);
		command.args(["--mode", &name(*mode), "--allocator", &name(*allocator)]).args(more);
		command.arg("--objects").arg(self.dir);
		if let Some(plain) = plain {
			command.arg("--plain").arg(plain);
		}
		if let Some(disk) = &self.company {
			command.arg("--company").arg(disk);
		}
		let libraries = allocator.library().map(OsString::from).into_iter().chain(shim.map(OsString::from));
		let preload: Vec<OsString> = libraries.collect();
		if !preload.is_empty() {
			command.env("LD_PRELOAD", preload.join(":".as_ref())).env(TRUST.0, TRUST.1);
		}
		if seed.is_multiple_of(2) {
			command.envs(purges_at_once(*allocator).iter().copied());
		}
		if shim.is_some() {
			// Both policies: seal before the first fork, or when it pays.
			command.env("FLASHFORK_ENGINE", if seed.is_multiple_of(2) { "seal" } else { "auto" });
			command.env("FLASHFORK_THREADS", if self.seed.stops_threads() { "stop" } else { "refuse" });
		}
		command.stdin(Stdio::null());
		// SAFETY: one system call between fork and exec. Where it is refused addresses differ between runs, no more.
		unsafe {
			command.pre_exec(|| {
				libc::personality(libc::ADDR_NO_RANDOMIZE as libc::c_ulong);
				Ok(())
			});
		}
		// Far more than any takes, on a machine that is busy with other things too.
		let limit = Duration::from_secs(300) + Duration::from_secs(1) * *steps as u32;
		let output = within(limit, &mut command).map_err(|e| format!("{route:?}: {e}"))?;
		eprint!("{}", String::from_utf8_lossy(&output.stderr));
		if !output.status.success() {
			return Err(format!("{route:?}: {}", output.status));
		}
		let output = String::from_utf8_lossy(&output.stdout);
		output.trim().parse().map_err(|_| format!("{route:?}: unexpected output {output:?}"))
	}
}

/// What makes an allocator give back what is freed without waiting for a time.
fn purges_at_once(allocator: Allocator) -> &'static [(&'static str, &'static str)] {
	match allocator {
		Allocator::Glibc => &[],
		Allocator::Jemalloc => &[("MALLOC_CONF", "dirty_decay_ms:0,muzzy_decay_ms:0")],
		Allocator::Mimalloc => &[("MIMALLOC_DECOMMIT_DELAY", "0"), ("MIMALLOC_PAGE_RESET", "1")],
		Allocator::Tcmalloc => &[("TCMALLOC_RELEASE_RATE", "1000")],
	}
}

fn count(journals: &Path) -> Result<(usize, usize)> {
	let mut calls = 0;
	let mut processes = 0;
	for entry in std::fs::read_dir(journals).map_err(|e| format!("{}: {e}", journals.display()))? {
		let path = entry.map_err(|e| e.to_string())?.path();
		calls += std::fs::read_to_string(&path).map_err(|e| format!("{}: {e}", path.display()))?.lines().count();
		processes += 1;
	}
	Ok((processes, calls))
}
