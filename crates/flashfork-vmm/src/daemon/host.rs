//! What KVM can do here: boots Linux guests, runs guests of a few bytes, or nothing, and how that was found. By trying.

use super::{Settings, boot, error::DaemonError};
use crate::{kvm, pool::Pools};
use flashfork_image::{KernelFiles, guest::SERIES};
use flashfork_proto::{
	api::{CreateTemplate, HostKvm, Ready},
	shape::{Pages, Shape},
};
use std::sync::Arc;

/// mov dx, 0x1234; mov al, FORK; out dx, al; hlt
const FORK: [u8; 7] = [0xba, 0x34, 0x12, 0xb0, 0x10, 0xee, 0xf4];

/// Seconds for each try. A Linux guest on KVM takes less than one, in the lab ten.
const PATIENCE: u32 = 40;

pub(super) fn probe(settings: &Settings, pools: &Pools, cid: u32) -> (HostKvm, String) {
	let request = |memory_mib, tiny| CreateTemplate {
		name: "probe".into(),
		shape: Shape { memory_mib, vcpus: 1, pages: Pages::Small, disk: false, disk_slots: 0 },
		kernel: None,
		initramfs: None,
		tiny,
		append: String::new(),
		disk: None,
		disk_limit_mib: 0,
		disk_serial: None,
		disk_read_only: false,
		ready: Ready::Agent,
		max_clones: None,
		timeout_s: PATIENCE,
	};
	let client = Arc::new(());
	let tried =
		|memory_mib, tiny| boot::boot(settings, pools, &request(memory_mib, tiny), cid, &Arc::downgrade(&client));
	if let Err(e) = tried(2, Some(FORK.to_vec())) {
		return (HostKvm::None, format!("no guest runs: {e}"));
	}
	// Who asks what a host can do wants an answer, not a download.
	match KernelFiles::cached(SERIES, &settings.cache) {
		Ok(Some(_)) => {}
		Ok(None) => {
			let detail = "that takes a kernel: flashfork vm run -- true downloads Debian's, once, and tries".into();
			return (HostKvm::Untried, detail);
		}
		Err(e) => return (HostKvm::Untried, e.to_string()),
	}
	match tried(256, None) {
		Ok((_, ns)) => {
			let rollbacks = match kvm::two_dimensional() {
				Some(true) => "",
				_ => "; rollbacks drop all that it wrote, because KVM has no EPT or NPT here",
			};
			let detail = format!("a Linux guest was ready {:.2} s after power-on{rollbacks}", ns as f64 / 1e9);
			(HostKvm::Linux, detail)
		}
		Err(e @ (DaemonError::Shell(_) | DaemonError::Unrunnable(_))) => {
			(HostKvm::Tiny, format!("a tiny guest runs, Linux does not: {e}"))
		}
		// It never came to a guest, which says nothing of KVM.
		Err(e) => (HostKvm::Untried, e.to_string()),
	}
}
