//! Guests of a few bytes, which run on any `/dev/kvm`: what the monitor and the kernel take, without a guest's own
//! work.

use std::collections::{BTreeMap, VecDeque};

use flashfork_proto::{shape::Shape, shell::Ended, signal::Done};
use flashfork_vmm::{boot::Source, cpu::Exit, events::Event, machine::Machine, pool::Shell};

use super::{
	GuestKind,
	found::{BOOT_STEPS, CYCLE, Cell, FIRST_EXIT, Method, PREPARE, STEPS, Sample},
	plan::Plan,
};
use crate::{
	prelude::*,
	subjects::vm_host::{Claimed, Host, MemoryPages, PATIENCE, Template, ended, shape, vm},
};

/// Clones or boots a round and cell.
const BATCH: usize = 5;
/// Shells that wait for each shape, as in the daemon's pool.
const WAITING: usize = 4;
/// Until what the last clone left behind has settled.
const SETTLE: Duration = Duration::from_millis(5);

/// In the template's memory before the fork, changed by every clone.
const NONCE: u16 = 0xbeef;

/// Writes the nonce, forks. A clone reads its index from the reply, gives back nonce and index, changes the nonce, is
/// done.
const CODE: &[u8] = &[
	0xc7, 0x06, 0x00, 0x20, 0xef, 0xbe, // mov word [0x2000], NONCE
	0xba, 0x34, 0x12, 0xb0, 0x10, 0xee, // mov dx, 0x1234; mov al, FORK; out dx, al
	0xba, 0x3c, 0x12, 0x66, 0xed, 0x66, 0xed, 0x66, 0xed, // mov dx, 0x123c; in eax, dx: role, zero, index
	0x66, 0x89, 0xc3, // mov ebx, eax
	0x66, 0x31, 0xc0, 0x66, 0xef, // xor eax, eax; out dx, eax: status
	0xa1, 0x00, 0x20, 0xef, // mov ax, [0x2000]; out dx, ax
	0x66, 0x89, 0xd8, 0x66, 0xef, // mov eax, ebx; out dx, eax
	0xff, 0x06, 0x00, 0x20, // inc word [0x2000]
	0xba, 0x34, 0x12, 0xb0, 0x20, 0xee, // mov dx, 0x1234; mov al, DONE; out dx, al
	0xf4, // hlt
];

struct Pool<'a> {
	host: &'a Host,
	waiting: BTreeMap<Shape, VecDeque<Shell>>,
	claims: u64,
}

/// Clones and boots of every size, in turn.
pub fn measure(host: &Host, plan: &Plan, deadline: Deadline, run: &mut Run) -> Result {
	let mut pool = Pool { host, waiting: BTreeMap::new(), claims: 0 };
	let wanted: Vec<(u64, MemoryPages)> =
		plan.sizes.iter().flat_map(|(size, pages)| pages.iter().map(move |pages| (*size, *pages))).collect();
	let mut templates = Vec::new();
	run.begin("templates with all of their memory, and shells that wait", wanted.len() as u64);
	for (size, pages) in wanted {
		run.go_on()?;
		let shape = shape(size, pages.of_shape());
		let template = Template::freeze(&host.boot(shape, CODE)?, shape, pages, true)?;
		if pages == MemoryPages::Thp && !template.is_huge() {
			let cell = format!("{} on transparent 2 MB pages", Size(size));
			let why = format!("only {:.0} % of it got such pages", template.huge_fraction * 100.0);
			run.leave_out(cell, why);
		} else {
			templates.push(template);
		}
		pool.fill(shape)?;
		run.step();
	}
	let mut cells = Vec::new();
	for (index, template) in templates.iter().enumerate() {
		let cell = |method, huge_fraction| {
			(index, Cell { guest: GuestKind::Tiny, method, size: template.shape.memory_bytes(), huge_fraction })
		};
		cells.extend(Method::claims(template.pages).map(|method| cell(method, template.huge_fraction)));
		// A machine that boots has the pages of its shape.
		if template.pages != MemoryPages::Thp {
			cells.push(cell(Method::ColdBoot(template.pages), 0.0));
		}
	}
	let effort = Effort::rounds(plan.rounds).until(deadline);
	let stage = "interleaved rounds of clones and boots";
	let taken = run.sample(stage, effort, cells.len(), cells.len() as u64, |cell, _| {
		let (template, Cell { method, .. }) = cells[cell];
		let template = &templates[template];
		let one = |_| match method {
			Method::Clone(_) => pool.clone(template, false),
			Method::Primed(_) => pool.clone(template, true),
			Method::ColdBoot(_) => cold_boot(host, template.shape),
		};
		Ok(by_measure((0..BATCH).map(one).collect::<Result<Vec<_>>>()?.into_iter().flatten()))
	});
	taken.keep(run, |cell, measure| cells[cell].1.row(measure))
}

