//! The claim: a machine that waits becomes a clone, or is given to the controller to boot.

use super::{
	ShellError, disk,
	serve::{Handed, Handover},
};
use crate::{
	boot::Source,
	cpu::VcpuLoop,
	jail,
	machine::{Blank, CloneTimes, Frozen, Machine},
	memory::Layered,
	state::MachineState,
};
use flashfork_proto::{
	shape::Shape,
	shell::{Boot, BootDisk, BootGuest, Channel, ClaimTimes, Ended, Extent, FromShell, Origin, ToShell},
};
use rustix::fs::fstat;
use std::{
	fs::File,
	os::fd::{AsFd, BorrowedFd, OwnedFd},
	sync::{Arc, mpsc::Receiver},
	time::Duration,
};

/// A machine without memory or state. Its thread is vCPU 0's.
pub(super) struct Waiting {
	pub(super) channel: Arc<Channel>,
	pub(super) shape: Shape,
	pub(super) machine: Machine,
	pub(super) vcpu0: VcpuLoop,
	pub(super) handover: Handover,
	/// Gives what became of the controller when it has ended.
	pub(super) controller: Receiver<Result<(), ShellError>>,
	/// For the claim's packet.
	pub(super) buffer: Vec<u8>,
}

/// Waits for a claim, or for a guest to boot, and lives on as vCPU 0. It may be primed for a template before.
pub(super) fn wait(shell: Waiting) -> Result<(), ShellError> {
	let Waiting { channel, shape, mut machine, mut vcpu0, handover, controller, mut buffer } = shell;
	let mut primed = None;
	loop {
		let received = channel.receive_into(&mut buffer)?;
		match (received.message, primed.take()) {
			(ToShell::Claim(claim), None) => {
				let template = template(&claim.origin, &claim.attach, received.descriptors)?;
				promise(&shape, overlays(&template))?;
				let checked = received.arrived.elapsed();
				let steps = machine.become_clone(vcpu0.vcpu(), &template, &claim.renewal, claim.cid)?;
				let times = times(checked, &steps);
				// Freed when there is time for it.
				let rest = (buffer, template, claim);
				machine.resume_telling(handover.start.first_exit(channel, times, rest));
				handover.give(Handed::Running(machine));
				break;
			}
			(ToShell::Prime(origin), None) => {
				let template = template(&origin, &[], received.descriptors)?;
				promise(&shape, overlays(&template))?;
				primed = Some(machine.prime(vcpu0.vcpu(), &template)?);
				channel.send(&FromShell::Primed, &[])?;
			}
			(ToShell::Populate(runs), Some(of)) => {
				machine.populate(&runs)?;
				channel.send(&FromShell::Primed, &[])?;
				primed = Some(of);
			}
			(ToShell::Go(go), Some(primed)) => {
				let checked = received.arrived.elapsed();
				let steps = machine.go(vcpu0.vcpu(), primed, &go.renewal, go.cid)?;
				let times = times(checked, &steps);
				machine.resume_telling(handover.start.first_exit(channel, times, (buffer, go)));
				handover.give(Handed::Running(machine));
				break;
			}
			(ToShell::Boot(boot), None) => {
				let (blank, source, disk) = guest(&shape, &boot, received.descriptors)?;
				promise(&shape, blank.overlay.iter().map(AsFd::as_fd))?;
				handover.give(Handed::ToBoot { machine, blank, source, disk, cid: boot.cid });
				break;
			}
			(ToShell::Stop, _) => return Ok(channel.send(&FromShell::Ended(Ended::Stopped), &[])?),
			(other, None) => return Err(ShellError::Order { got: name(&other), wanted: "Claim, Prime, Boot or Stop" }),
			(other, Some(_)) => return Err(ShellError::Order { got: name(&other), wanted: "Populate, Go or Stop" }),
		}
	}
	vcpu0.run();
	// The controller gave up the machine, so that it has a result, or will have none.
	controller.recv().unwrap_or(Ok(()))
}

/// What came with a claim or before one: the files of memory; of each of the template's disks its image and the files
/// of what was written to it; and of each that is attached, its image and an empty one.
fn template(origin: &Origin, attach: &[BootDisk], descriptors: Vec<OwnedFd>) -> Result<Frozen, ShellError> {
	let got = descriptors.len();
	let of_ram = files(&origin.ram);
	let wanted = of_ram + origin.disks.iter().map(|disk| 1 + files(disk)).sum::<usize>() + 2 * attach.len();
	let wrong = || ShellError::Descriptors { got, wanted };
	if got != wanted {
		return Err(wrong());
	}
	let mut descriptors = descriptors.into_iter();
	let ram = Layered::of(descriptors.by_ref().take(of_ram).collect(), origin.ram.clone());
	let mut disks = Vec::new();
	for extents in &origin.disks {
		let image = descriptors.next().ok_or_else(wrong)?;
		let overlay = descriptors.by_ref().take(files(extents)).collect();
		disks.push(disk::frozen(image, overlay, extents));
	}
	for disk in attach {
		let (image, overlay) = descriptors.next().zip(descriptors.next()).ok_or_else(wrong)?;
		disks.push(disk::attached(image, overlay, disk)?);
	}
	Ok(Frozen { ram, disks, state: Arc::new(MachineState::decode(&origin.state)?) })
}

