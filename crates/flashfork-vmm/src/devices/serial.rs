//! The serial console: vm-superio's 16550 with an interrupt and a place for its output.

use super::DeviceStateError;
use crate::{kvm::Vm, layout};
use serde::{Deserialize, Serialize};
use std::{
	fmt,
	io::{self, Write},
	sync::{Arc, Mutex},
};
use vm_superio::{
	Serial, Trigger,
	serial::{NoEvents, SerialState as Registers},
};
use vmm_sys_util::eventfd::{EFD_NONBLOCK, EventFd};

/// Raises the serial port's interrupt.
#[derive(Debug, Clone)]
struct Interrupt(Arc<EventFd>);

impl Trigger for Interrupt {
	type E = io::Error;

	fn trigger(&self) -> io::Result<()> {
		self.0.write(1)
	}
}

/// Where output goes; survives a change of the port's state.
#[derive(Clone)]
struct Output(Arc<Mutex<Box<dyn Write + Send>>>);

impl Write for Output {
	fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
		super::lock(&self.0).write(bytes)
	}

	fn flush(&mut self) -> io::Result<()> {
		super::lock(&self.0).flush()
	}
}

/// COM1.
pub(super) struct Console {
	port: Serial<Interrupt, NoEvents, Output>,
	interrupt: Interrupt,
	output: Output,
}

impl Console {
	pub(super) fn new(vm: &Vm, output: Box<dyn Write + Send>) -> io::Result<Self> {
		let console = Self::unconnected(output)?;
		vm.fd.register_irqfd(&console.interrupt.0, layout::SERIAL_IRQ)?;
		Ok(console)
	}

	pub(super) fn unconnected(output: Box<dyn Write + Send>) -> io::Result<Self> {
		let interrupt = Interrupt(Arc::new(EventFd::new(EFD_NONBLOCK)?));
		let output = Output(Arc::new(Mutex::new(output)));
		let port = Serial::new(interrupt.clone(), output.clone());
		Ok(Self { port, interrupt, output })
	}

	/// What can't be written is lost, as on a line without a listener; so is an interrupt that is pending already.
	pub(super) fn write(&mut self, register: u16, data: &[u8]) {
		for &byte in data {
			let _ = self.port.write(register as u8, byte);
		}
	}

	pub(super) fn read(&mut self, register: u16, data: &mut [u8]) {
		data.fill_with(|| self.port.read(register as u8));
	}

	pub(super) fn input(&mut self, bytes: &[u8]) -> usize {
		let room = self.port.fifo_capacity().min(bytes.len());
		self.port.enqueue_raw_bytes(&bytes[..room]).unwrap_or(0)
	}

	pub(super) fn save(&self) -> SerialState {
		self.port.state().into()
	}

	pub(super) fn restore(&mut self, state: &SerialState) -> Result<(), DeviceStateError> {
		let (interrupt, output) = (self.interrupt.clone(), self.output.clone());
		self.port = Serial::from_state(&state.into(), interrupt, NoEvents, output)
			.map_err(|e| DeviceStateError::Serial(format!("{e:?}")))?;
		Ok(())
	}
}

impl fmt::Debug for Console {
	fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
		f.debug_struct("Console").finish_non_exhaustive()
	}
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct SerialState {
	divisor: [u8; 2],
	interrupt_enable: u8,
	interrupt_identification: u8,
	line_control: u8,
	line_status: u8,
	modem_control: u8,
	modem_status: u8,
	scratch: u8,
	input: Vec<u8>,
}

impl From<Registers> for SerialState {
	fn from(r: Registers) -> Self {
		Self {
			divisor: [r.baud_divisor_low, r.baud_divisor_high],
			interrupt_enable: r.interrupt_enable,
			interrupt_identification: r.interrupt_identification,
			line_control: r.line_control,
			line_status: r.line_status,
			modem_control: r.modem_control,
			modem_status: r.modem_status,
			scratch: r.scratch,
			input: r.in_buffer,
		}
	}
}

impl From<&SerialState> for Registers {
	fn from(s: &SerialState) -> Self {
		Self {
			baud_divisor_low: s.divisor[0],
			baud_divisor_high: s.divisor[1],
			interrupt_enable: s.interrupt_enable,
			interrupt_identification: s.interrupt_identification,
			line_control: s.line_control,
			line_status: s.line_status,
			modem_control: s.modem_control,
			modem_status: s.modem_status,
			scratch: s.scratch,
			in_buffer: s.input.clone(),
		}
	}
}
