//! Where things lie: the shim beside the command, records and the cost model in the user's directories.

use crate::error::CliError;
use directories::ProjectDirs;
use std::path::PathBuf;

const SHIM: &str = "libflashfork_preload.so";

/// The shim: beside the executable as cargo builds it, or where `make install` puts it.
pub fn shim() -> Result<PathBuf, CliError> {
    let dir = directory()?;
    let places = [dir.join(SHIM), dir.join("../lib/flashfork").join(SHIM)];
    let Some(shim) = places.iter().find(|p| p.is_file()).and_then(|p| p.canonicalize().ok()) else {
        return Err(CliError::Unable(format!(
            "{SHIM} is neither in {} nor in ../lib/flashfork beside it; build it with `cargo build --release -p flashfork-preload` or install with `make install`",
            dir.display()
        )));
    };
    // The loader takes both as separators of LD_PRELOAD (ld.so(8)).
    if shim.as_os_str().as_encoded_bytes().iter().any(|b| b" :".contains(b)) {
        return Err(CliError::Unable(format!(
            "{} can't be preloaded from a path with a blank or colon; install it elsewhere",
            shim.display()
        )));
    }
    Ok(shim)
}

/// A program of the VM monitor: beside this one, or where `make install` puts it.
pub fn monitor(name: &str) -> Result<PathBuf, CliError> {
    let dir = directory()?;
    let places = [dir.join(name), dir.join("../lib/flashfork").join(name)];
    places.iter().find(|path| path.is_file()).cloned().ok_or_else(|| {
        CliError::Unable(format!(
            "{name} is neither in {} nor in ../lib/flashfork beside it; build it with `cargo build --release -p flashfork-vmm` or install with `make install`",
            dir.display()
        ))
    })
}

/// The guest agent, should it be there. What cargo puts beside this program is not static, and starts in no guest.
pub fn agent() -> Result<PathBuf, CliError> {
    Ok(directory()?.join("../lib/flashfork/flashfork-agent"))
}

/// Of this executable.
fn directory() -> Result<PathBuf, CliError> {
    let exe = std::env::current_exe().map_err(CliError::file("find", "the flashfork executable"))?;
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
