//! A device's MMIO window, where the guest's accesses arrive.

use super::{Transport, registers as reg};
use crate::devices::lock;
use std::sync::{
	Arc, Mutex, MutexGuard,
	atomic::{AtomicU32, Ordering},
};

/// Why the device interrupted the guest: the register `InterruptStatus`.
///
/// It belongs to no lock. A guest reads and acknowledges it in every interrupt, on a vCPU that does nothing else
/// meanwhile, and the transport's lock is held while requests are served: the image may be on a slow disk.
#[derive(Debug, Clone, Default)]
pub(super) struct Reasons(Arc<AtomicU32>);

impl Reasons {
	pub(super) fn get(&self) -> u32 {
		self.0.load(Ordering::Acquire)
	}

	pub(super) fn add(&self, why: u32) {
		self.0.fetch_or(why, Ordering::AcqRel);
	}

	pub(super) fn remove(&self, taken: u32) {
		self.0.fetch_and(!taken, Ordering::AcqRel);
	}
}

/// One device as the guest reaches it.
#[derive(Debug)]
pub struct Window {
	reasons: Reasons,
	transport: Arc<Mutex<Transport>>,
}

impl Window {
	/// Of a transport that is served already, or will be.
	pub(in crate::devices) fn new(transport: Arc<Mutex<Transport>>) -> Self {
		let reasons = lock(&transport).reasons();
		Self { reasons, transport }
	}

	/// The device, when it is at nothing else.
	pub(in crate::devices) fn transport(&self) -> MutexGuard<'_, Transport> {
		lock(&self.transport)
	}

	pub(in crate::devices) fn read(&self, offset: u64, data: &mut [u8]) {
		match <&mut [u8; 4]>::try_from(&mut *data) {
			Ok(word) if offset == reg::INTERRUPT_STATUS => *word = self.reasons.get().to_le_bytes(),
			_ => self.transport().read(offset, data),
		}
	}

	pub(in crate::devices) fn write(&self, offset: u64, data: &[u8]) {
		match <[u8; 4]>::try_from(data) {
			Ok(word) if offset == reg::INTERRUPT_ACK => self.reasons.remove(u32::from_le_bytes(word)),
			_ => self.transport().write(offset, data),
		}
	}
}
