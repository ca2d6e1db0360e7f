//! From an empty machine to a clone, and back to where a clone started.

use super::{Frozen, Machine, MachineError};
use crate::{
	cpu::{TscOffset, Vcpu, VcpuState, VcpuStateError, wait_awake},
	devices::virtio::blk::Disk,
	memory::{Undo, Watch},
	state::MachineState,
};
use flashfork_proto::{shape::Pages, shell::Renewal};
use std::{
	sync::{Arc, mpsc::Receiver},
	time::{Duration, Instant},
};

/// What each step took.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct CloneTimes {
	/// Seals, shape and CPU checked.
	pub check: Duration,
	/// Memory mapped, or its writes undone.
	pub map: Duration,
	/// vCPUs set.
	pub vcpus: Duration,
	/// Timer, clock and interrupt controllers set.
	pub machine: Duration,
	/// Devices set, identity written.
	pub devices: Duration,
}

/// A machine's leave to become the clone that it was primed for: once.
#[derive(Debug)]
pub struct Primed(Arc<MachineState>);

impl Machine {
	/// Makes an empty machine a clone of `template`, with `cid` (3 or more) as its vsock context id. To be called on
	/// the thread of vCPU 0, with what [`Machine::prepare`] gave for it; [`Machine::resume`] starts it.
	///
	/// No memory slot, VM or vCPU is created. `README.md` has the order, and why.
	pub fn become_clone(
		&mut self,
		vcpu0: &mut Vcpu,
		template: &Frozen,
		renewal: &Renewal,
		cid: u32,
	) -> Result<CloneTimes, MachineError> {
		let (mut times, mut clock) = (CloneTimes::default(), Stopwatch::start());
		let state = self.adopt(template, &mut clock, &mut times)?;
		let tsc = tsc(&state);
		self.restore_vcpus(vcpu0, &state, move |vcpu, state| vcpu.restore_to_run(state, tsc))?;
		self.renew(&state, renewal, cid, &mut clock, &mut times)?;
		self.origin = Some(state);
		Ok(times)
	}

	/// The part of [`Machine::become_clone`] that may be done long before anybody asks for the clone: memory, disk, and
	/// of the vCPUs what time doesn't go on for. Nothing counts or ticks afterwards and nobody is interrupted.
	pub fn prime(&mut self, vcpu0: &mut Vcpu, template: &Frozen) -> Result<Primed, MachineError> {
		let state = self.adopt(template, &mut Stopwatch::start(), &mut CloneTimes::default())?;
		self.restore_vcpus(vcpu0, &state, Vcpu::prime)?;
		self.devices.prime(self.ram.guest())?;
		self.origin = Some(state.clone());
		Ok(Primed(state))
	}

	/// The rest of [`Machine::become_clone`], for a machine that was primed, on the same thread: TSC, timers and clock
	/// go on from where the template's stood, interrupts are where they were, and the clone is one of its own.
	pub fn go(
		&mut self,
		vcpu0: &mut Vcpu,
		Primed(state): Primed,
		renewal: &Renewal,
		cid: u32,
	) -> Result<CloneTimes, MachineError> {
		let (mut times, mut clock) = (CloneTimes::default(), Stopwatch::start());
		let tsc = tsc(&state);
		self.restore_vcpus(vcpu0, &state, move |vcpu, state| vcpu.restore_time(state, tsc))?;
		self.renew(&state, renewal, cid, &mut clock, &mut times)?;
		Ok(times)
	}

	/// Takes a paused clone, or the machine a template was made of, back to the template: memory, vCPUs, devices. It
	/// becomes another generation.
	pub fn rollback(&mut self, renewal: &Renewal) -> Result<CloneTimes, MachineError> {
		let mut clock = Stopwatch::start();
		if self.running != 0 {
			return Err(MachineError::Phase("still runs"));
		}
		let state = self.origin.clone().ok_or(MachineError::Phase("has no template to go back to"))?;
		// What was copied of what is dropped now would stay in the copy.
		self.end_branch()?;
		// What vCPUs did before belongs to the past.
		self.early.clear();
		let mut times = CloneTimes { check: clock.lap(), ..Default::default() };
		// Meanwhile the vCPUs look at what they have become, which writes nothing to memory.
		let looks = self.begin_on_vcpus(&state, 0, |vcpu, _| vcpu.note_fresh());
		let copied = self.undo_writes()?;
		self.devices.discard_disk_writes()?;
		wait(looks)?;
		times.map = clock.lap();
		let tsc = tsc(&state);
		wait(self.begin_on_vcpus(&state, 0, move |vcpu, state| {
			vcpu.note_events()?;
			if copied {
				vcpu.forget_translations(state)?;
			}
			vcpu.restore_to_run(state, tsc)
		}))?;
		times.vcpus = clock.lap();
		self.restore_rest(&state, renewal, &mut clock, &mut times)?;
		Ok(times)
	}

