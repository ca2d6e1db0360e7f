//! Time in clones: kvmclock and the TSC deadline timer, on guests without a kernel.

mod common;
#[path = "common/lab.rs"]
mod lab;

use common::*;
use flashfork_lab::Kernel;
use flashfork_vmm::{boot::Source, machine::Machine};
use kvm_ioctls::Kvm;
use std::time::{Duration, Instant, SystemTime};

/// Arms the local APIC's timer `cycles` from now and signals FORK, with `wait` not before the deadline has passed; its
/// interrupt handler signals DONE. Interrupts are off until after the fork.
fn deadline(cycles: u32, wait: bool) -> Source {
	let code = [
		&[0xfa, 0x31, 0xc0, 0x8e, 0xd8][..], // cli; xor ax, ax; mov ds, ax
		// An interrupt controller that nobody has set up gives the new generation's interrupt vector 5.
		&[0xb0, 0xff, 0xe6, 0x21, 0xe6, 0xa1], // mov al, 0xff; out 0x21, al; out 0xa1, al: all masked
		&[0xc7, 0x06, 0x00, 0x01, 0x74, 0x10], // mov word [0x100], handler: vector 0x40
		&[0xc7, 0x06, 0x02, 0x01, 0x00, 0x00], // mov word [0x102], 0
		&[0x66, 0xb9, 0x1b, 0x00, 0x00, 0x00, 0x0f, 0x32], // mov ecx, IA32_APIC_BASE; rdmsr
		&[0x66, 0x0d, 0x00, 0x0c, 0x00, 0x00, 0x0f, 0x30], // or eax, 0xc00; wrmsr: x2APIC
		&[0x66, 0xb9, 0x0f, 0x08, 0x00, 0x00], // mov ecx, x2APIC SVR
		&[0x66, 0xb8, 0xff, 0x01, 0x00, 0x00, 0x66, 0x31, 0xd2, 0x0f, 0x30], // mov eax, 0x1ff; xor edx, edx; wrmsr
		&[0x66, 0xb9, 0x32, 0x08, 0x00, 0x00], // mov ecx, x2APIC LVT timer
		&[0x66, 0xb8, 0x40, 0x00, 0x04, 0x00, 0x0f, 0x30], // mov eax, deadline mode, vector 0x40; wrmsr
		&[0x0f, 0x31, 0x66, 0x05],             // rdtsc; add eax, cycles
		&cycles.to_le_bytes(),
		&[0x66, 0x83, 0xd2, 0x00],                         // adc edx, 0
		&[0x66, 0xb9, 0xe0, 0x06, 0x00, 0x00, 0x0f, 0x30], // mov ecx, IA32_TSC_DEADLINE; wrmsr
		&[0x66, 0x89, 0xc6, 0x66, 0x89, 0xd7],             // mov esi, eax; mov edi, edx
		&[0x0f, 0x31, 0x66, 0x29, 0xf0, 0x66, 0x19, 0xfa], // w: rdtsc; sub eax, esi; sbb edx, edi
		if wait { &[0x78, 0xf6] } else { &[0x90, 0x90] },  // js w
		FORK,
		&[0xfb, 0xf4, 0xeb, 0xfd], // sti; h: hlt; jmp h
		DONE,                      // the handler
	];
	Source::Tiny(code.concat())
}

fn fires(source: &Source) {
	let Some(kvm) = kvm() else { return };
	let (_parent, frozen) = template(&kvm, shape(4, 1), source);
	for index in 0..3 {
		let primed = || primed(&kvm, &frozen, index, || std::thread::sleep(Duration::from_millis(200)));
		for mut clone in [clone(&kvm, &frozen, index), primed()] {
			clone.resume();
			assert_eq!(done(&mut clone), [0; 0]);
		}
	}
}

#[test]
fn a_tsc_deadline_that_passed_before_the_template_was_made_fires_in_every_clone() {
	fires(&deadline(1_000_000, true));
}

#[test]
fn a_tsc_deadline_that_passes_while_the_template_is_made_fires_in_every_clone() {
	fires(&deadline(1, false));
	fires(&deadline(100_000, false));
}

#[test]
fn a_tsc_deadline_in_the_future_fires_in_every_clone() {
	fires(&deadline(300_000_000, false));
}