/// The files by which disks tell how much may be written to them.
fn overlays(template: &Frozen) -> impl Iterator<Item = BorrowedFd<'_>> {
	template.disks.iter().filter_map(|disk| disk.overlay.files().first().map(AsFd::as_fd))
}

/// How many files such extents are of.
fn files(extents: &[Extent]) -> usize {
	extents.iter().map(|extent| usize::from(extent.file) + 1).max().unwrap_or(1)
}

/// Takes away whatever memory the guest wasn't promised, before there is one: RAM, and all that it could write to its
/// disks, twice because a disk that is frozen is mapped anew. A guest that stays in its monitor's hands is held to its
/// disks' limits; a shell taken over to this, and to its control group where it has one.
pub fn promise<'a>(shape: &Shape, overlays: impl IntoIterator<Item = BorrowedFd<'a>>) -> Result<(), ShellError> {
	let mut bytes = shape.memory_bytes();
	for overlay in overlays {
		let failed = |e: rustix::io::Errno| ShellError::System("find the size of a disk's overlay", e.into());
		let overlay = fstat(overlay).map_err(failed)?.st_size.unsigned_abs();
		// The bits of blocks that were written.
		let bits = overlay / 4096;
		bytes = bytes.saturating_add(2 * overlay + bits);
	}
	Ok(jail::promise(bytes)?)
}

/// What came with a guest to boot.
fn guest(
	shape: &Shape,
	boot: &Boot,
	descriptors: Vec<OwnedFd>,
) -> Result<(Blank, Source, Option<disk::Image>), ShellError> {
	let got = descriptors.len();
	let mut descriptors = descriptors.into_iter();
	let wanted = 1
		+ 2 * usize::from(shape.disk)
		+ match &boot.guest {
			BootGuest::Linux { initramfs, .. } => 1 + usize::from(*initramfs),
			BootGuest::Tiny(_) => 0,
		};
	let wrong = || ShellError::Descriptors { got, wanted };
	if got != wanted || boot.disk.is_some() != shape.disk {
		return Err(wrong());
	}
	let ram = descriptors.next().ok_or_else(wrong)?;
	let blank = Blank { ram, overlay: if shape.disk { descriptors.next() } else { None } };
	let mut files = descriptors.map(File::from);
	let source = match &boot.guest {
		BootGuest::Tiny(code) => Source::Tiny(code.clone()),
		BootGuest::Linux { cmdline, initramfs } => Source::Linux {
			kernel: files.next().ok_or_else(wrong)?,
			initrd: if *initramfs { files.next() } else { None },
			cmdline: cmdline.clone(),
		},
	};
	Ok((blank, source, files.next().zip(boot.disk.as_ref()).map(|(file, disk)| disk::image(file, disk))))
}

/// For the daemon; `checked` is what was done before the machine's own steps.
pub(super) fn times(checked: Duration, steps: &CloneTimes) -> ClaimTimes {
	ClaimTimes {
		check: nanoseconds(checked + steps.check),
		map: nanoseconds(steps.map),
		vcpus: nanoseconds(steps.vcpus),
		machine: nanoseconds(steps.machine),
		devices: nanoseconds(steps.devices),
		first_exit: 0,
	}
}

pub(super) fn nanoseconds(time: Duration) -> u64 {
	u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

pub(super) fn name(message: &ToShell) -> &'static str {
	match message {
		ToShell::Prepare(_) => "Prepare",
		ToShell::Boot(_) => "Boot",
		ToShell::Freeze => "Freeze",
		ToShell::Claim(_) => "Claim",
		ToShell::Copy => "Copy",
		ToShell::Branch { .. } => "Branch",
		ToShell::Abandon => "Abandon",
		ToShell::Refuse => "Refuse",
		ToShell::Connect { .. } => "Connect",
		ToShell::Pause => "Pause",
		ToShell::Resume => "Resume",
		ToShell::Rollback(_) => "Rollback",
		ToShell::Input(_) => "Input",
		ToShell::Stop => "Stop",
		ToShell::Prime(_) => "Prime",
		ToShell::Populate(_) => "Populate",
		ToShell::Go(_) => "Go",
		ToShell::Tell => "Tell",
		ToShell::Adopt(_) => "Adopt",
	}
}
