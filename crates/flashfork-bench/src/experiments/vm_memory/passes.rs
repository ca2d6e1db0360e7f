//! Guests that go over their memory, and the times the monitor took.

use flashfork_proto::shell::{Ended, FromShell};
use flashfork_vmm::pool::Shell;

use super::{
	code::{self, Access},
	found::{Cell, Pass, touched},
};
use crate::{
	prelude::*,
	subjects::vm_host::{Host, MemoryPages, Template, ended, expect, shape, vm},
};

/// Boots and clones one guest of each kind a round.
pub fn measure(host: &Host, size: u64, pages: &[MemoryPages], rounds: usize, run: &mut Run) -> Result {
	let cell = |access| pages.iter().map(move |&pages| Cell { access, pages });
	let cells: Vec<Cell> = Access::all().flat_map(cell).collect();
	let mut huge_fractions = vec![0.0; cells.len()];
	let stage = format!("four passes over {}", Size(size));
	let taken = run.sample(&stage, Effort::rounds(rounds), cells.len(), size, |cell, round| {
		once(host, size, cells[cell], round as u64, &mut huge_fractions[cell])
	});
	taken.keep(run, |cell, pass| cells[cell].row(size, huge_fractions[cell], pass))
}

fn once(host: &Host, size: u64, cell: Cell, round: u64, huge_fraction: &mut f64) -> Result<Visit<Pass>> {
	let shape = shape(size, cell.pages.of_shape());
	let end = u32::try_from(size).map_err(|_| vm("a guest of 32 bits has no such memory"))?;
	let shell = host.boot(shape, &code::passes(cell.access, end))?;
	let booted = laps(&shell)?;
	let template = match cell.pages {
		// As the guest left it. Pages it only read are there as well.
		MemoryPages::Hugetlb => Template::freeze_as_it_is(&shell, shape, cell.pages, None)?,
		// The monitor puts on 2 MB pages what it can: a copy of the template is on those asked for, all of it.
		MemoryPages::Small | MemoryPages::Thp => Template::freeze(&shell, shape, cell.pages, false)?,
	};
	drop(shell);
	*huge_fraction = template.huge_fraction;
	let shell = host.shell(shape)?;
	template.claim(&shell, round)?;
	let cloned = laps(&shell)?;
	match ended(&shell)? {
		Ended::Done(done) if done.status == 0 => {}
		other => return Err(vm(format!("a clone went over its memory and ended: {other:?}"))),
	}
	let per_page = |ns: u64| vec![ns as f64 / 1e3 / touched(size) as f64];
	let mut visit = vec![(Pass::Shared, per_page(cloned[0])), (Pass::BackedClone, per_page(cloned[1]))];
	// The monitor boots no guest on 2 MB pages of the kernel's making.
	if cell.pages != MemoryPages::Thp {
		visit.extend([(Pass::Unbacked, per_page(booted[0])), (Pass::Backed, per_page(booted[1]))]);
	}
	Ok(visit)
}

fn laps(shell: &Shell) -> Result<[u64; 2]> {
	let lap = || {
		let lap = |message| if let FromShell::Lap(ns) = message { Some(ns) } else { None };
		expect(shell, lap, "time its passes")
	};
	// Until the timer was started.
	lap()?;
	Ok([lap()?, lap()?])
}