/// Has the local APIC's timer count down nanoseconds, once and for long, and gives back its counts before and after the
/// fork.
fn one_shot() -> Source {
	let code = [
		&[0xfa, 0x31, 0xc0, 0x8e, 0xd8][..],               // cli; xor ax, ax; mov ds, ax
		&[0xb0, 0xff, 0xe6, 0x21, 0xe6, 0xa1],             // mov al, 0xff; out 0x21, al; out 0xa1, al: all masked
		&[0x66, 0xb9, 0x1b, 0x00, 0x00, 0x00, 0x0f, 0x32], // mov ecx, IA32_APIC_BASE; rdmsr
		&[0x66, 0x0d, 0x00, 0x0c, 0x00, 0x00, 0x0f, 0x30], // or eax, 0xc00; wrmsr: x2APIC
		&[0x66, 0xb9, 0x0f, 0x08, 0x00, 0x00],             // mov ecx, x2APIC SVR
		&[0x66, 0xb8, 0xff, 0x01, 0x00, 0x00, 0x66, 0x31, 0xd2, 0x0f, 0x30], // mov eax, 0x1ff; xor edx, edx; wrmsr
		&[0x66, 0xb9, 0x3e, 0x08, 0x00, 0x00, 0x66, 0xb8, 0x0b, 0x00, 0x00, 0x00, 0x0f, 0x30], // divided by 1
		&[0x66, 0xb9, 0x32, 0x08, 0x00, 0x00, 0x66, 0xb8, 0x40, 0x00, 0x00, 0x00, 0x0f, 0x30], // one-shot, vector 0x40
		&[0x66, 0xb9, 0x38, 0x08, 0x00, 0x00, 0x66, 0xb8, 0xff, 0xff, 0xff, 0xff, 0x0f, 0x30], // initial count
		&[0x66, 0xb9, 0x39, 0x08, 0x00, 0x00, 0x0f, 0x32, 0x66, 0xa3, 0x00, 0x20], // current count; mov [0x2000], eax
		FORK,
		&[0x66, 0xb9, 0x39, 0x08, 0x00, 0x00, 0x0f, 0x32, 0x66, 0xa3, 0x04, 0x20], // the same, to 0x2004
		STATUS_0,
		&[0xbe, 0x00, 0x20, 0xb9, 0x08, 0x00, 0xfc, 0xf3, 0x6e], // mov si, 0x2000; mov cx, 8; cld; rep outsb
		DONE,
	];
	Source::Tiny(code.concat())
}

#[test]
fn a_timer_that_counts_stands_still_while_a_clone_waits_primed() {
	let Some(kvm) = kvm() else { return };
	let begun = Instant::now();
	let (_parent, frozen) = template(&kvm, shape(4, 1), &one_shot());
	let mut waited = Duration::ZERO;
	let mut clone = primed(&kvm, &frozen, 1, || {
		let start = Instant::now();
		std::thread::sleep(Duration::from_secs(2));
		waited = start.elapsed();
	});
	clone.resume();
	let result = done(&mut clone);
	let [before, after] = [0, 4].map(|at| u32::from_le_bytes(std::array::from_fn(|i| result[at + i])));
	let most = begun.elapsed() - waited + Duration::from_millis(500);
	assert!(before > after && after > 0, "{before}, then {after}");
	assert!(u128::from(before - after) < most.as_nanos(), "{} ns of {most:?}", before - after);
}

/// FORK; gives back the first 64 bytes of the reply.
fn replies() -> Source {
	let code = [
		FORK,
		&[0xba, 0x3c, 0x12, 0xbf, 0x00, 0x20], // mov dx, 0x123c; mov di, 0x2000
		&[0xb9, 0x40, 0x00, 0xfc, 0xf3, 0x6c], // mov cx, 64; cld; rep insb
		&[0x66, 0x31, 0xc0, 0x66, 0xef],       // xor eax, eax; out dx, eax: status
		&[0xbe, 0x00, 0x20, 0xb9, 0x40, 0x00, 0xf3, 0x6e], // mov si, 0x2000; mov cx, 64; rep outsb
		DONE,
	];
	Source::Tiny(code.concat())
}

