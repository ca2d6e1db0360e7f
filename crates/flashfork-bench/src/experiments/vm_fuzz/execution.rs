//! Executions, by each way in turn.

use std::io::sink;

use flashfork_proto::{
	shell::{Ended, FromShell},
	signal::{Done, Signal},
};
use flashfork_vmm::{
	cpu::Exit,
	events::Event,
	machine::{Frozen, Machine},
	memory::Watch,
};
use kvm_ioctls::Kvm;
use vm_memory::{Bytes, GuestAddress};

use super::{
	VmFuzzOptions, Way,
	code::{places, writes},
};
use crate::{
	prelude::*,
	subjects::vm_host::{CID, Host, MemoryPages, PATIENCE, Template, renewal, shape, until, vm},
};

/// Executions of a cell in a round: rollbacks, and what takes a hundred times as long.
const BATCHES: [usize; 2] = [40, 4];
/// Until the pages are those written again and again.
const WARM_UP: usize = 3;

struct Subject<'a> {
	host: &'a Host,
	template: &'a Template,
	way: Way,
	pages: u32,
	/// That is taken back.
	machine: Option<Machine>,
}

/// All ways with each number of pages, in turn.
pub fn measure(host: &Host, options: &VmFuzzOptions, run: &mut Run) -> Result {
	let size = options.size.0;
	run.begin("a template with all of its memory, and clones", 1);
	let shape = shape(size, MemoryPages::Small.of_shape());
	let template = Template::freeze(&host.boot(shape, &writes(size, None))?, shape, MemoryPages::Small, true)?;
	let mut subjects = Vec::new();
	for (pages, way) in
		ascending(options.pages.iter().copied()).into_iter().flat_map(|pages| Way::all().map(move |way| (pages, way)))
	{
		let mut subject = Subject { host, template: &template, way, pages, machine: None };
		if matches!(way, Way::Copy | Way::Drop) {
			subject.machine = machine(&host.kvm, &template.frozen()?, way, subject.stores())?;
			if subject.machine.is_none() {
				let why = "this kernel has no PAGEMAP_SCAN (Linux 6.7)";
				run.leave_out(format!("{pages} pages, {}", way.as_ref()), why);
				continue;
			}
		}
		(0..WARM_UP).try_for_each(|_| subject.execute())?;
		subjects.push(subject);
	}
	run.step();
	let effort = Effort::rounds(options.rounds());
	let stage = "interleaved rounds of executions";
	let taken = run.sample(stage, effort, subjects.len(), size, |cell, _| subjects[cell].visit());
	taken.keep(run, |cell, ()| {
		let Subject { way, pages, .. } = &subjects[cell];
		Row::of(way.as_ref(), "us", json!({ "pages": pages, "size": size }))
	})
}

/// A clone that is taken back; it has run once. None where its way is not to be had.
fn machine(kvm: &Kvm, frozen: &Frozen, way: Way, stores: u32) -> Result<Option<Machine>> {
	let (mut machine, mut vcpu0) = Machine::prepare(kvm, frozen.state.shape, Box::new(sink())).map_err(vm)?;
	if way == Way::Copy {
		let watch = Watch::find().map_err(vm)?;
		if !watch.scans() {
			return Ok(None);
		}
		machine.watch_with(watch);
		machine.copy_back();
	}
	machine.become_clone(vcpu0.vcpu(), frozen, &renewal(stores.into()), CID).map_err(vm)?;
	machine.spawn(vcpu0).map_err(vm)?;
	// Once with pages of which it is known what they are: a rollback that isn't right is not measured.
	let places = || places(frozen.state.shape.memory_bytes());
	let words = |machine: &Machine| -> Result<Vec<u32>> {
		places().map(|place| machine.memory().read_obj(GuestAddress(place.into())).map_err(vm)).collect()
	};
	let before = words(&machine)?;
	for _ in 0..WARM_UP {
		machine.resume();
		ran(&mut machine)?;
		let written = words(&machine)?.iter().zip(&before).filter(|(word, before)| word != before).count();
		machine.pause().map_err(vm)?;
		machine.rollback(&renewal(stores.into())).map_err(vm)?;
		if written != stores as usize || words(&machine)? != before {
			return Err(vm(format!("of {stores} stores {written} were made, or not all undone")));
		}
	}
	Ok(Some(machine))
}

impl Subject<'_> {
	/// Each writes two pages.
	fn stores(&self) -> u32 {
		self.pages / 2
	}

	fn visit(&mut self) -> Result<Visit<()>> {
		let batch = BATCHES[usize::from(self.machine.is_none())];
		let mut times = Vec::new();
		for _ in 0..batch {
			let start = Instant::now();
			self.execute()?;
			times.push(micros(start));
		}
		Ok(vec![((), times)])
	}

	/// One execution, and what comes before it.
	fn execute(&mut self) -> Result {
		let stores = self.stores();
		if let Some(machine) = &mut self.machine {
			machine.pause().map_err(vm)?;
			machine.rollback(&renewal(stores.into())).map_err(vm)?;
			machine.resume();
			return ran(machine);
		}
		let shape = self.template.shape;
		let shell = if self.way == Way::Boot {
			self.host.boot(shape, &writes(shape.memory_bytes(), Some(stores)))?
		} else {
			let shell = self.host.shell(shape)?;
			self.template.claim(&shell, stores.into())?;
			shell
		};
		let done = |message: &_| matches!(message, FromShell::Ended(Ended::Done(Done { status: 0, .. })));
		until(&shell, done, "write its pages")
	}
}

/// Waits until the pages are written. Awake: a sleep ends late, by as much as half a rollback takes.
fn ran(machine: &mut Machine) -> Result {
	let begun = Instant::now();
	while begun.elapsed() < PATIENCE {
		match machine.event(Some(Duration::ZERO)) {
			Some(Event::Exit { exit: Ok(Exit::Signal(Signal::Done(Done { status: 0, .. }))), .. }) => return Ok(()),
			Some(Event::Exit { exit, .. }) => {
				return Err(vm(format!("a guest that should write its pages ended: {exit:?}")));
			}
			Some(_) => {}
			None => std::thread::yield_now(),
		}
	}
	Err(vm("a guest did nothing"))
}
