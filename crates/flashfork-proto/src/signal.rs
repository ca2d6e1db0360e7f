//! What a guest says to the monitor through three I/O ports, version 1.
//!
//! A guest that wants to send or receive more than the bare signal sets the page of its signal buffer once (4 KB, guest-physical),
//! writes the payload there, its length to [`PORT_LENGTH`], then the command word; all three are 32-bit writes. A read of
//! [`PORT_COMMAND`] then gives a status, and a read of [`PORT_LENGTH`] the length of the reply, which is in the same page.
//!
//! A single byte written to [`PORT_COMMAND`] is a signal without payload: 0x10, 0x20, 0x30 are those of the HyperFork thesis.

/// Write: [`command`] word or one byte. Read: status of the last command, [`OK`] or one of the errors below.
pub const PORT_COMMAND: u16 = 0x1234;
/// Write: bytes of payload, up to [`PAYLOAD_MAX`]. Read: bytes of reply.
pub const PORT_LENGTH: u16 = 0x1238;
/// Write: number of the 4 KB page of guest-physical memory that holds payload and reply; 0 for none.
pub const PORT_PAGE: u16 = 0x123c;
/// Ports taken, from [`PORT_COMMAND`] on.
pub const PORTS: u16 = 12;

/// Of the command word.
pub const VERSION: u8 = 1;
/// Most bytes of payload or reply: one page.
pub const PAYLOAD_MAX: usize = 4096;

/// Done as asked.
pub const OK: u32 = 0;
/// The command word has a version the monitor doesn't know.
pub const ERROR_VERSION: u32 = 1;
/// No such signal.
pub const ERROR_UNKNOWN: u32 = 2;
/// The payload is too long, or its page is not RAM.
pub const ERROR_PAYLOAD: u32 = 3;
/// Known, but not possible now.
pub const ERROR_REFUSED: u32 = 4;

/// A signal.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[repr(u8)]
pub enum Signal {
    /// The guest is warm: make a template here. Returns in every clone, with its [`CloneIdentity`](crate::CloneIdentity) as reply.
    Fork = 0x10,
    /// The guest's work is done, payload: its result. The VM ends.
    Done = 0x20,
    /// Restart the guest's stopwatch; reply: nanoseconds of the lap (u64).
    Reset = 0x30,
    /// A clone has fresh entropy, the right clock, and its hooks have run. Payload: the generation id (16 bytes) it was given.
    Alive = 0x40,
}

impl Signal {
    /// The signal with this number.
    pub fn from_number(number: u8) -> Option<Self> {
        [Self::Fork, Self::Done, Self::Reset, Self::Alive].into_iter().find(|signal| *signal as u8 == number)
    }
}

/// The word to write to [`PORT_COMMAND`].
pub const fn command(signal: Signal) -> u32 {
    (VERSION as u32) << 24 | signal as u32
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_and_signals_agree() {
        for signal in [Signal::Fork, Signal::Done, Signal::Reset, Signal::Alive] {
            assert_eq!(Signal::from_number(signal as u8), Some(signal));
        }
        assert_eq!(Signal::from_number(0), None);
        assert_eq!(command(Signal::Fork), 0x0100_0010);
    }
}