#[test]
fn the_wall_clock_is_read_when_the_clone_is_made_and_not_when_it_was_asked_for() {
	let Some(kvm) = kvm() else { return };
	let now = || SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap().as_nanos() as u64;
	let (_parent, frozen) = template(&kvm, shape(4, 1), &replies());
	let told = |clone: &mut Machine| {
		clone.resume();
		let result = done(clone);
		u64::from_le_bytes(std::array::from_fn(|i| result[32 + i]))
	};
	// Asked for; then a shell is waited for.
	let asked = renewal(1);
	let (mut clone, mut vcpu0) = Machine::prepare(&kvm, frozen.state.shape, Box::new(std::io::sink())).unwrap();
	let begun = now();
	clone.become_clone(vcpu0.vcpu(), &frozen, &asked, 3).unwrap();
	clone.spawn(vcpu0).unwrap();
	let time = told(&mut clone);
	assert!((begun..=now()).contains(&time), "begun at {begun}, told {time}");
	// A primed one isn't asked for yet while it waits.
	let mut begun = 0;
	let time = told(&mut primed(&kvm, &frozen, 3, || begun = now()));
	assert!((begun..=now()).contains(&time), "primed before {begun}, told {time}");
	let asked = renewal(2);
	clone.pause().unwrap();
	let begun = now();
	clone.rollback(&asked).unwrap();
	let time = told(&mut clone);
	assert!((begun..=now()).contains(&time), "rolled back at {begun}, told {time}");
}

/// Reads the TSC, forks, reads it again and gives back both readings.
fn tsc() -> Source {
	let code = [
		&[0x0f, 0x31, 0x66, 0xa3, 0x00, 0x20, 0x66, 0x89, 0x16, 0x04, 0x20][..], // rdtsc; mov [0x2000], edx:eax
		FORK,
		&[0x0f, 0x31, 0x66, 0xa3, 0x08, 0x20, 0x66, 0x89, 0x16, 0x0c, 0x20], // rdtsc; mov [0x2008], edx:eax
		STATUS_0,
		&[0xbe, 0x00, 0x20, 0xb9, 0x10, 0x00, 0xfc, 0xf3, 0x6e], // mov si, 0x2000; mov cx, 16; cld; rep outsb
		DONE,
	];
	Source::Tiny(code.concat())
}

/// On Linux 5.18 to 6.6 a TSC written within a second of a VM's own is taken for the VM's own: then this clone, of a
/// machine younger than its template was, has an older TSC.
#[test]
fn the_tsc_of_a_clone_does_not_go_back() {
	let Some(kvm) = kvm() else { return };
	// Now and then, in the lab on a busy machine, a guest that no clone is made of reads a TSC which KVM itself says it
	// hasn't reached. That shows nothing about clones.
	let tries = 5;
	assert!((0..tries).any(|_| tsc_goes_on(&kvm)), "KVM and its guest never agreed on the TSC");
}

/// Whether the template's guest had read what KVM says it can have; then all clones' are compared with it.
fn tsc_goes_on(kvm: &Kvm) -> bool {
	let (mut parent, vcpu0) = Machine::prepare(kvm, shape(4, 1), Box::new(std::io::sink())).unwrap();
	parent.spawn(vcpu0).unwrap();
	parent.boot(&tsc(), None).unwrap();
	// The template's TSC is behind that of a machine made later, and by less than a second.
	std::thread::sleep(Duration::from_millis(500));
	let frozen = freeze(&mut parent);
	let saved = frozen.state.tsc().unwrap();
	let clones = (0..3).map(|index| (index, clone(kvm, &frozen, index)));
	let wait = || std::thread::sleep(Duration::from_millis(100));
	let primed = (3..6).map(|index| (index, primed(kvm, &frozen, index, wait)));
	for (index, mut clone) in clones.chain(primed) {
		for again in [true, false] {
			clone.resume();
			let result = done(&mut clone);
			let [before, after] = [0, 8].map(|at| u64::from_le_bytes(std::array::from_fn(|i| result[at + i])));
			if before > saved {
				eprintln!("the template read {before}, and KVM said {saved} after it");
				return false;
			}
			assert!(after >= saved, "{before}, {saved} when it was frozen, then {after}");
			if again {
				clone.pause().unwrap();
				clone.rollback(&renewal(10 + index)).unwrap();
			}
		}
	}
	true
}

/// What holds with this kernel's KVM, again with that of Debian 12 in the lab, which is given `parameters`.
fn tsc_on_linux_6_1(parameters: &str) {
	lab::pass(Kernel::Debian6_1, parameters, &["--skip", "linux_6_1", "tsc"], 4);
}

