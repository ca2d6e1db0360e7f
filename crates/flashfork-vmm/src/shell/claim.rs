//! The claim: a machine that waits becomes a clone, or is given to the controller to boot.

use super::serve::{Handed, Handover};
use super::{ShellError, disk};
use crate::boot::Source;
use crate::cpu::VcpuLoop;
use crate::machine::{CloneTimes, Frozen, Machine};
use crate::state::MachineState;
use flashfork_proto::shape::Shape;
use flashfork_proto::shell::{Boot, BootGuest, Channel, Claim, ClaimTimes, Ended, FromShell, ToShell};
use std::fs::File;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::mpsc::Receiver;
use std::time::Duration;

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

/// Waits for a claim, or for a guest to boot, and lives on as vCPU 0.
pub(super) fn wait(shell: Waiting) -> Result<(), ShellError> {
    let Waiting { channel, shape, mut machine, mut vcpu0, handover, controller, mut buffer } = shell;
    let received = channel.receive_into(&mut buffer)?;
    match received.message {
        ToShell::Claim(claim) => {
            let template = template(&shape, &claim, received.descriptors)?;
            let checked = received.arrived.elapsed();
            let steps = machine.become_clone(vcpu0.vcpu(), &template, &claim.renewal, claim.cid)?;
            let times = times(checked, &steps);
            // Freed when there is time for it.
            let rest = (buffer, template, claim);
            machine.resume_telling(handover.start.first_exit(channel, times, rest));
            handover.give(Handed::Running(machine));
        }
        ToShell::Boot(boot) => {
            let (source, disk) = guest(&shape, &boot, received.descriptors)?;
            handover.give(Handed::ToBoot { machine, source, disk, cid: boot.cid });
        }
        ToShell::Stop => return Ok(channel.send(&FromShell::Ended(Ended::Stopped), &[])?),
        other => return Err(ShellError::Order { got: name(&other), wanted: "Claim, Boot or Stop" }),
    }
    vcpu0.run();
    // The controller gave up the machine, so that it has a result, or will have none.
    controller.recv().unwrap_or(Ok(()))
}

/// What came with a claim: memory and, if there is a disk, its image and what the template wrote to it.
fn template(shape: &Shape, claim: &Claim, descriptors: Vec<OwnedFd>) -> Result<Frozen, ShellError> {
    let got = descriptors.len();
    let mut descriptors = descriptors.into_iter();
    let wanted = if shape.disk { 3 } else { 1 };
    let (Some(ram), true) = (descriptors.next(), got == wanted) else {
        return Err(ShellError::Descriptors { got, wanted });
    };
    let disk = descriptors.next().zip(descriptors.next()).map(|(image, overlay)| disk::frozen(image, overlay));
    Ok(Frozen { ram, disk, state: Arc::new(MachineState::decode(&claim.state)?) })
}

/// What came with a guest to boot.
fn guest(shape: &Shape, boot: &Boot, descriptors: Vec<OwnedFd>) -> Result<(Source, Option<disk::Image>), ShellError> {
    let got = descriptors.len();
    let mut files = descriptors.into_iter().map(File::from);
    let wanted = usize::from(shape.disk)
        + match &boot.guest {
            BootGuest::Linux { initramfs, .. } => 1 + usize::from(*initramfs),
            BootGuest::Tiny(_) => 0,
        };
    let wrong = ShellError::Descriptors { got, wanted };
    if got != wanted || boot.disk.is_some() != shape.disk {
        return Err(wrong);
    }
    let source = match &boot.guest {
        BootGuest::Tiny(code) => Source::Tiny(code.clone()),
        BootGuest::Linux { cmdline, initramfs } => Source::Linux {
            kernel: files.next().ok_or(wrong)?,
            initrd: if *initramfs { files.next() } else { None },
            cmdline: cmdline.clone(),
        },
    };
    Ok((source, files.next().zip(boot.disk.as_ref()).map(|(file, disk)| disk::image(file, disk))))
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

/// Of a message, for errors.
pub(super) fn name(message: &ToShell) -> &'static str {
    match message {
        ToShell::Prepare(_) => "Prepare",
        ToShell::Boot(_) => "Boot",
        ToShell::Freeze => "Freeze",
        ToShell::Claim(_) => "Claim",
        ToShell::Connect { .. } => "Connect",
        ToShell::Pause => "Pause",
        ToShell::Resume => "Resume",
        ToShell::Rollback(_) => "Rollback",
        ToShell::Input(_) => "Input",
        ToShell::Stop => "Stop",
    }
}
