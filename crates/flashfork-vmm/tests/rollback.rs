//! Rollbacks of a tiny guest: after each of them memory is the template's to the last byte, whoever wrote.

mod common;
#[path = "common/lab.rs"]
mod lab;

use common::*;
use flashfork_lab::Kernel;
use flashfork_proto::signal::Signal;
use flashfork_vmm::{
	boot::Source,
	cpu::Exit,
	kvm::two_dimensional,
	layout::VMGENID,
	machine::{Frozen, Machine},
	memory::Watch,
};
use kvm_ioctls::Kvm;
use vm_memory::{Bytes, GuestAddress, GuestMemoryBackend};

const MEMORY: usize = 4 << 20;
/// Where KVM writes its clock, if the guest has it do so, and the time it has stolen.
const CLOCK: u64 = 0xa000;
const STOLEN: u64 = 0xb000;

/// Forks; then writes its index to a word of every page from 0x10000 to 0x90000.
fn writer() -> Source {
	let code = [
		// MSR_KVM_SYSTEM_TIME_NEW and MSR_KVM_STEAL_TIME.
		&[enable(0x4b56_4d01, CLOCK), enable(0x4b56_4d03, STOLEN)].concat()[..],
		FORK,
		&[0xba, 0x3c, 0x12, 0x66, 0xed, 0x66, 0xed, 0x66, 0xed], // mov dx, 0x123c; in eax, dx: role, zero, index
		&[0x66, 0x89, 0xc7],                                     // mov edi, eax
		&[0xb8, 0x00, 0x10],                                     // mov ax, 0x1000
		&[0x8e, 0xc0, 0x26, 0x89, 0x3e, 0x00, 0x00],             // l: mov es, ax; mov es:[0], di
		&[0x05, 0x00, 0x01, 0x3d, 0x00, 0x90],                   // add ax, 0x100; cmp ax, 0x9000
		&[0x72, 0xf1],                                           // jb l
		STATUS_0,
		DONE,
	];
	Source::Tiny(code.concat())
}

/// wrmsr: `msr` is `address`, enabled.
fn enable(msr: u32, address: u64) -> Vec<u8> {
	let (msr, value) = (msr.to_le_bytes(), (address as u32 | 1).to_le_bytes());
	// mov ecx, msr; mov eax, value; xor edx, edx; wrmsr
	[&[0x66, 0xb9][..], &msr, &[0x66, 0xb8], &value, &[0x66, 0x31, 0xd2, 0x0f, 0x30]].concat()
}

/// What it takes to copy back, if this kernel has it.
fn copying() -> Option<Watch> {
	let watch = Watch::find().unwrap();
	if !watch.scans() {
		eprintln!("skipped: no PAGEMAP_SCAN");
	}
	Some(watch).filter(Watch::scans)
}

/// A clone that copies back, if there is something to do it with.
fn clone_with(kvm: &Kvm, frozen: &Frozen, copying: Option<Watch>) -> Machine {
	let (mut machine, mut vcpu0) = Machine::prepare(kvm, frozen.state.shape, Box::new(std::io::sink())).unwrap();
	if let Some(watch) = copying {
		machine.watch_with(watch);
		machine.copy_back();
	}
	machine.become_clone(vcpu0.vcpu(), frozen, &renewal(1), 3).unwrap();
	machine.spawn(vcpu0).unwrap();
	machine
}

fn content(machine: &Machine) -> Vec<u8> {
	let mut content = vec![0; MEMORY];
	machine.memory().read_slice(&mut content, GuestAddress(0)).unwrap();
	content
}

/// What a clone's memory is before it runs for the first time as number `index`.
fn template_of(frozen: &Frozen, index: u64) -> Vec<u8> {
	let mut content = vec![0; MEMORY];
	assert_eq!(rustix::io::pread(&frozen.ram.files()[0], &mut content, 0).unwrap(), MEMORY);
	content[VMGENID as usize..][..16].copy_from_slice(&renewal(index).identity.generation);
	content
}