#[test]
fn counters_and_deadlines_are_right_on_linux_6_1_too() {
	tsc_on_linux_6_1("");
}

/// There KVM gives a vCPU, each time it comes to a CPU, the TSC at which it last left its guest, and makes up for the
/// time since it was set (`kvm_arch_vcpu_load` and `tsc_catchup`, arch/x86/kvm/x86.c).
#[test]
fn the_tsc_of_clones_is_right_on_linux_6_1_where_that_of_the_host_is_unstable() {
	tsc_on_linux_6_1("tsc=unstable");
}

/// Turns kvmclock on, reads it, forks, reads it again, and gives back both readings: the structure and the TSC.
fn clock() -> Source {
	let code = [
		// mov ecx, MSR_KVM_SYSTEM_TIME_NEW; mov eax, 0x3001
		&[0x66, 0xb9, 0x01, 0x4d, 0x56, 0x4b, 0x66, 0xb8, 0x01, 0x30, 0x00, 0x00][..],
		&[0x66, 0x31, 0xd2, 0x0f, 0x30],       // xor edx, edx; wrmsr
		&[0xbe, 0x00, 0x30, 0xbf, 0x00, 0x31], // mov si, 0x3000; mov di, 0x3100
		&[0xb9, 0x10, 0x00, 0xfc, 0xf3, 0xa5], // mov cx, 16; cld; rep movsw
		&[0x0f, 0x31, 0x66, 0xa3, 0x20, 0x31, 0x66, 0x89, 0x16, 0x24, 0x31], // rdtsc; mov [0x3120], edx:eax
		FORK,
		&[0xbe, 0x00, 0x30, 0xbf, 0x28, 0x31, 0xb9, 0x10, 0x00, 0xf3, 0xa5], // the same again, to 0x3128
		&[0x0f, 0x31, 0x66, 0xa3, 0x48, 0x31, 0x66, 0x89, 0x16, 0x4c, 0x31],
		STATUS_0,
		&[0xbe, 0x00, 0x31, 0xb9, 0x50, 0x00, 0xf3, 0x6e], // mov si, 0x3100; mov cx, 80; rep outsb
		DONE,
	];
	Source::Tiny(code.concat())
}

/// Nanoseconds of `pvclock_vcpu_time_info` (Documentation/virt/kvm/x86/msr.rst) at the TSC that follows it, and its
/// flags.
fn reading(bytes: &[u8]) -> (u64, u8) {
	let word = |at: usize| u64::from_le_bytes(std::array::from_fn(|i| bytes[at + i]));
	let (then, time, factor) = (word(8), word(16), word(24) as u32);
	let (shift, flags, now) = (bytes[28] as i8, bytes[29], word(32));
	let cycles = now - then;
	let cycles = if shift < 0 { cycles >> -shift } else { cycles << shift };
	(time + ((u128::from(cycles) * u128::from(factor)) >> 32) as u64, flags)
}

const GUEST_STOPPED: u8 = 2;

#[test]
fn the_monotonic_clock_of_a_clone_neither_goes_back_nor_jumps_over_the_age_of_template_or_primed_shell() {
	let Some(kvm) = kvm() else { return };
	let begun = Instant::now();
	let (_parent, frozen) = template(&kvm, shape(4, 1), &clock());
	let get_old = || {
		let start = Instant::now();
		std::thread::sleep(Duration::from_secs(2));
		start.elapsed()
	};
	// A template does, and so does a machine that was primed.
	let mut age = get_old();
	let primed = primed(&kvm, &frozen, 5, || age += get_old());
	let clones = (0..5).map(|index| clone(&kvm, &frozen, index));
	for mut clone in std::iter::once(primed).chain(clones) {
		// And so may a clone that was made and not started.
		std::thread::sleep(Duration::from_millis(20));
		clone.resume();
		let result = done(&mut clone);
		let ((before, _), (after, flags)) = (reading(&result[..40]), reading(&result[40..]));
		assert!(after >= before, "went back by {} ns", before - after);
		// All else since the beginning may have been between the two, on a busy machine; the age was not.
		let most = begun.elapsed() - age + Duration::from_millis(500);
		assert!(u128::from(after - before) < most.as_nanos(), "jumped by {} ns of {most:?}", after - before);
		assert_eq!(flags & GUEST_STOPPED, GUEST_STOPPED, "the guest's watchdogs don't know that it stood still");
	}
}
