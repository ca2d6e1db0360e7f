//! Templates and their clones.

use std::{
	fs::File,
	os::fd::{AsFd, BorrowedFd, OwnedFd},
	sync::Arc,
};

use flashfork_proto::{
	agent::CloneIdentity,
	shape::Shape,
	shell::{Claim, ClaimTimes, FromShell, Go, Origin, Renewal, Run, ToShell},
};
use flashfork_vmm::{
	devices::virtio::blk::{FrozenDisk, overlay_bytes},
	machine::Frozen,
	memory::Layered,
	pool::Shell,
	state::MachineState,
};

use super::{CID, MemoryPages, PATIENCE, huge_share, resident, until, vm};
use crate::prelude::*;

/// What clones are made of.
pub struct Template {
	pub shape: Shape,
	pub pages: MemoryPages,
	/// The share of its memory on 2 MB pages, 0 to 1.
	pub huge_fraction: f64,
	pub ram: Layered,
	pub state: Vec<u8>,
	pub disk: Option<Arc<FrozenDisk>>,
	/// Pages of its memory that clones are known to write, for those that are primed.
	pub written: Vec<Run>,
}

/// A claim as its client saw it.
#[derive(Clone, Copy)]
pub struct Claimed {
	/// From before the request was encoded until the answer, which comes with the guest's first exit.
	pub total: Duration,
	/// Of it, encoding the request and handing it to the socket.
	pub send: Duration,
	/// What the shell measured in between.
	pub times: ClaimTimes,
}

impl Template {
	/// Freezes the guest that runs in `shell`, once it has signalled that it is ready. If `noise`, every page of its
	/// memory is there afterwards, and what the guest had not touched holds noise; otherwise zeros.
	pub fn freeze(shell: &Shell, shape: Shape, pages: MemoryPages, noise: bool) -> Result<Self> {
		let (ram, _, state) = freeze(shell)?;
		let (ram, huge_fraction) = resident(&ram, shape.memory_bytes(), pages, noise)?;
		let ram = Layered::single(ram, shape.memory_bytes());
		Ok(Self { shape, pages, huge_fraction, ram, state, disk: None, written: Vec::new() })
	}

	/// The same template, its memory on other pages of the same shape.
	pub fn on(&self, pages: MemoryPages) -> Result<Self> {
		let bytes = self.shape.memory_bytes();
		let [ram] = self.ram.files() else { return Err(vm("a template of a fork stays on its pages")) };
		let (ram, huge_fraction) = resident(ram, bytes, pages, false)?;
		let ram = Layered::single(ram, bytes);
		Ok(Self {
			pages,
			huge_fraction,
			ram,
			state: self.state.clone(),
			disk: self.disk.clone(),
			written: Vec::new(),
			..*self
		})
	}

	/// As [`Template::freeze`], its memory as guest and monitor left it: the huge share is of what is there. `image`:
	/// what its disk is over, if it has one.
	pub fn freeze_as_it_is(shell: &Shell, shape: Shape, pages: MemoryPages, image: Option<&File>) -> Result<Self> {
		let (ram, overlay, state) = freeze(shell)?;
		let huge_fraction = huge_share(&ram, shape.memory_bytes(), pages)?;
		let ram = Layered::single(ram, shape.memory_bytes());
		let disk = image.zip(overlay).map(|(image, overlay)| -> std::io::Result<_> {
			let bytes = overlay_bytes(image.metadata()?.len());
			let overlay = Layered::single(overlay, bytes);
			Ok(Arc::new(FrozenDisk { image: image.try_clone()?.into(), overlay, attached: None, seen: None }))
		});
		let disk = disk.transpose().or_cant("keep a template's disk")?;
		Ok(Self { shape, pages, huge_fraction, ram, state, disk, written: Vec::new() })
	}

	/// For a machine in this process.
	pub fn frozen(&self) -> Result<Frozen> {
		let state = MachineState::decode(&self.state).map_err(vm)?;
		Ok(Frozen { ram: self.ram.clone(), disks: Vec::new(), state: Arc::new(state) })
	}

	/// Of how many files its memory is made, and of how many pieces of them.
	pub fn layers(&self) -> [usize; 2] {
		[self.ram.files().len(), self.ram.extents().len()]
	}

