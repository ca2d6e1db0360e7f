//! What many clones of one template hold, kernel memory included.
//!
//! A shell's memory is mostly the kernel's: KVM's arrays for the memory slot, page tables of guest and process, stacks
//! of threads, sockets. What the processes themselves map (`Pss`) is told apart.

use flashfork_vmm::pool::Shell;

use super::{
	found::{ALIVE, Bytes, WAITING, keep_density},
	plan::Plan,
};
use crate::{
	prelude::*,
	subjects::{
		held::{Counter, mapped},
		vm_host::{Host, MemoryPages, Template, shape},
	},
};

/// The largest guests this is done with: the kernel's arrays grow with a guest's memory, and all clones are there at
/// once.
const LARGEST: u64 = 1 << 30;
/// After so long the kernel has freed what it puts off.
const QUIET: Duration = Duration::from_millis(700);

/// Forks; the clone reads a word of the reply, then waits for ever.
const CODE: &[u8] = &[
	0xba, 0x34, 0x12, 0xb0, 0x10, 0xee, // mov dx, 0x1234; mov al, FORK; out dx, al
	0xba, 0x3c, 0x12, 0x66, 0xed, // mov dx, 0x123c; in eax, dx
	0xfa, 0xf4, 0xeb, 0xfd, // cli; hlt; again
];

pub fn measure(host: &Host, plan: &Plan, run: &mut Run) -> Result {
	let sizes: Vec<u64> = plan.sizes.iter().map(|(size, _)| *size).filter(|size| *size <= LARGEST).collect();
	let (Some(&least), Some(&most)) = (sizes.first(), sizes.last()) else { return Ok(()) };
	let sizes = if least == most { vec![least] } else { vec![least, most] };
	for size in sizes {
		run.go_on()?;
		let what = format!("memory of {} clones of {}", plan.alive, Size(size));
		if run.no_time_for(&what) {
			continue;
		}
		run.begin(&what, plan.counts as u64);
		let shape = shape(size, MemoryPages::Small.of_shape());
		let template = Template::freeze(&host.boot(shape, CODE)?, shape, MemoryPages::Small, true)?;
		// Afterwards: the template is not what is counted.
		let counter = Counter::new();
		let (mut waiting, mut alive) = (Vec::new(), Vec::new());
		// The first time, caches of the kernel grow that stay.
		for repeat in 0..=plan.counts {
			if run.interrupted() {
				break;
			}
			std::thread::sleep(QUIET);
			let before = counter.used()?;
			let shells: Vec<Shell> = (0..plan.alive).map(|_| host.shell(shape)).collect::<Result<_>>()?;
			let before_claims = held(&counter, before, &shells)?;
			for (index, shell) in (1..).zip(&shells) {
				template.claim(shell, index)?;
			}
			let after_claims = held(&counter, before, &shells)?;
			drop(shells);
			if repeat > 0 {
				waiting.push(before_claims);
				alive.push(after_claims);
				run.step();
			}
		}
		keep_density(WAITING, size, plan.alive, counter.name(), &waiting, run)?;
		keep_density(ALIVE, size, plan.alive, counter.name(), &alive, run)?;
	}
	Ok(())
}

/// What each of `shells` holds, when `before` was in use without them.
fn held(counter: &Counter, before: f64, shells: &[Shell]) -> Result<Bytes> {
	std::thread::sleep(QUIET);
	let count = shells.len() as f64;
	let total = (counter.used()? - before) / count;
	let user = shells.iter().map(|shell| mapped(shell.pid())).sum::<Result<u64, _>>()? as f64 / count;
	Ok(Bytes { total, user })
}
