//! The program `flashfork-shell`: one VM in one jailed process, made before anybody asks for it.
//!
//! | file | what |
//! |---|---|
//! | `prepare` | greeting, the shape, every KVM object, the jail |
//! | `claim` | vCPU 0's thread waits for its template and becomes the clone; or boots a guest |
//! | `serve` | the controller's thread: requests, events and console of a running machine |
//! | `console` | what the guest wrote and nobody has fetched yet |
//! | `disk` | disks as they come through the channel |
//! | `panics` | a bug of the monitor, in words for the daemon |
//! | `error` | why a shell ends |
//!
//! Two threads share the work, so that a claim wakes nobody: vCPU 0's thread is the one that waits for the claim, and
//! does it from the first byte to the guest's first exit. Only then does the controller take over; a timer makes it do
//! so as well if the guest, idle, doesn't exit.

mod claim;
mod console;
mod disk;
mod error;
mod panics;
mod prepare;
mod serve;

pub use claim::promise;
pub use error::ShellError;
pub use panics::tell as tell_of_panics;

use crate::{jail::JailError, memory::Watch};
use flashfork_proto::shell::{Channel, FromShell};
use kvm_ioctls::Kvm;

/// Lives the life of a shell: prepares a machine, locks itself in with `lock`, is claimed, and ends with its guest or
/// at the daemon's wish. `kvm` is closed before the lock. With `watch` its clone can be forked while it runs,
/// and taken back by copying if KVM's paging is `two_dimensional`.
///
/// # Errors
/// [`ShellError`]; the daemon has been told, if it was there to be told.
pub fn run(
	channel: Channel,
	kvm: Kvm,
	watch: Option<Watch>,
	two_dimensional: bool,
	lock: impl FnOnce() -> Result<(), JailError>,
) -> Result<(), ShellError> {
	let channel = std::sync::Arc::new(channel);
	tell_of_panics(&channel);
	let life = prepare::prepare(&channel, kvm, watch, two_dimensional, lock).and_then(claim::wait);
	if let Err(error) = &life {
		// Who has gone needs no message, and the error says it.
		let _ = channel.send(&FromShell::Failed(error.to_string()), &[]);
	}
	life
}
