//! Running, stopping, and what happens meanwhile.

use super::{Machine, MachineError};
#[cfg(test)]
use crate::cpu::Vcpu;
use crate::{devices::Devices, events::Event, memory::GuestMemory};
use flashfork_proto::shape::Shape;
use std::{
	os::fd::{AsFd, BorrowedFd},
	time::Duration,
};

impl Machine {
	/// Lets devices serve and all vCPUs run.
	pub fn resume(&mut self) {
		self.devices.resume();
		self.start(0);
	}

	/// As [`Machine::resume`]; `first_exit` is called on the thread of vCPU 0 when that has left the guest for the
	/// first time.
	pub fn resume_telling(&mut self, first_exit: impl FnOnce() + Send + 'static) {
		self.devices.resume();
		if self.running & 1 == 0 {
			self.vcpus[0].run_telling(first_exit);
		}
		self.start(1);
	}

	fn start(&mut self, from: usize) {
		for (id, vcpu) in self.vcpus.iter().enumerate().skip(from) {
			if self.running >> id & 1 == 0 {
				vcpu.run();
			}
		}
		self.running = u8::MAX >> (8 - self.vcpus.len());
	}

	/// Makes vCPU 0 leave the guest for a moment, should it be there.
	pub fn nudge(&self) {
		self.vcpus[0].nudge();
	}

	/// For a machine without memory, alone in its process: makes the claim as cheap as can be.
	pub fn vacate(&mut self) -> Result<(), MachineError> {
		Ok(self.ram.vacate()?)
	}

	/// Stops all vCPUs and devices; returns when none is in the guest, or touches its memory. What else happens
	/// meanwhile is kept for [`Machine::event`].
	pub fn pause(&mut self) -> Result<(), MachineError> {
		self.devices.hold();
		for (id, vcpu) in self.vcpus.iter().enumerate() {
			if self.running >> id & 1 == 1 {
				vcpu.stop();
			}
		}
		while self.running != 0 {
			let event = self.inbox.take(None).ok_or(MachineError::Gone(0))?;
			self.note(&event);
			if !is_stop(&event) {
				self.early.push_back(event);
			}
		}
		// After the vCPUs, whose last accesses may have been to devices.
		self.devices.pause();
		Ok(())
	}

	/// The next thing that happened; `None` if nothing did within `timeout` (without one: waits for ever).
	pub fn event(&mut self, timeout: Option<Duration>) -> Option<Event> {
		if let Some(event) = self.early.pop_front() {
			return Some(event);
		}
		let event = self.inbox.take(timeout)?;
		self.note(&event);
		Some(event)
	}

	/// A descriptor that is readable when [`Machine::event`] has something to give. Call [`Machine::rearm`] before
	/// asking.
	pub fn event_fd(&self) -> BorrowedFd<'_> {
		self.inbox.as_fd()
	}

	/// Makes [`Machine::event_fd`] unreadable until the next event.
	pub fn rearm(&self) {
		self.inbox.rearm();
	}

	/// Makes [`Machine::event_fd`] readable, for who stopped asking before there was nothing left.
	pub fn remind(&self) {
		self.inbox.remind();
	}

	/// What it was made as.
	pub fn shape(&self) -> &Shape {
		&self.shape
	}

	/// What `what` finds on a vCPU.
	#[cfg(test)]
	pub(crate) fn on_vcpu0<T: Send + 'static>(&self, what: impl FnOnce(&mut Vcpu) -> T + Send + 'static) -> T {
		self.vcpus[0].call(what).recv().unwrap()
	}

	/// Its memory, once it has some.
	pub fn memory(&self) -> &GuestMemory {
		self.ram.guest()
	}

	/// Its devices.
	pub fn devices(&self) -> &Devices {
		&self.devices
	}

	fn note(&mut self, event: &Event) {
		if let Event::Exit { vcpu, .. } = event {
			self.running &= !(1 << vcpu);
		}
	}
}

fn is_stop(event: &Event) -> bool {
	matches!(event, Event::Exit { exit: Ok(crate::cpu::Exit::Stopped), .. })
}

impl Drop for Machine {
	/// Stops the vCPUs and waits for their threads: closing the VM is the last thing.
	fn drop(&mut self) {
		// Fails only if a thread is gone already.
		let _ = self.pause();
		self.vcpus.clear();
		for thread in self.threads.drain(..) {
			let _ = thread.join();
		}
	}
}