/// Whether pages that were written have stayed: /proc/PID/smaps, of the mapping that guest memory is.
fn has_kept(machine: &Machine) -> bool {
	let start = machine.memory().get_host_address(GuestAddress(0)).unwrap() as usize;
	let maps = std::fs::read_to_string("/proc/self/smaps").unwrap();
	let (_, own) = maps.split_once(&format!("{start:x}-")).unwrap();
	let line = own.lines().find_map(|line| line.strip_prefix("Anonymous:")).unwrap();
	// The page with the generation id is written by the rollback itself.
	line.trim().trim_end_matches(" kB").parse::<u64>().unwrap() > 64
}

/// Runs and takes back; each time with what a device may write, and other pages than before.
fn many_rollbacks(machine: &mut Machine, frozen: &Frozen, copies: bool) {
	let mut kept = 0;
	for index in 2..52 {
		machine.resume();
		assert_eq!(done(machine), [0; 0]);
		machine.pause().unwrap();
		let word = |at| machine.memory().read_obj::<u64>(GuestAddress(at)).unwrap();
		assert!(word(0x1_0000) == index - 1 && word(CLOCK) != 0, "the guest has run, and KVM has written its clock");
		for at in [0x20_0000 + index * 4096, 0x9_0000] {
			machine.memory().write_obj(index, GuestAddress(at)).unwrap();
		}
		machine.rollback(&renewal(index)).unwrap();
		kept += u64::from(has_kept(machine));
		assert!(content(machine) == template_of(frozen, index), "rollback {index}");
	}
	assert_eq!(kept >= 45, copies, "{kept} of 50 rollbacks kept what was written");
}

#[test]
fn after_each_of_many_rollbacks_memory_is_the_template_s() {
	let Some(kvm) = kvm() else { return };
	for (vcpus, with) in [(1, copying()), (2, copying()), (1, None)] {
		let (_parent, frozen) = template(&kvm, shape(4, vcpus), &writer());
		let copies = with.is_some();
		many_rollbacks(&mut clone_with(&kvm, &frozen, with), &frozen, copies);
	}
}

#[test]
fn the_machine_that_a_template_was_made_of_goes_back_too() {
	let (Some(kvm), Some(with)) = (kvm(), copying()) else { return };
	let (mut machine, vcpu0) = Machine::prepare(&kvm, shape(4, 1), Box::new(std::io::sink())).unwrap();
	machine.watch_with(with);
	machine.copy_back();
	machine.spawn(vcpu0).unwrap();
	machine.boot(&writer(), None).unwrap();
	let frozen = freeze(&mut machine);
	machine.rollback(&renewal(1)).unwrap();
	many_rollbacks(&mut machine, &frozen, true);
}

/// From real mode to flat 32-bit segments, at the place where tiny guests begin.
const PROTECTED: &[&[u8]] = &[
	&[0xfa, 0x0f, 0x01, 0x16, 0x2e, 0x10],             // cli; lgdt [0x102e]
	&[0x0f, 0x20, 0xc0, 0x0c, 0x01, 0x0f, 0x22, 0xc0], // mov eax, cr0; or al, 1; mov cr0, eax
	&[0x66, 0xea, 0x34, 0x10, 0x00, 0x00, 0x08, 0x00], // jmp 8:0x1034
	&[0; 8],
	&0x00cf_9b00_0000_ffff_u64.to_le_bytes(),
	&0x00cf_9300_0000_ffff_u64.to_le_bytes(),
	&[23, 0, 0x16, 0x10, 0x00, 0x00],                  // 0x102e: of 24 bytes, at 0x1016
	&[0x66, 0xb8, 0x10, 0x00, 0x8e, 0xd8, 0x8e, 0xc0], // 0x1034: mov ax, 0x10; mov ds, ax; mov es, ax
];

