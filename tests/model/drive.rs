//! Runs a seed: a process on plain memory, then one with the engine, each started afresh, with a limit of time.

use crate::seeds::Seed;
use flashfork_tests::route::Route;
use std::fmt;
use std::io::Read;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// What a run that went well did.
pub struct Report {
    processes: usize,
    calls: usize,
    most_sealed: Option<usize>,
    took: Duration,
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} calls in {} processes", self.calls, self.processes)?;
        if let Some(pages) = self.most_sealed {
            write!(f, ", up to {} MB sealed", pages / 256)?;
        }
        write!(f, ", {:.1} s", self.took.as_secs_f64())
    }
}

/// Runs one seed; `engine` is the route to the engine, or `None` to stop after the run on plain memory.
pub fn run(seed: &Seed, engine: Option<Route>, shim: impl FnOnce() -> PathBuf) -> Result<Report, String> {
    let start = Instant::now();
    let dir =
        tempfile::Builder::new().prefix("flashfork-model-").tempdir().map_err(|e| format!("no directory: {e}"))?;
    let result = both(seed, engine, shim, dir.path());
    match result {
        Ok(most_sealed) => {
            let (processes, calls) = count(&dir.path().join("plain"))?;
            Ok(Report { processes, calls, most_sealed, took: start.elapsed() })
        }
        Err(message) => {
            let kept = dir.keep();
            Err(format!(
                "seed {} failed: {message}\n  journals: {}\n  again: cargo run -p flashfork-tests --bin model -- \
                 --no-replay --seed {} --steps {} --route {}",
                seed.seed,
                kept.display(),
                seed.seed,
                seed.steps,
                format!("{:?}", seed.route).to_lowercase(),
            ))
        }
    }
}

fn both(
    seed: &Seed,
    engine: Option<Route>,
    shim: impl FnOnce() -> PathBuf,
    dir: &Path,
) -> Result<Option<usize>, String> {
    let plain = dir.join("plain");
    tested(seed, Route::Plain, &plain, None, None)?;
    let Some(route) = engine else { return Ok(None) };
    let shim = (route == Route::Shim).then(shim);
    let most_sealed = tested(seed, route, &dir.join("engine"), Some(&plain), shim.as_deref())?;
    if most_sealed == 0 {
        return Err("nothing was ever sealed".into());
    }
    Ok(Some(most_sealed))
}

/// Runs one tested process to its end; returns the most pages it found sealed.
fn tested(seed: &Seed, route: Route, own: &Path, plain: Option<&Path>, shim: Option<&Path>) -> Result<usize, String> {
    std::fs::create_dir_all(own).map_err(|e| format!("{}: {e}", own.display()))?;
    let program = std::env::current_exe().map_err(|e| format!("the path of the running program: {e}"))?;
    let mut command = Command::new(program);
    command.args(["--seed", &seed.seed.to_string(), "--steps", &seed.steps.to_string()]);
    command.args(["--route", &format!("{route:?}").to_lowercase()]).arg("--worker").arg(own);
    if let Some(plain) = plain {
        command.arg("--plain").arg(plain);
    }
    if let Some(shim) = shim {
        command.env("LD_PRELOAD", shim);
        // Both policies: seal before the first fork, or when it pays.
        command.env("FLASHFORK_ENGINE", if seed.seed.is_multiple_of(2) { "seal" } else { "auto" });
    }
    command.stdin(Stdio::null()).stdout(Stdio::piped()).process_group(0);
    // SAFETY: one system call between fork and exec. Where it is refused addresses differ between runs, no more.
    unsafe {
        command.pre_exec(|| {
            libc::personality(libc::ADDR_NO_RANDOMIZE as libc::c_ulong);
            Ok(())
        });
    }
    let child = command.spawn().map_err(|e| format!("the tested process does not start: {e}"))?;
    let limit = Duration::from_secs(60) + Duration::from_millis(100) * seed.steps as u32;
    let output = finish(child, limit).map_err(|e| format!("{route:?}: {e}"))?;
    output.trim().parse().map_err(|_| format!("{route:?}: unexpected output {output:?}"))
}

/// Waits for a process with a group of its own; ends the group when it takes too long.
fn finish(mut child: Child, limit: Duration) -> Result<String, String> {
    let deadline = Instant::now() + limit;
    let status = loop {
        if let Some(status) = child.try_wait().map_err(|e| format!("wait: {e}"))? {
            break status;
        }
        if Instant::now() > deadline {
            // SAFETY: the group is the child's own, made by us, and the child is not reaped yet.
            unsafe { libc::kill(-(child.id() as i32), libc::SIGKILL) };
            let _ = child.wait();
            return Err(format!("not done after {} s", limit.as_secs()));
        }
        std::thread::sleep(Duration::from_millis(5));
    };
    let mut output = String::new();
    if let Some(mut pipe) = child.stdout.take() {
        pipe.read_to_string(&mut output).map_err(|e| format!("output: {e}"))?;
    }
    if status.success() { Ok(output) } else { Err(format!("{status}")) }
}

fn count(journals: &Path) -> Result<(usize, usize), String> {
    let mut calls = 0;
    let mut processes = 0;
    for entry in std::fs::read_dir(journals).map_err(|e| format!("{}: {e}", journals.display()))? {
        let path = entry.map_err(|e| e.to_string())?.path();
        calls += std::fs::read_to_string(&path).map_err(|e| format!("{}: {e}", path.display()))?.lines().count();
        processes += 1;
    }
    Ok((processes, calls))
}
