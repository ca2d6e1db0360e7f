//! Boots a Linux guest, freezes it when it signals FORK, and runs clones of it one by one: `linux KERNEL INITRD
//! MEMORY_MIB VCPUS CLONES [CMDLINE]`. The guests' consoles go to standard output.

use flashfork_proto::{
	agent::CloneIdentity,
	shape::{Pages, Shape},
	shell::Renewal,
	signal::Signal,
};
use flashfork_vmm::{boot::Source, cpu::Exit, events::Event, machine::Machine};
use kvm_ioctls::Kvm;
use std::{
	error::Error,
	fs::File,
	io::{Write, stdout},
	time::{Duration, Instant},
};

/// A guest that does nothing for so long is stuck.
const PATIENCE: Duration = Duration::from_secs(90);

/// Standard output, unbuffered: a console line may be the last thing seen.
struct Console;

impl Write for Console {
	fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
		let count = stdout().write(bytes)?;
		stdout().flush()?;
		Ok(count)
	}

	fn flush(&mut self) -> std::io::Result<()> {
		stdout().flush()
	}
}

fn main() -> Result<(), Box<dyn Error>> {
	let args: Vec<String> = std::env::args().collect();
	let [_, kernel, initrd, memory, vcpus, clones, rest @ ..] = &args[..] else {
		return Err("usage: linux KERNEL INITRD MEMORY_MIB VCPUS CLONES [CMDLINE]".into());
	};
	let shape =
		Shape { memory_mib: memory.parse()?, vcpus: vcpus.parse()?, pages: Pages::Small, disk: false, disk_slots: 0 };
	let mut cmdline = "console=ttyS0 panic=-1 clocksource=kvm-clock nokaslr".to_owned();
	rest.iter().for_each(|more| cmdline += &format!(" {more}"));
	let source = Source::Linux { kernel: File::open(kernel)?, initrd: Some(File::open(initrd)?), cmdline };
	let kvm = Kvm::new()?;

	let start = Instant::now();
	let (mut parent, vcpu0) = Machine::prepare(&kvm, shape, Box::new(Console))?;
	parent.spawn(vcpu0)?;
	parent.boot(&source, None)?;
	parent.resume();
	let end = run(&mut parent)?;
	println!("[{:.3} s] template: {end:?}", start.elapsed().as_secs_f64());
	if end != Exit::Signal(Signal::Fork) {
		return Ok(());
	}
	parent.pause()?;
	let start = Instant::now();
	let frozen = parent.freeze(true)?;
	println!("[{:?}] frozen, {} bytes of state", start.elapsed(), frozen.state.encode()?.len());
	drop(parent);

	for index in 0..clones.parse()? {
		let (mut clone, mut vcpu0) = Machine::prepare(&kvm, shape, Box::new(Console))?;
		let start = Instant::now();
		let times = clone.become_clone(vcpu0.vcpu(), &frozen, &renewal(index)?, 3)?;
		clone.spawn(vcpu0)?;
		clone.resume();
		let end = run(&mut clone)?;
		println!("[{:?}] clone {index}: {end:?}, {times:?}", start.elapsed());
	}
	Ok(())
}

/// Until the guest does what it doesn't come back from.
fn run(machine: &mut Machine) -> Result<Exit, Box<dyn Error>> {
	loop {
		match machine.event(Some(PATIENCE)) {
			Some(Event::Exit { exit, .. }) => return Ok(exit?),
			Some(event) => println!("[{event:?}]"),
			None => return Err("the guest is stuck".into()),
		}
	}
}

fn renewal(index: u64) -> Result<Renewal, Box<dyn Error>> {
	let generation = rand()?;
	let identity = CloneIdentity { name: format!("clone{index}"), index, generation, job: Vec::new() };
	Ok(Renewal { identity, entropy: rand()?, disks: Vec::new() })
}

fn rand<const N: usize>() -> Result<[u8; N], Box<dyn Error>> {
	let mut bytes = [0; N];
	std::io::Read::read_exact(&mut File::open("/dev/urandom")?, &mut bytes)?;
	Ok(bytes)
}
