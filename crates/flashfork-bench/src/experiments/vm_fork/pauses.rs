//! How long guests that write stand still.

use flashfork_proto::shell::FromShell;
use flashfork_vmm::pool::Shell;

use super::{
	VmForkOptions,
	code::{COUNT, keeps_writing, pages},
	found::{FORK, Guest, Part},
};
use crate::{
	prelude::*,
	subjects::vm_host::{Forked, Host, MemoryPages, Template, shape, until, vm},
};

const FORKS: usize = 3;

/// Percent of its memory that a clone writes before it is forked.
const BEFORE: f64 = 1.0;

struct Subject {
	guest: Guest,
	template: Template,
	/// Pages that a clone has written when it says that it can be forked.
	first: u32,
	/// Whether all forks have copied while the guest ran.
	tracked: bool,
}

/// Forks guests of each kind and size, in turn.
pub fn measure(host: &Host, sizes: &[u64], options: &VmForkOptions, run: &mut Run) -> Result {
	// 2 MB pages first, while there is unbroken memory.
	let guests = Guest::all().rev();
	let wanted: Vec<_> = guests.flat_map(|guest| sizes.iter().rev().map(move |size| (guest, *size))).collect();
	run.begin("templates with all of their memory", wanted.len() as u64);
	let frequency = frequency(host)?;
	let mut subjects = Vec::new();
	for (guest, size) in wanted {
		run.go_on()?;
		let subject = Subject::new(host, guest, size, options.written, frequency)?;
		if guest.pages() == MemoryPages::Thp && !subject.template.is_huge() {
			let why = format!("only {:.0} % of it got 2 MB pages", subject.template.huge_fraction * 100.0);
			run.leave_out(format!("{}, {}", guest.as_ref(), Size(size)), why);
		} else {
			subjects.push(subject);
		}
		run.step();
	}
	let effort = Effort::rounds(options.rounds());
	let taken = run.sample("interleaved rounds of live forks", effort, subjects.len(), 1, |cell, round| {
		subjects[cell].visit(host, round as u64)
	});
	taken.keep(run, |cell, part| {
		let Subject { guest, template, tracked, .. } = &subjects[cell];
		let chosen = json!({
			"measure": part.as_ref(),
			"guest": guest.as_ref(),
			"size": template.shape.memory_bytes(),
			"written_percent": options.written,
		});
		Row::of(FORK, part.unit(), chosen).beside(json!({ "tracked": tracked }))
	})
}

/// Ticks of the guests' TSC in a second.
fn frequency(host: &Host) -> Result<f64> {
	let cpu = host.kvm.create_vm().and_then(|machine| machine.create_vcpu(0)).map_err(vm)?;
	Ok(f64::from(cpu.get_tsc_khz().map_err(vm)?) * 1e3)
}

impl Subject {
	fn new(host: &Host, guest: Guest, size: u64, percent: f64, frequency: f64) -> Result<Self> {
		let shape = shape(size, guest.pages().of_shape());
		let end = u32::try_from(size).map_err(|_| vm("a guest of 32 bits has no such memory"))?;
		let of_memory = |percent: f64| f64::from(pages(end)) * percent / 100.0;
		let first = of_memory(BEFORE).ceil() as u32;
		let ticks = (frequency / of_memory(percent)) as u32;
		let shell = host.boot(shape, &keeps_writing(end, guest.spread(), first, ticks))?;
		let template = Template::freeze(&shell, shape, guest.pages(), true)?;
		Ok(Self { guest, template, first, tracked: true })
	}

	fn visit(&mut self, host: &Host, round: u64) -> Result<Visit<Part>> {
		let shape = self.template.shape;
		let shell = host.shell(shape)?;
		self.template.claim(&shell, round)?;
		until(&shell, |message| matches!(message, FromShell::Lap(_)), "write pages")?;
		let (mut forks, mut before) = (Vec::new(), self.first);
		for _ in 0..FORKS {
			let (fork, count) = fork(&shell, &self.template)?;
			let written = count.checked_sub(before).ok_or_else(|| vm("a fork has memory older than its clone's"))?;
			self.tracked &= fork.pause.tracked;
			forks.push((fork, written));
			before = count;
		}
		let of = |part: Part| (part, forks.iter().map(|(fork, written)| part.of(fork, *written)).collect());
		Ok(Part::all().map(of).collect())
	}
}

/// A fork, and how many pages the guest had written by then, as its own copied memory says.
fn fork(shell: &Shell, template: &Template) -> Result<(Forked, u32)> {
	let fork = Forked::of(shell, template.shape)?;
	let mut count = [0; 4];
	let got = rustix::io::pread(&fork.delta, &mut count, COUNT.into());
	match got.or_cant("read what a fork has copied")? {
		4 => Ok((fork, u32::from_le_bytes(count))),
		_ => Err(vm("a fork has copied less than a page")),
	}
}
