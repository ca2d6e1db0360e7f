//! virtio-rng: the host's random bytes, fresh for every request; nothing is kept, so nothing can be cloned.

use super::device::{Broken, Queues, VirtioDevice};
use event_manager::EventOps;
use std::io::Write;
use virtio_bindings::virtio_ids::VIRTIO_ID_RNG;

/// Most bytes given for one request; a driver that wants more asks again.
const MAX_REQUEST: usize = 256;

/// The entropy device.
#[derive(Debug, Default)]
pub struct Rng;

impl VirtioDevice for Rng {
	fn kind(&self) -> u32 {
		VIRTIO_ID_RNG
	}

	fn queue_sizes(&self) -> &[u16] {
		&[64]
	}

	fn notified(&mut self, index: usize, queues: &mut Queues<'_>, _: &mut EventOps<'_>) -> Result<(), Broken> {
		while let Some(chain) = queues.pop(index) {
			let head = chain.head_index();
			let mut writer = chain.writer(queues.memory).map_err(|e| Broken(e.to_string()))?;
			let mut bytes = [0; MAX_REQUEST];
			let wanted = writer.available_bytes().min(MAX_REQUEST);
			// Up to 256 bytes getrandom(2) gives at once and wholly.
			let given = rustix::rand::getrandom(&mut bytes[..wanted], rustix::rand::GetRandomFlags::empty());
			let given = given.map_err(|e| Broken(format!("no entropy on the host: {e}")))?;
			writer.write_all(&bytes[..given]).map_err(|e| Broken(e.to_string()))?;
			queues.push(index, head, given as u32)?;
		}
		Ok(())
	}

	fn reset(&mut self) {}
}
