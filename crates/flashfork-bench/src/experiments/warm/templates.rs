//! The templates of the experiment.

use super::{command::Runs, program::Program};
use crate::{
	prelude::*,
	subjects::{
		guard::Guard,
		template::{self, Template},
	},
};

/// Warms a program; or says why there is no template of it.
pub fn warm(runs: &Runs, program: Program, guard: &mut Guard) -> Result<Result<Template, String>> {
	let mut warm = runs.flashfork();
	warm.args(["warm", program.as_ref(), "--"]).args(program.warmed());
	template::warm(warm, runs.flashfork(), program.as_ref(), guard)
}

/// Page faults of a template's clones that have ended.
pub fn faults_of_clones(template: &Template) -> Result<f64> {
	let path = format!("/proc/{}/stat", template.pid);
	let text = std::fs::read_to_string(&path).or_cant(format_args!("read {path}"))?;
	faults(&text).ok_or_else(|| unable!("{path} has no faults of children"))
}

/// `cminflt` of `/proc/PID/stat` (proc(5)): the eleventh field; the second may hold blanks, and ends with a
/// parenthesis.
fn faults(stat: &str) -> Option<f64> {
	stat.rsplit_once(") ")?.1.split(' ').nth(8)?.parse().ok()
}

/// Whether a program is there, by running it as the experiment will: the reason if not.
pub fn lacks(runs: &Runs, program: Program) -> Option<String> {
	let error = runs.once(super::command::Way::Cold).err()?;
	let packages = program.packages();
	Some(format!("it can't be run ({error}); Debian has it in {packages}"))
}

#[cfg(test)]
mod tests {
	use super::*;

	#[test]
	fn faults_are_found_behind_any_name() {
		let stat = "77 (a) b (c) S 1 77 77 0 -1 4194560 120 3456 7 8 1 2 3 4 20 0 1 0 99 1 2";
		assert_eq!(faults(stat), Some(3456.0));
		assert_eq!(faults("77 (a) S 1"), None);
	}
}