impl Pool<'_> {
	fn fill(&mut self, shape: Shape) -> Result {
		let waiting = self.waiting.entry(shape).or_default();
		while waiting.len() < WAITING {
			waiting.push_back(self.host.shell(shape)?);
		}
		Ok(())
	}

	/// One clone from its request to its end; `primed`: of a shell primed before.
	fn clone(&mut self, template: &Template, primed: bool) -> Result<Sample> {
		let start = Instant::now();
		let next = self.host.shell(template.shape)?;
		let prepared = start.elapsed();
		let waiting = self.waiting.entry(template.shape).or_default();
		waiting.push_back(next);
		let mut shell = waiting.pop_front().ok_or_else(|| vm("no shell waits"))?;
		self.claims += 1;
		if primed {
			template.prime(&mut shell)?;
		}
		std::thread::sleep(SETTLE);
		let start = Instant::now();
		let claimed = template.claim(&shell, self.claims)?;
		let ended = ended(&shell)?;
		shell.end();
		let cycle = start.elapsed();
		check(&ended, self.claims)?;
		let mut sample = vec![(FIRST_EXIT, us(claimed.total)), (CYCLE, us(cycle)), (PREPARE, us(prepared))];
		sample.extend(steps(&claimed));
		Ok(sample)
	}
}

/// A clone gives back what only its template's memory knows, and its own number: it is no reboot, and nobody else's.
fn check(ended: &Ended, index: u64) -> Result {
	let result = [&NONCE.to_le_bytes()[..], &(index as u32).to_le_bytes()].concat();
	match ended {
		Ended::Done(Done { status: 0, result: found }) if *found == result => Ok(()),
		other => Err(BenchError::Clone {
			what: "giving back what its template knew".into(),
			status: format!("{other:?} instead of {result:?}"),
		}),
	}
}

/// Each of [`STEPS`].
pub fn steps(claimed: &Claimed) -> impl Iterator<Item = (&'static str, f64)> {
	let Claimed { total, send, times: t } = claimed;
	let shell = [t.check, t.map, t.vcpus, t.machine, t.devices, t.first_exit].map(|ns| ns as f64 / 1e3);
	// The shell may have begun before the client's call was back.
	let wakes = (us(*total) - us(*send) - shell.iter().sum::<f64>()).max(0.0);
	let values = std::iter::once(us(*send)).chain(shell).chain([wakes]);
	STEPS.into_iter().zip(values.collect::<Vec<_>>())
}

/// Everything from nothing to the guest's first exit, in this process.
fn cold_boot(host: &Host, shape: Shape) -> Result<Sample> {
	std::thread::sleep(SETTLE);
	let start = Instant::now();
	let (mut machine, vcpu0) = Machine::prepare(&host.kvm, shape, Box::new(std::io::sink())).map_err(vm)?;
	machine.spawn(vcpu0).map_err(vm)?;
	let created = start.elapsed();
	machine.boot(&Source::Tiny(CODE.to_vec()), None).map_err(vm)?;
	let loaded = start.elapsed();
	machine.resume();
	let exit = loop {
		match machine.event(Some(PATIENCE)) {
			Some(Event::Exit { exit, .. }) => break exit.map_err(vm)?,
			Some(_) => {}
			None => return Err(vm("a guest that booted did nothing")),
		}
	};
	let total = start.elapsed();
	if !matches!(exit, Exit::Signal(_)) {
		return Err(vm(format!("a guest that booted ended: {exit:?}")));
	}
	let laps = [created, loaded - created, total - loaded].map(us);
	Ok(std::iter::once((FIRST_EXIT, us(total))).chain(BOOT_STEPS.into_iter().zip(laps)).collect())
}

#[cfg(test)]
mod tests {
	use super::*;
	use flashfork_proto::shell::ClaimTimes;

	#[test]
	fn the_steps_add_up_to_the_whole() {
		let times = ClaimTimes { check: 1000, map: 2000, vcpus: 3000, machine: 4000, devices: 5000, first_exit: 6000 };
		let claimed = Claimed { total: Duration::from_micros(40), send: Duration::from_micros(7), times };
		let found: Vec<_> = steps(&claimed).collect();
		assert_eq!((found[0], found[1], found[7]), (("send", 7.0), ("check", 1.0), ("wake-ups", 12.0)));
		assert!((found.iter().map(|(_, us)| us).sum::<f64>() - 40.0).abs() < 1e-9);
	}

	#[test]
	fn a_clone_that_is_somebody_else_is_an_error() {
		let result = [0xef, 0xbe, 3, 0, 0, 0];
		let done = |result: &[u8]| Ended::Done(Done { status: 0, result: result.to_vec() });
		check(&done(&result), 3).unwrap();
		assert!(check(&done(&result), 4).is_err());
		assert!(check(&Ended::Reset, 3).is_err());
	}
}