/// Has page tables, by which 0x300000 is A, and forks. Gives back what it finds there, makes it B, and gives back that.
fn paged() -> Source {
	let code = [
		&[0xbf, 0x00, 0x10, 0x02, 0x00, 0xb8, 0x03, 0x00, 0x00, 0x00][..], // mov edi, 0x21000; mov eax, 3
		&[0xb9, 0x00, 0x04, 0x00, 0x00],                                   // mov ecx, 1024
		&[0xab, 0x05, 0x00, 0x10, 0x00, 0x00, 0xe2, 0xf8],                 // l: stosd; add eax, 0x1000; loop l
		&[0xc7, 0x05, 0x00, 0x00, 0x02, 0x00, 0x03, 0x10, 0x02, 0x00],     // mov dword [0x20000], 0x21003
		&[0xc6, 0x05, 0x00, 0x00, 0x20, 0x00, b'A'],                       // mov byte [0x200000], 'A'
		&[0xc6, 0x05, 0x00, 0x10, 0x20, 0x00, b'B'],                       // mov byte [0x201000], 'B'
		&[0xc7, 0x05, 0x00, 0x1c, 0x02, 0x00, 0x03, 0x00, 0x20, 0x00],     // mov dword [0x21c00], 0x200003
		&[0xb8, 0x00, 0x00, 0x02, 0x00, 0x0f, 0x22, 0xd8],                 // mov eax, 0x20000; mov cr3, eax
		&[0x0f, 0x20, 0xc0, 0x0d, 0x00, 0x00, 0x00, 0x80, 0x0f, 0x22, 0xc0], // mov eax, cr0; or eax, PG; mov cr0, eax
		&[0xeb, 0x00, 0xa0, 0x00, 0x00, 0x30, 0x00],                       // jmp on; mov al, [0x300000]
		&[0x66, 0xba, 0x34, 0x12, 0xb0, 0x10, 0xee],                       // FORK
		&[0x66, 0xba, 0x3c, 0x12, 0x31, 0xc0, 0xef],                       // mov dx, 0x123c; xor eax, eax; out dx, eax
		&[0xa0, 0x00, 0x00, 0x30, 0x00, 0xee],                             // mov al, [0x300000]; out dx, al
		&[0xc7, 0x05, 0x00, 0x1c, 0x02, 0x00, 0x03, 0x10, 0x20, 0x00],     // mov dword [0x21c00], 0x201003
		&[0x0f, 0x01, 0x3d, 0x00, 0x00, 0x30, 0x00],                       // invlpg [0x300000]
		&[0xa0, 0x00, 0x00, 0x30, 0x00, 0xee],                             // mov al, [0x300000]; out dx, al
		&[0x66, 0xba, 0x34, 0x12, 0xb0, 0x20, 0xee, 0xf4],                 // DONE; hlt
	];
	Source::Tiny([PROTECTED.concat(), code.concat()].concat())
}

/// KVM and the processor know page tables of before the rollback; the guest's CR3 is the same.
#[test]
fn page_tables_that_a_rollback_changes_are_not_remembered() {
	// Elsewhere no shell copies.
	let with = copying().filter(|_| two_dimensional() == Some(true));
	for with in [with, None] {
		let Some(kvm) = kvm() else { return };
		let (mut parent, vcpu0) = Machine::prepare(&kvm, shape(4, 1), Box::new(std::io::sink())).unwrap();
		parent.spawn(vcpu0).unwrap();
		parent.boot(&paged(), None).unwrap();
		parent.resume();
		match exit(&mut parent) {
			Exit::Signal(Signal::Fork) => {}
			// So it is with KVM where it has no hardware to go by.
			other => return eprintln!("skipped: this KVM can't run a guest with page tables: {other:?}"),
		}
		parent.pause().unwrap();
		let frozen = parent.freeze(true).unwrap();
		let copies = with.is_some();
		let mut clone = clone_with(&kvm, &frozen, with);
		for index in 2..20 {
			clone.resume();
			assert_eq!(done(&mut clone), b"AB", "turn {index}");
			clone.pause().unwrap();
			// Many more pages than the guest writes, so that it shows whether they are kept.
			(0..64).for_each(|page| clone.memory().write_obj(index, GuestAddress(0x38_0000 + page * 4096)).unwrap());
			clone.rollback(&renewal(index)).unwrap();
			assert_eq!(has_kept(&clone), copies && index > 2);
			assert!(content(&clone) == template_of(&frozen, index));
		}
	}
}

/// There guests have page tables of their own (NPT, emulated), and a TLB that outlives their exits.
#[test]
fn rollbacks_with_two_dimensional_paging_are_right_too() {
	lab::pass(Kernel::Debian6_12, "", &["--skip", "two_dimensional"], 3);
}
