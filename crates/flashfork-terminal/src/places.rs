//! Where things lie: what is installed together, records and the cost model in the user's directories.

use crate::error::CliError;
use directories::ProjectDirs;
use std::path::PathBuf;

const SHIM: &str = "libflashfork_preload.so";

/// The shim: a dynamic library beside the programs.
pub fn shim() -> Result<PathBuf, CliError> {
	let shim = find(SHIM, "flashfork-preload")?;
	let shim = shim.canonicalize().map_err(CliError::file("find", shim))?;
	// The loader separates by the first two, and replaces $ORIGIN (ld.so(8)).
	if shim.as_os_str().as_encoded_bytes().iter().any(|b| b" :$".contains(b)) {
		return Err(CliError::Unable(format!(
			"{} can't be preloaded from a path with a blank, colon or $; install it elsewhere",
			shim.display()
		)));
	}
	Ok(shim)
}

/// The command.
pub fn command() -> Result<PathBuf, CliError> {
	find("flashfork", "flashfork-launcher")
}

/// The program of `flashfork bench`.
pub fn bench() -> Result<PathBuf, CliError> {
	find("flashfork-bench", "flashfork-bench")
}

/// The program of `flashfork serve`.
pub fn serve() -> Result<PathBuf, CliError> {
	find("flashfork-serve", "flashfork-serve")
}

/// A program of the VM monitor.
pub fn monitor(name: &str) -> Result<PathBuf, CliError> {
	find(name, "flashfork-vmm")
}

/// Where the user's VM daemon listens.
pub fn vm_socket() -> PathBuf {
	// SAFETY: asks for a number, which there always is.
	let user = unsafe { libc::geteuid() };
	match std::env::var_os("XDG_RUNTIME_DIR").map(PathBuf::from) {
		Some(dir) if user != 0 && dir.is_absolute() => dir.join("flashfork/vmd.sock"),
		_ if user == 0 => "/run/flashfork/vmd.sock".into(),
		_ => format!("/tmp/flashfork-{user}/vmd.sock").into(),
	}
}

/// The guest agent, should it be there. What cargo puts beside the programs is not static, and starts in no guest.
pub fn agent() -> Result<PathBuf, CliError> {
	let directory = directory()?;
	let places = ["../lib/flashfork", "../../lib/flashfork"].map(|place| directory.join(place).join("flashfork-agent"));
	let found = places.iter().position(|path| path.is_file()).unwrap_or(0);
	Ok(places[found].clone())
}

/// What is installed as `name`, and built by the package `package`: beside this executable as cargo builds it, in
/// lib/flashfork or in bin, as `make install` puts it.
fn find(name: &str, package: &str) -> Result<PathBuf, CliError> {
	let directory = directory()?;
	let places = ["", "../lib/flashfork", "../../bin"].map(|place| directory.join(place).join(name));
	places.into_iter().find(|path| path.is_file()).ok_or_else(|| {
		CliError::Unable(format!(
			"{name} is neither in {} nor where `make install` puts it (Python's wheel doesn't have it); in flashfork's sources \
			 build it with `cargo build --release -p {package}` or install with `make install`",
			directory.display()
		))
	})
}

fn directory() -> Result<PathBuf, CliError> {
	let exe = std::env::current_exe().map_err(CliError::file("find", "the executable that is running"))?;
	Ok(exe.parent().unwrap_or_else(|| std::path::Path::new("/")).to_owned())
}

fn dirs() -> Result<ProjectDirs, CliError> {
	ProjectDirs::from("", "", "flashfork")
		.ok_or_else(|| CliError::Unable("no home directory: set HOME to say where records and caches go".into()))
}

/// The file in which the cost model of this host is kept.
pub fn cost_model() -> Result<PathBuf, CliError> {
	Ok(dirs()?.cache_dir().join("cost-model.json"))
}

/// Where records go unless the caller names a file: one file an experiment and second.
pub fn records(experiment: &str) -> Result<PathBuf, CliError> {
	let dirs = dirs()?;
	let dir = dirs.state_dir().unwrap_or_else(|| dirs.data_dir());
	let seconds = std::time::UNIX_EPOCH.elapsed().map_or(0, |d| d.as_secs());
	Ok(dir.join(format!("bench-{experiment}-{seconds}.json")))
}

/// A directory for what can be made or downloaded again.
pub fn cache(name: &str) -> Result<PathBuf, CliError> {
	Ok(dirs()?.cache_dir().join(name))
}
