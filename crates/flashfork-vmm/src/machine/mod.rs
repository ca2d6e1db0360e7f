//! A whole VM: made empty, then booted or made a clone, run, paused, frozen, rolled back.

mod boot;
mod branch;
mod clone;
mod control;
mod error;
mod freeze;
mod known;
mod prepare;
mod rehearse;

pub use boot::Blank;
pub use branch::Deltas;
pub use clone::{CloneTimes, Primed};
pub use error::MachineError;
pub use freeze::Frozen;

use crate::{
	cpu::VcpuHandle,
	devices::Devices,
	events::{Event, Inbox},
	kvm::Vm,
	memory::{Layered, Ram, Undo, Watch},
	state::MachineState,
};
use branch::Branching;
use flashfork_proto::shape::Shape;
use std::{collections::VecDeque, os::fd::OwnedFd, sync::Arc, thread::JoinHandle};

/// A VM.
#[derive(Debug)]
pub struct Machine {
	shape: Shape,
	vcpus: Vec<VcpuHandle>,
	/// One bit per vCPU that was told to run and has not said that it stopped.
	running: u8,
	threads: Vec<JoinHandle<()>>,
	inbox: Inbox,
	/// Events that came while something else was waited for.
	early: VecDeque<Event>,
	devices: Arc<Devices>,
	/// Memory of a machine that was booted and not frozen yet.
	own: Option<OwnedFd>,
	/// Where a rollback goes back to.
	origin: Option<Arc<MachineState>>,
	template: Option<Layered>,
	/// If its rollbacks may copy memory back.
	undo: Option<Undo>,
	/// What it takes to be forked while it runs.
	watch: Option<Watch>,
	branching: Option<Branching>,
	vm: Vm,
	// Last: the VM's slots hold its addresses.
	ram: Ram,
}