	/// For a machine that was given a [watch](Self::watch_with): its rollbacks keep what pages were written, and copy
	/// the template's content back, where they can and it pays. Otherwise they drop all of them.
	///
	/// Only where KVM has [two-dimensional paging](crate::kvm::two_dimensional), or with a guest that never turns
	/// paging on: KVM's shadows of page tables would stay what they were.
	pub fn copy_back(&mut self) {
		let can = self.shape.pages == Pages::Small && self.watch.as_ref().is_some_and(Watch::scans);
		self.undo = can.then(Undo::default);
	}

	/// Takes memory back to the template; whether pages that were written have been kept.
	fn undo_writes(&mut self) -> Result<bool, MachineError> {
		match (&mut self.undo, &self.watch, &self.template) {
			(Some(undo), Some(watch), Some(template)) => Ok(self.ram.undo_writes(undo, watch, template)?),
			_ => Ok(self.ram.discard_writes().map(|()| false)?),
		}
	}

	pub(super) fn check(&self, state: &MachineState) -> Result<(), MachineError> {
		if state.shape != self.shape {
			return Err(MachineError::Shape { template: state.shape.to_string(), machine: self.shape.to_string() });
		}
		match self.vm.cpuid.difference(&state.cpuid) {
			Some(leaf) => Err(MachineError::Cpuid(leaf)),
			None => Ok(()),
		}
	}

	/// Takes over what of `template` is not KVM's: checked, its memory mapped, its disks attached.
	fn adopt(
		&mut self,
		template: &Frozen,
		clock: &mut Stopwatch,
		times: &mut CloneTimes,
	) -> Result<Arc<MachineState>, MachineError> {
		if self.own.is_some() || self.origin.is_some() {
			return Err(MachineError::Phase("has memory already"));
		}
		let state = template.state.clone();
		self.check(&state)?;
		template.ram.check(self.shape.memory_bytes())?;
		times.check = clock.lap();
		self.ram.map_layers(&template.ram)?;
		self.template = Some(template.ram.clone());
		self.devices.attach_disks(template.disks.iter().map(Disk::copy).collect::<Result<_, _>>()?)?;
		times.map = clock.lap();
		Ok(state)
	}

	/// Has every vCPU do `what` with its state: that of number 0 on this thread, the others on theirs meanwhile.
	fn restore_vcpus(
		&self,
		vcpu0: &mut Vcpu,
		state: &Arc<MachineState>,
		what: impl Fn(&mut Vcpu, &VcpuState) -> Result<(), VcpuStateError> + Copy + Send + 'static,
	) -> Result<(), MachineError> {
		let others = self.begin_on_vcpus(state, 1, what);
		what(vcpu0, &state.vcpus[0]).map_err(|e| MachineError::Vcpu(0, e))?;
		wait(others)
	}

	/// Has the vCPUs from number `from` on do `what` with their state, each on its thread.
	fn begin_on_vcpus(
		&self,
		state: &Arc<MachineState>,
		from: u8,
		what: impl Fn(&mut Vcpu, &VcpuState) -> Result<(), VcpuStateError> + Copy + Send + 'static,
	) -> Vec<Restore> {
		let restore = |id: u8| {
			let (number, state) = (usize::from(id), state.clone());
			(id, self.vcpus[number].call(move |vcpu| what(vcpu, &state.vcpus[number])))
		};
		(from..self.shape.vcpus).map(restore).collect()
	}

	/// What is left when the vCPUs have been restored.
	fn renew(
		&mut self,
		state: &MachineState,
		renewal: &Renewal,
		cid: u32,
		clock: &mut Stopwatch,
		times: &mut CloneTimes,
	) -> Result<(), MachineError> {
		times.vcpus = clock.lap();
		self.devices.vsock().set_cid(cid);
		self.restore_rest(state, renewal, clock, times)
	}

	fn restore_rest(
		&mut self,
		state: &MachineState,
		renewal: &Renewal,
		clock: &mut Stopwatch,
		times: &mut CloneTimes,
	) -> Result<(), MachineError> {
		state.vm.restore(&self.vm)?;
		times.machine = clock.lap();
		self.devices.restore(&state.devices)?;
		self.devices.renew(&self.vm, self.ram.guest(), renewal, state.forked)?;
		times.devices = clock.lap();
		Ok(())
	}
}

type Restore = (u8, Receiver<Result<(), VcpuStateError>>);

/// For all vCPUs of a clone that is being made.
fn tsc(state: &MachineState) -> Option<TscOffset> {
	state.tsc().map(TscOffset::going_on_from)
}

fn wait(restores: Vec<Restore>) -> Result<(), MachineError> {
	for (id, restore) in restores {
		wait_awake(&restore).map_err(|_| MachineError::Gone(id))?.map_err(|e| MachineError::Vcpu(id, e))?;
	}
	Ok(())
}

/// Time from lap to lap.
struct Stopwatch(Instant);

impl Stopwatch {
	fn start() -> Self {
		Self(Instant::now())
	}

	fn lap(&mut self) -> Duration {
		let before = std::mem::replace(&mut self.0, Instant::now());
		self.0 - before
	}
}
