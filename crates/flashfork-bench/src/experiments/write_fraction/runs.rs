//! The runs: two looks each, what changed between them.

use flashfork_advise::look::{Change, GRANULES, look, second_look, visit};

use super::{
	Ready, WriteFractionOptions,
	program::{Program, name},
};
use crate::{advised::failed, prelude::*};

pub fn measure(options: &WriteFractionOptions, run: &mut Run) -> Result {
	if let Some(pid) = options.pid {
		run.begin(&format!("process {pid}: {} s", options.during), 1);
		let during = Duration::from_secs_f64(options.during);
		let change = visit(pid, during, &|| run.interrupted()).map_err(failed)?;
		run.step();
		return keep(&format!("pid {pid}"), &[change], run);
	}
	if !options.command.is_empty() {
		let start = || Program::command(&options.command, options.after, options.during);
		return program(options.runs, start, run);
	}
	for ready in each_once(options.ready.as_deref().unwrap_or(Ready::VARIANTS).iter().copied()) {
		run.go_on()?;
		if run.no_time_for(name(ready)) {
			continue;
		}
		match program(options.runs, || Program::ready(ready), run) {
			Ok(()) => {}
			// One that isn't installed, or fails, doesn't keep the others from being measured.
			Err(BenchError::System { what, source }) if source.kind() == std::io::ErrorKind::NotFound => {
				run.leave_out(name(ready), format!("can't {what}: it is not installed"));
			}
			Err(error) => run.leave_out(name(ready), error.to_string()),
		}
	}
	Ok(())
}

/// Two looks in each run of a program. Of runs that fail, those before are kept.
fn program(runs: u32, start: impl Fn() -> Result<Program>, run: &mut Run) -> Result {
	let (mut changes, mut name) = (Vec::new(), String::new());
	let mut one = |made: usize, run: &mut Run| {
		let mut program = start()?;
		if made == 0 {
			name = program.name().to_owned();
			run.begin(&name, u64::from(runs));
		}
		changes.push(two_looks(&mut program, run.progress)?);
		run.step();
		Ok(())
	};
	let mut done = Ok(());
	for made in 0..runs as usize {
		// A run is not begun that is interrupted, but for the first: then it says so.
		if done.is_err() || (made > 0 && run.over(made)) {
			break;
		}
		done = one(made, run);
	}
	keep(&name, &changes, run)?;
	done
}

/// One record for the bytes, one for each size of block.
fn keep(name: &str, changes: &[Change], run: &mut Run) -> Result {
	let mut keep = |granule: u64, all: Vec<u64>, changed: Vec<u64>, shares: Vec<f64>| {
		let row = Row::of(name, "ratio", json!({ "measure": "changed_share", "granule": granule }));
		run.keep(row.beside(json!({ "in_use": all, "changed": changed, "ended": "rounds" })), shares)
	};
	let of = |get: fn(&Change) -> u64| changes.iter().map(get).collect::<Vec<u64>>();
	let shares = changes.iter().map(Change::byte_share).collect();
	keep(1, of(|change| change.bytes), of(|change| change.changed_bytes), shares)?;
	for (index, granule) in GRANULES.into_iter().enumerate() {
		let (all, changed) = changes.iter().map(|change| change.blocks[index]).unzip();
		keep(granule, all, changed, changes.iter().map(|change| change.block_shares()[index]).collect())?;
	}
	Ok(())
}

fn two_looks(program: &mut Program, progress: &dyn Progress) -> Result<Change> {
	let pid = program.pid();
	let interrupted = || progress.interrupted();
	program.reach(false, &interrupted)?;
	let before = look(pid).map_err(failed)?;
	program.go_on()?;
	program.reach(true, &interrupted)?;
	second_look(pid, &before).map_err(failed)
}
