//! What is installed with this program.

use flashfork_measure::{BenchError, Places, Result};
use flashfork_terminal::{CliError, places};
use std::path::PathBuf;

/// Where `make install`, or cargo, puts things.
pub struct Installed;

impl Places for Installed {
	fn command(&self) -> Result<PathBuf> {
		places::command().map_err(unable)
	}

	fn shim(&self) -> Result<PathBuf> {
		places::shim().map_err(unable)
	}

	fn shell(&self) -> Result<PathBuf> {
		places::monitor("flashfork-shell").map_err(unable)
	}

	fn agent(&self) -> Result<PathBuf> {
		places::agent().map_err(unable)
	}

	fn cache(&self, name: &str) -> Result<PathBuf> {
		places::cache(name).map_err(unable)
	}
}

fn unable(error: CliError) -> BenchError {
	BenchError::Unable(error.to_string())
}
