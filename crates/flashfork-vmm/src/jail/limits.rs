//! Limits of a shell.

use super::JailError;
use rustix::process::{
    DumpableBehavior, Resource, Rlimit, Signal, set_dumpable_behavior, set_parent_process_death_signal, setrlimit,
};

/// Descriptors: KVM's, eventfds, and one for each vsock connection.
const DESCRIPTORS: u64 = 1024;

/// Sets them, for good.
pub(super) fn set() -> Result<(), JailError> {
    // A core would hold the guest's memory.
    for (resource, limit) in
        [(Resource::Nofile, DESCRIPTORS), (Resource::Core, 0), (Resource::Memlock, 0), (Resource::Msgqueue, 0)]
    {
        setrlimit(resource, Rlimit { current: Some(limit), maximum: Some(limit) })
            .map_err(JailError::step("limits"))?;
    }
    set_dumpable_behavior(DumpableBehavior::NotDumpable).map_err(JailError::step("forbidding dumps"))?;
    // After the change of user, which clears it.
    set_parent_process_death_signal(Some(Signal::KILL)).map_err(JailError::step("dying with the daemon"))
}
