//! What daemon and shell say to each other: one message per packet of a `SOCK_SEQPACKET` socket, in postcard.

use crate::{CloneIdentity, Shape, signal::Signal};
use serde::{Deserialize, Serialize};

/// Descriptor at which a shell finds its socket.
pub const SOCKET_FD: i32 = 3;
/// Descriptor at which a shell finds `/dev/kvm`.
pub const KVM_FD: i32 = 4;
/// Largest packet, in bytes: the state of 8 vCPUs fits several times.
pub const MAX_PACKET: usize = 192 << 10;

/// Daemon to shell.
#[derive(Debug, Serialize, Deserialize)]
pub enum Request<'a> {
    /// First of all: make every KVM object of this shape. Answer: [`Event::Ready`].
    Prepare(Shape),
    /// Become a clone. Attached: the template's RAM, then each disk's layer and base. Answer: [`Event::Claimed`].
    Claim {
        /// `MachineState`, encoded.
        #[serde(borrow)]
        state: &'a [u8],
        /// Who the clone is.
        identity: CloneIdentity,
    },
    /// Stop the clone's vCPUs.
    Pause,
    /// Let them go on.
    Resume,
    /// Back to the template, in place, under a new identity.
    Rollback(CloneIdentity),
    /// Connect the attached stream socket to a vsock port of the guest.
    Connect {
        /// The guest's port.
        port: u32,
    },
    /// Bytes for the guest's serial console.
    Input(#[serde(borrow)] &'a [u8]),
}

/// Shell to daemon.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Event {
    /// Every KVM object exists, the jail is shut.
    Ready,
    /// The clone runs: it has left the guest for the first time.
    Claimed(ClaimTimes),
    /// The guest echoed its generation id: entropy, clock and hooks are done.
    Alive,
    /// The guest sent a signal with this payload.
    Signal(Signal, Vec<u8>),
    /// The guest wrote to its serial console.
    Console(Vec<u8>),
    /// The VM ended: by `DONE`, power off or reset.
    Ended(End),
    /// A request failed; the text says what, why and what to do.
    Failed(String),
}

/// How a VM ended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum End {
    /// Signal `DONE`, with its payload.
    Done(Vec<u8>),
    /// The guest powered off.
    PowerOff,
    /// The guest reset itself, or met a triple fault.
    Reset,
}

/// Nanoseconds of each step of a claim, in the shell, from the message received on.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClaimTimes {
    /// Message decoded, seals and state checked.
    pub check: u64,
    /// RAM mapped.
    pub map: u64,
    /// Devices restored, identity written.
    pub devices: u64,
    /// Interrupt controllers, timer and clock set.
    pub machine: u64,
    /// vCPUs set.
    pub vcpus: u64,
    /// From `KVM_RUN` to the guest's first exit.
    pub first_exit: u64,
}

impl ClaimTimes {
    /// All steps together.
    pub fn total(&self) -> u64 {
        self.check + self.map + self.devices + self.machine + self.vcpus + self.first_exit
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::PageSize;

    #[test]
    fn messages_survive_the_socket() {
        let shape = Shape { memory_mib: 256, vcpus: 1, page: PageSize::Small, disks: 0 };
        let identity = CloneIdentity { index: 1, wall_ns: 2, generation: [3; 16], entropy: [4; 64], job: vec![5] };
        for request in [
            Request::Prepare(shape),
            Request::Claim { state: &[1, 2, 3], identity: identity.clone() },
            Request::Pause,
            Request::Resume,
            Request::Rollback(identity),
            Request::Connect { port: 1024 },
            Request::Input(b"ls\n"),
        ] {
            let bytes = postcard::to_stdvec(&request).unwrap();
            let back: Request = postcard::from_bytes(&bytes).unwrap();
            assert_eq!(format!("{back:?}"), format!("{request:?}"));
        }
        let event = Event::Ended(End::Done(b"42".to_vec()));
        assert_eq!(postcard::from_bytes::<Event>(&postcard::to_stdvec(&event).unwrap()).unwrap(), event);
    }
}
