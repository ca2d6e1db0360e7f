//! Why a vCPU stopped.

use crate::devices::Action;
use flashfork_proto::signal::Signal;

/// A vCPU left the guest and doesn't go back by itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Exit {
	/// It was asked to.
	Stopped,
	/// The guest sent a signal that the monitor must act on first.
	Signal(Signal),
	/// The guest powered off.
	PowerOff,
	/// The guest reset itself, or met a triple fault.
	Reset,
}

impl Exit {
	/// The exit a device's action leads to, if it is one.
	pub(super) fn for_action(action: Action) -> Option<Self> {
		match action {
			Action::None => None,
			Action::Signal(signal) => Some(Self::Signal(signal)),
			Action::PowerOff => Some(Self::PowerOff),
			Action::Reset => Some(Self::Reset),
		}
	}
}

/// KVM could not run the guest.
#[derive(Debug, thiserror::Error)]
pub enum RunError {
	/// `KVM_RUN` failed.
	#[error("KVM_RUN: {0}")]
	Run(kvm_ioctls::Error),
	/// `KVM_KVMCLOCK_CTRL` failed.
	#[error("KVM_KVMCLOCK_CTRL: {0}")]
	Clock(kvm_ioctls::Error),
	/// KVM met something in the guest that it can't emulate.
	#[error("KVM can't run the guest: {0}")]
	Unexpected(String),
}
