//! Templates that the command `flashfork warm` makes.

use super::{command::last_line, guard::Guard};
use crate::prelude::*;

pub struct Template {
	/// Its process.
	pub pid: u32,
	/// Bytes of its memory that are sealed.
	pub sealed: u64,
}

/// Runs `warm`, a `flashfork warm` of the template `name`; or says why there is none of it. `list`: `flashfork`, to be
/// asked for what there is then.
pub fn warm(mut warm: Command, mut list: Command, name: &str, guard: &mut Guard) -> Result<Result<Template, String>> {
	let failed = |error| BenchError::system("start flashfork warm", error);
	// The template keeps no output of the experiment open.
	let warmed = warm.output().map_err(failed)?;
	if !warmed.status.success() {
		return Ok(Err(last_line(&warmed.stderr, "flashfork warm failed")));
	}
	let list = list.args(["ls", "--json"]).output().map_err(failed)?;
	let list: Value = serde_json::from_slice(&list.stdout).unwrap_or_default();
	let found = list.as_array().and_then(|all| all.iter().find(|one| one["name"] == name));
	let number = |key: &str| found.and_then(|one| one[key].as_u64());
	let pid = number("pid").and_then(|pid| u32::try_from(pid).ok());
	let (Some(pid), Some(sealed)) = (pid, number("sealed_bytes")) else {
		return Err(unable!("flashfork ls doesn't know the template {name}"));
	};
	guard.watch(pid)?;
	Ok(Ok(Template { pid, sealed }))
}
