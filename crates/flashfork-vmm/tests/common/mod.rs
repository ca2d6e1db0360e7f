//! A guest of some twenty bytes, and what its tests share.
#![allow(dead_code)]

pub mod counting;

use flashfork_proto::{
	agent::CloneIdentity,
	shape::{Pages, Shape},
	shell::Renewal,
	signal::{Done, Signal},
};
use flashfork_vmm::{
	boot::Source,
	cpu::Exit,
	events::Event,
	machine::{Frozen, Machine},
};
use kvm_ioctls::Kvm;
use std::time::Duration;

/// What the guest's memory holds before the fork; a guest that booted again would put it there again, so the code
/// changes it afterwards.
pub const NONCE: u16 = 0xbeef;

/// What does not happen for so long never will, however busy the machine is.
const PATIENCE: Duration = Duration::from_secs(120);

/// `/dev/kvm`, or nothing to test with on this host.
pub fn kvm() -> Option<Kvm> {
	match Kvm::new() {
		Ok(kvm) => Some(kvm),
		Err(e) => {
			eprintln!("skipped: /dev/kvm: {e}");
			None
		}
	}
}

/// Parts of guests' code: the fork signal, and the one that ends them.
pub const FORK: &[u8] = &[0xba, 0x34, 0x12, 0xb0, 0x10, 0xee]; // mov dx, 0x1234; mov al, FORK; out dx, al
pub const DONE: &[u8] = &[0xba, 0x34, 0x12, 0xb0, 0x20, 0xee, 0xf4]; // mov al, DONE; out dx, al; hlt
/// To be written before DONE.
pub const STATUS_0: &[u8] = &[0xba, 0x3c, 0x12, 0x66, 0x31, 0xc0, 0x66, 0xef]; // mov dx, 0x123c; xor eax, eax; out dx, eax
/// Writes an `x` to the console.
pub const SHOWS: &[u8] = &[0xba, 0xf8, 0x03, 0xb0, b'x', 0xee]; // mov dx, 0x3f8; mov al, 'x'; out dx, al
pub const HALTS: &[u8] = &[0xf4, 0xeb, 0xfd]; // h: hlt; jmp h
/// Writes 64 KB at 0x10000: mov ax, 0x1000; mov es, ax; xor di, di; mov cx, 0x8000; rep stosw
pub const WRITES: &[u8] = &[0xb8, 0x00, 0x10, 0x8e, 0xc0, 0x31, 0xff, 0xb9, 0x00, 0x80, 0xf3, 0xab];

pub fn shape(memory_mib: u32, vcpus: u8) -> Shape {
	Shape { memory_mib, vcpus, pages: Pages::Small, disk: false, disk_slots: 0 }
}

pub fn renewal(index: u64) -> Renewal {
	let generation = [(index as u8).wrapping_add(1); 16];
	let identity = CloneIdentity { name: "clone".into(), index, generation, job: Vec::new() };
	Renewal { identity, entropy: [7; 32], disks: Vec::new() }
}

/// Writes the nonce, forks; a clone reads its index from the reply, gives back nonce and index, and changes the nonce.
pub fn guest() -> Source {
	Source::Tiny(guest_code())
}

pub fn guest_code() -> Vec<u8> {
	let [low, high] = NONCE.to_le_bytes();
	[
		&[0xc7, 0x06, 0x00, 0x20, low, high][..], // mov word [0x2000], NONCE
		FORK,
		&[0xba, 0x3c, 0x12, 0x66, 0xed, 0x66, 0xed, 0x66, 0xed], // mov dx, 0x123c; in eax, dx: role, zero, index
		&[0x66, 0x89, 0xc3],                                     // mov ebx, eax
		&[0x66, 0x31, 0xc0, 0x66, 0xef],                         // xor eax, eax; out dx, eax: status
		&[0xa1, 0x00, 0x20, 0xef],                               // mov ax, [0x2000]; out dx, ax
		&[0x66, 0x89, 0xd8, 0x66, 0xef],                         // mov eax, ebx; out dx, eax
		&[0xff, 0x06, 0x00, 0x20],                               // inc word [0x2000]
		DONE,
	]
	.concat()
}

/// What a clone of [`guest`] gives back.
pub fn result(nonce: u16, index: u32) -> Exit {
	let result = [&nonce.to_le_bytes()[..], &index.to_le_bytes()].concat();
	Exit::Signal(Signal::Done(Done { status: 0, result }))
}

/// What a guest gives back that ends with status 0.
#[track_caller]
pub fn done(machine: &mut Machine) -> Vec<u8> {
	match exit(machine) {
		Exit::Signal(Signal::Done(Done { status: 0, result })) => result,
		other => panic!("{other:?}"),
	}
}

#[track_caller]
pub fn exit(machine: &mut Machine) -> Exit {
	loop {
		match machine.event(Some(PATIENCE)) {
			Some(Event::Exit { exit, .. }) => return exit.unwrap(),
			Some(_) => {}
			None => panic!("the guest did nothing for {PATIENCE:?}"),
		}
	}
}

/// A template of `source`, which signals FORK, and the machine it was made of.
pub fn template(kvm: &Kvm, shape: Shape, source: &Source) -> (Machine, Frozen) {
	let (mut machine, vcpu0) = Machine::prepare(kvm, shape, Box::new(std::io::sink())).unwrap();
	machine.spawn(vcpu0).unwrap();
	machine.boot(source, None).unwrap();
	let frozen = freeze(&mut machine);
	(machine, frozen)
}

/// Runs it until it signals FORK.
#[track_caller]
pub fn freeze(machine: &mut Machine) -> Frozen {
	machine.resume();
	assert_eq!(exit(machine), Exit::Signal(Signal::Fork));
	machine.pause().unwrap();
	machine.freeze(true).unwrap()
}

/// A clone that is ready to [`Machine::resume`].
pub fn clone(kvm: &Kvm, frozen: &Frozen, index: u64) -> Machine {
	let (mut machine, mut vcpu0) = Machine::prepare(kvm, frozen.state.shape, Box::new(std::io::sink())).unwrap();
	machine.become_clone(vcpu0.vcpu(), frozen, &renewal(index), 3).unwrap();
	machine.spawn(vcpu0).unwrap();
	machine
}

/// The same, of a machine that was primed for it and has waited while `meanwhile` went on.
pub fn primed(kvm: &Kvm, frozen: &Frozen, index: u64, meanwhile: impl FnOnce()) -> Machine {
	let (mut machine, mut vcpu0) = Machine::prepare(kvm, frozen.state.shape, Box::new(std::io::sink())).unwrap();
	let primed = machine.prime(vcpu0.vcpu(), frozen).unwrap();
	meanwhile();
	machine.go(vcpu0.vcpu(), primed, &renewal(index), 3).unwrap();
	machine.spawn(vcpu0).unwrap();
	machine
}
