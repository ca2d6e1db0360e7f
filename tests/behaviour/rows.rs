//! The table and the programs belong together.

use crate::program::programs_of;
use flashfork_core::never_seal::{Reason, Row, TABLE};
use libtest_mimic::Failed;

/// Rows without a program; `docs/NEVER_SEAL.md` says what shows them instead.
const WITHOUT_PROGRAM: &[Reason] = &[Reason::Device, Reason::UnknownFlag];

pub fn row(name: &str) -> Option<&'static Row> {
	TABLE.iter().find(|row| row.name == name)
}

/// The reasons that may be given where this row's is right.
pub fn also_known_as(row: &Row) -> &'static [Reason] {
	match row.reason {
		// The flag `gu` is younger than guards: without it the copy meets them.
		Reason::GuardRegion => &[Reason::GuardRegion, Reason::CopyFailed],
		reason => core::slice::from_ref(&TABLE[reason as usize].reason),
	}
}

pub fn every_row_has_a_program() -> Result<(), Failed> {
	let programs: Vec<_> = programs_of("never_seal").into_iter().map(|p| p.name).collect();
	for row in TABLE {
		let has = programs.iter().any(|name| name == row.name);
		let listed = WITHOUT_PROGRAM.contains(&row.reason);
		if has == listed {
			let should = if has { "is listed in WITHOUT_PROGRAM and has one" } else { "has no program" };
			return Err(format!("row `{}` {should}: tests/behaviour/never_seal/{}.c", row.name, row.name).into());
		}
	}
	Ok(())
}

pub fn every_program_is_named_for_a_row() -> Result<(), Failed> {
	match programs_of("never_seal").into_iter().find(|p| row(&p.name).is_none()) {
		Some(p) => Err(format!("never_seal/{}.c: the table has no such row", p.name).into()),
		None => Ok(()),
	}
}
