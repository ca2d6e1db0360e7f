//! Clones of a tiny guest: that they are copies, each of its own, and no reboots.

mod common;

use common::*;
use flashfork_proto::signal::Status;
use flashfork_vmm::{cpu::Exit, machine::Machine, state::MachineState};

#[test]
fn a_ram_nonce_proves_that_a_clone_is_no_reboot_and_siblings_do_not_see_each_other() {
	let Some(kvm) = kvm() else { return };
	let (_parent, frozen) = template(&kvm, shape(4, 1), &guest());
	for index in 0..3 {
		let mut clone = clone(&kvm, &frozen, index);
		clone.resume();
		assert_eq!(exit(&mut clone), result(NONCE, index as u32));
	}
}

#[test]
fn the_machine_a_template_was_made_of_goes_on_and_changes_nothing_in_it() {
	let Some(kvm) = kvm() else { return };
	let (mut parent, frozen) = template(&kvm, shape(4, 1), &guest());
	parent.devices().answer(Status::Ok, &[0; 12]);
	parent.resume();
	assert_eq!(exit(&mut parent), result(NONCE, 0));
	let mut clone = clone(&kvm, &frozen, 5);
	clone.resume();
	assert_eq!(exit(&mut clone), result(NONCE, 5));
}

#[test]
fn a_rollback_starts_again_from_the_template_as_another_generation() {
	let Some(kvm) = kvm() else { return };
	let (_parent, frozen) = template(&kvm, shape(4, 1), &guest());
	let mut clone = clone(&kvm, &frozen, 1);
	clone.resume();
	assert_eq!(exit(&mut clone), result(NONCE, 1));
	for index in 2..5 {
		clone.pause().unwrap();
		clone.rollback(&renewal(index)).unwrap();
		clone.resume();
		assert_eq!(exit(&mut clone), result(NONCE, index as u32));
	}
}

#[test]
fn a_primed_machine_is_that_template_s_clone_once_and_can_be_rolled_back() {
	let Some(kvm) = kvm() else { return };
	for vcpus in [1, 3] {
		let (_parent, frozen) = template(&kvm, shape(4, vcpus), &guest());
		let mut clones: Vec<_> = (1..3).map(|index| primed(&kvm, &frozen, index, || ())).collect();
		for (index, clone) in (1..).zip(&mut clones) {
			clone.resume();
			assert_eq!(exit(clone), result(NONCE, index));
		}
		let clone = &mut clones[0];
		clone.pause().unwrap();
		clone.rollback(&renewal(7)).unwrap();
		clone.resume();
		assert_eq!(exit(clone), result(NONCE, 7));
	}
}

#[test]
fn a_primed_machine_takes_no_other_template() {
	let Some(kvm) = kvm() else { return };
	let (_parent, frozen) = template(&kvm, shape(4, 1), &guest());
	let (mut machine, mut vcpu0) = Machine::prepare(&kvm, shape(4, 1), Box::new(std::io::sink())).unwrap();
	let _primed = machine.prime(vcpu0.vcpu(), &frozen).unwrap();
	let again = machine.prime(vcpu0.vcpu(), &frozen).unwrap_err();
	let claimed = machine.become_clone(vcpu0.vcpu(), &frozen, &renewal(1), 3).unwrap_err();
	assert!([again, claimed].iter().all(|e| e.to_string().contains("has memory already")));
}

#[test]
fn a_hundred_times_through_bytes_and_back() {
	let Some(kvm) = kvm() else { return };
	let (_parent, mut frozen) = template(&kvm, shape(4, 1), &guest());
	for _ in 0..100 {
		let bytes = frozen.state.encode().unwrap();
		frozen.state = MachineState::decode(&bytes).unwrap().into();
		assert_eq!(frozen.state.encode().unwrap(), bytes);
	}
	let mut clone = clone(&kvm, &frozen, 1);
	clone.resume();
	assert_eq!(exit(&mut clone), result(NONCE, 1));
}

#[test]
fn a_running_guest_stops_at_any_moment_and_goes_on() {
	let Some(kvm) = kvm() else { return };
	// jmp $
	let spin = flashfork_vmm::boot::Source::Tiny(vec![0xeb, 0xfe]);
	let (mut machine, vcpu0) =
		flashfork_vmm::machine::Machine::prepare(&kvm, shape(4, 1), Box::new(std::io::sink())).unwrap();
	machine.spawn(vcpu0).unwrap();
	machine.boot(&spin, None).unwrap();
	for _ in 0..50 {
		machine.resume();
		machine.pause().unwrap();
	}
	let frozen = machine.freeze(false).unwrap();
	let mut clone = clone(&kvm, &frozen, 0);
	clone.resume();
	clone.pause().unwrap();
}

#[test]
fn damaged_state_is_refused() {
	let Some(kvm) = kvm() else { return };
	let (_parent, frozen) = template(&kvm, shape(4, 1), &guest());
	let bytes = frozen.state.encode().unwrap();
	for at in (0..bytes.len()).step_by(97) {
		assert!(MachineState::decode(&bytes[..at]).is_err());
		let mut bad = bytes.clone();
		bad[at] ^= 1;
		assert!(MachineState::decode(&bad).is_err());
	}
}

#[test]
fn another_shape_is_refused() {
	let Some(kvm) = kvm() else { return };
	let (_parent, frozen) = template(&kvm, shape(4, 1), &guest());
	let (mut other, mut vcpu0) =
		flashfork_vmm::machine::Machine::prepare(&kvm, shape(8, 1), Box::new(std::io::sink())).unwrap();
	let refused = other.become_clone(vcpu0.vcpu(), &frozen, &renewal(0), 3).unwrap_err();
	assert!(refused.to_string().contains("the template is for"), "{refused}");
}

#[test]
fn a_guest_that_resets_itself_ends_only_its_own_machine() {
	let Some(kvm) = kvm() else { return };
	// mov dx, 0x602; out dx, al
	let source = flashfork_vmm::boot::Source::Tiny(vec![0xba, 0x02, 0x06, 0xee]);
	let (mut machine, vcpu0) =
		flashfork_vmm::machine::Machine::prepare(&kvm, shape(4, 1), Box::new(std::io::sink())).unwrap();
	machine.spawn(vcpu0).unwrap();
	machine.boot(&source, None).unwrap();
	machine.resume();
	assert_eq!(exit(&mut machine), Exit::Reset);
}
