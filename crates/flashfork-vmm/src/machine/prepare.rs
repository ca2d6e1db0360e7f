//! Everything that takes long, before anybody asks for a VM.

use super::{Machine, MachineError};
use crate::{
	cpu::{VcpuLoop, pair},
	devices::Devices,
	events,
	kvm::Vm,
	memory::Ram,
};
use flashfork_proto::shape::Shape;
use kvm_ioctls::Kvm;
use std::{collections::VecDeque, io::Write, sync::Arc, thread};

impl Machine {
	/// Makes a VM of `shape` with no memory and no state: every KVM object, eventfd and thread that it will need.
	/// Output of the guest's console goes to `console`.
	///
	/// The loop of vCPU 0 comes along: its thread is the one that makes a clone of the machine. Who doesn't mind calls
	/// [`Machine::spawn`] with it.
	pub fn prepare(kvm: &Kvm, shape: Shape, console: Box<dyn Write + Send>) -> Result<(Self, VcpuLoop), MachineError> {
		let descriptor = |e| MachineError::Resource("eventfd", e);
		let ram = Ram::reserve(&shape)?;
		let (vm, mut vcpus) = Vm::create(kvm, &shape, &ram)?;
		let (outbox, inbox) = events::queue().map_err(descriptor)?;
		let devices = Arc::new(Devices::new(&vm, &shape, ram.guest(), console, outbox.clone()).map_err(descriptor)?);
		for vcpu in &mut vcpus {
			vcpu.note_fresh().map_err(|e| MachineError::Vcpu(vcpu.id, e))?;
		}
		let (handles, mut loops): (Vec<_>, VecDeque<_>) =
			vcpus.into_iter().map(|vcpu| pair(vcpu, devices.clone(), outbox.clone())).unzip();
		let first = loops.pop_front().ok_or(MachineError::Phase("has no vCPU"))?;
		let mut machine = Self {
			shape,
			vcpus: handles,
			running: 0,
			threads: Vec::new(),
			inbox,
			early: VecDeque::new(),
			devices,
			own: None,
			origin: None,
			template: None,
			undo: None,
			watch: None,
			branching: None,
			vm,
			ram,
		};
		for body in loops {
			let id = body.id();
			machine.spawn(body)?;
			// What a thread does to begin with, a locked-in shell may not.
			machine.vcpus[usize::from(id)].call(|_| ()).recv().map_err(|_| MachineError::Gone(id))?;
		}
		Ok((machine, first))
	}

	/// Gives a vCPU a thread of its own.
	pub fn spawn(&mut self, mut body: VcpuLoop) -> Result<(), MachineError> {
		let name = format!("vcpu{}", body.vcpu().id);
		let thread = thread::Builder::new().name(name).spawn(move || body.run());
		self.threads.push(thread.map_err(|e| MachineError::Resource("thread", e))?);
		Ok(())
	}
}