	/// Whether what is measured of it is about 2 MB pages.
	pub fn is_huge(&self) -> bool {
		self.huge_fraction > 0.5
	}

	/// Gives a prepared shell of the same shape all but what makes a clone one of its own.
	pub fn prime(&self, shell: &mut Shell) -> Result {
		shell.prime(self.origin(), &self.descriptors(), 0, &self.written).map_err(vm)
	}

	/// Has the clone in `shell`, whose agent has just answered, tell what it has written: the next ones that are primed
	/// have that there.
	pub fn learn(&mut self, shell: &Shell) -> Result {
		shell.send(&ToShell::Tell, &[]).map_err(vm)?;
		loop {
			if let FromShell::Written(runs) = shell.receive(PATIENCE).map_err(vm)?.0 {
				self.written = runs;
				return Ok(());
			}
		}
	}

	/// What a shell gets with its memory.
	fn origin(&self) -> Origin {
		let disks = self.disk.iter().map(|disk| disk.overlay.extents().to_vec()).collect();
		Origin { state: self.state.clone(), ram: self.ram.extents().to_vec(), disks }
	}

	fn descriptors(&self) -> Vec<BorrowedFd<'_>> {
		let mut descriptors: Vec<_> = self.ram.files().iter().map(|file| file.as_fd()).collect();
		if let Some(disk) = &self.disk {
			descriptors.push(disk.image.as_fd());
			descriptors.extend(disk.overlay.files().iter().map(|file| file.as_fd()));
		}
		descriptors
	}

	/// Makes a prepared shell of the same shape, primed or not, the clone number `index`.
	pub fn claim(&self, shell: &Shell, index: u64) -> Result<Claimed> {
		let renewal = renewal(index);
		let start = Instant::now();
		let sent = if shell.is_primed() {
			shell.send(&ToShell::Go(Box::new(Go { renewal, cid: CID })), &[])
		} else {
			let claim = Claim { renewal, cid: CID, origin: self.origin(), attach: Vec::new() };
			shell.send(&ToShell::Claim(Box::new(claim)), &self.descriptors())
		};
		sent.map_err(vm)?;
		let send = start.elapsed();
		match shell.receive(PATIENCE).map_err(vm)?.0 {
			FromShell::Claimed(times) => Ok(Claimed { total: start.elapsed(), send, times }),
			FromShell::Failed(why) => Err(vm(why)),
			other => Err(vm(format!("an answer out of turn: {other:?}"))),
		}
	}
}

/// Drops what the clone in `shell` has written, and makes it the clone number `index`.
pub fn roll_back(shell: &Shell, index: u64) -> Result {
	shell.send(&ToShell::Rollback(Box::new(renewal(index))), &[]).map_err(vm)?;
	until(shell, |message| matches!(message, FromShell::Claimed(_)), "be rolled back")
}

/// Memory, what was written to the disk if any, and state.
fn freeze(shell: &Shell) -> Result<(OwnedFd, Option<OwnedFd>, Vec<u8>)> {
	until(shell, |message| matches!(message, FromShell::Forked), "signal that it is ready")?;
	shell.send(&ToShell::Freeze, &[]).map_err(vm)?;
	loop {
		match shell.receive(PATIENCE).map_err(vm)? {
			(FromShell::Frozen { state }, descriptors) => {
				let mut descriptors = descriptors.into_iter();
				let ram = descriptors.next().ok_or_else(|| vm("a template without memory"))?;
				return Ok((ram, descriptors.next(), state));
			}
			(FromShell::Failed(why), _) => return Err(vm(why)),
			(FromShell::Ended(ended), _) => return Err(vm(format!("a guest ended while it was frozen: {ended:?}"))),
			_ => {}
		}
	}
}

/// What makes clone number `index` one of its own.
pub fn renewal(index: u64) -> Renewal {
	let mut random = fastrand::Rng::new();
	let mut bytes = [0; 48];
	random.fill(&mut bytes);
	let (generation, entropy) = bytes.split_at(16);
	let copy = "of the right length";
	let identity = CloneIdentity {
		name: format!("bench-{index}"),
		index,
		generation: generation.try_into().expect(copy),
		job: Vec::new(),
	};
	Renewal { identity, entropy: entropy.try_into().expect(copy), disks: Vec::new() }
}
