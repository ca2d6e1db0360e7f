//! The guest's side, over whatever can reach I/O ports.

use super::{COMMAND_PORT, DATA_PORT, Done, Forked, LENGTH_PORT, MAX_PAYLOAD, Signal, Status, VERSION, command};
use crate::Generation;

/// Access to I/O ports.
pub trait PortIo {
    /// `out`, one byte.
    fn write_byte(&mut self, port: u16, value: u8);
    /// `out`, four bytes.
    fn write_word(&mut self, port: u16, value: u32);
    /// `in`, one byte.
    fn read_byte(&mut self, port: u16) -> u8;
    /// `in`, four bytes.
    fn read_word(&mut self, port: u16) -> u32;
    /// `rep outsb`.
    fn write_bytes(&mut self, port: u16, bytes: &[u8]);
    /// `rep insb`.
    fn read_bytes(&mut self, port: u16, bytes: &mut [u8]);
}

/// Why a signal had no effect.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum GuestError {
    /// Nobody listens on the ports.
    #[error("no monitor answers on I/O port {COMMAND_PORT:#x}: this machine does not run under flashfork")]
    NoMonitor,
    /// The monitor speaks another version.
    #[error("the monitor speaks version {0} of the signal ports, this is {VERSION}: rebuild the image")]
    Version(u32),
    /// The monitor did not do it.
    #[error("the monitor answered {0:?}")]
    Status(Status),
    /// The monitor's reply is not of the documented form.
    #[error("the monitor's reply makes no sense")]
    Reply,
}

/// The signals a guest can give.
#[derive(Debug)]
pub struct Signals<P>(P);

impl<P: PortIo> Signals<P> {
    /// Makes sure that a monitor of this version listens.
    ///
    /// # Errors
    /// [`GuestError::NoMonitor`], [`GuestError::Version`].
    pub fn find(ports: P) -> Result<Self, GuestError> {
        let mut signals = Self(ports);
        let reply = match signals.transact(command::VERSION, &[]) {
            Ok(reply) => reply,
            // Whatever else decodes these ports is no monitor.
            Err(_) => return Err(GuestError::NoMonitor),
        };
        let version = reply.first_chunk().map(|bytes| u32::from_le_bytes(*bytes)).ok_or(GuestError::NoMonitor)?;
        if version == VERSION { Ok(signals) } else { Err(GuestError::Version(version)) }
    }

    /// Says that the guest is warm. Returns in the template, if that goes on, and in every clone.
    ///
    /// # Errors
    /// [`GuestError::Status`], [`GuestError::Reply`].
    pub fn fork(&mut self) -> Result<Forked, GuestError> {
        let reply = self.signal(&Signal::Fork)?;
        Forked::decode(&reply).ok_or(GuestError::Reply)
    }

    /// Says that the work is over. A monitor ends the guest and this does not return.
    ///
    /// # Errors
    /// [`GuestError::Status`].
    pub fn done(&mut self, status: u32, result: &[u8]) -> Result<(), GuestError> {
        self.signal(&Signal::Done(Done { status, result: result.to_vec() })).map(drop)
    }

    /// Restarts the monitor's timer and returns the nanoseconds it had run.
    ///
    /// # Errors
    /// [`GuestError::Status`], [`GuestError::Reply`].
    pub fn reset(&mut self) -> Result<u64, GuestError> {
        let reply = self.signal(&Signal::Reset)?;
        reply.first_chunk().map(|bytes| u64::from_le_bytes(*bytes)).ok_or(GuestError::Reply)
    }

    /// Says that this clone is ready for use.
    ///
    /// # Errors
    /// [`GuestError::Status`] with [`Status::Refused`] if `generation` is not this clone's.
    pub fn alive(&mut self, generation: &Generation) -> Result<(), GuestError> {
        self.signal(&Signal::Alive(*generation)).map(drop)
    }

    fn signal(&mut self, signal: &Signal) -> Result<Vec<u8>, GuestError> {
        let (number, payload) = signal.encode();
        self.transact(number, &payload)
    }

    fn transact(&mut self, number: u8, payload: &[u8]) -> Result<Vec<u8>, GuestError> {
        self.0.write_word(LENGTH_PORT, 0);
        if !payload.is_empty() {
            self.0.write_bytes(DATA_PORT, payload);
        }
        self.0.write_byte(COMMAND_PORT, number);
        match Status::from_number(self.0.read_byte(COMMAND_PORT)) {
            Some(Status::Ok) => {}
            Some(status) => return Err(GuestError::Status(status)),
            None => return Err(GuestError::NoMonitor),
        }
        let length = self.0.read_word(LENGTH_PORT) as usize;
        if length > MAX_PAYLOAD {
            return Err(GuestError::Reply);
        }
        let mut reply = vec![0; length];
        if length > 0 {
            self.0.read_bytes(DATA_PORT, &mut reply);
        }
        Ok(reply)
    }
}
