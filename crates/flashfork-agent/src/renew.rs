//! Makes a clone one of its own, with what the monitor answered to the fork signal.

use flashfork_proto::agent::Stamp;
use flashfork_proto::signal::Forked;

use crate::reaper::Reaper;
use crate::{clock, entropy, hooks};

/// Status of the done signal of a clone that could not be made one of its own.
pub const FAILED_STATUS: u32 = 125;

const NANOS: u64 = 1_000_000_000;

/// Entropy first, since all that follows may draw from it; then the clock; then the hooks.
pub fn renew(forked: &Forked, reaper: &Reaper) -> Result<(), String> {
    entropy::reseed(&forked.entropy).map_err(|error| error.message)?;
    let now = Stamp {
        seconds: i64::try_from(forked.realtime_ns / NANOS).unwrap_or(i64::MAX),
        nanoseconds: (forked.realtime_ns % NANOS) as u32,
    };
    clock::set(now).map_err(|error| error.message)?;
    match hooks::run_all(&forked.identity, reaper).iter().find(|run| !run.succeeded()) {
        Some(run) => Err(format!("hook {} failed: {}", run.name, run.message)),
        None => Ok(()),
    }
}
