//! Whether something fits into memory, asked before anything is allocated.
//!
//! Swap is not counted: memory in swap can't be measured as memory.

use flashfork::Headroom;
use flashfork_measure::BenchError;

/// How much memory this process can still take.
pub(crate) fn headroom() -> Result<Headroom, BenchError> {
    Headroom::now().map_err(|error| BenchError::system("read how much memory is available", error))
}

/// Refuses `what` when it needs more than there is.
pub(crate) fn require(headroom: &Headroom, what: impl Into<String>, needed: u64) -> Result<(), BenchError> {
    if needed <= headroom.available {
        return Ok(());
    }
    Err(BenchError::DoesNotFit {
        what: what.into(),
        needed,
        available: headroom.available,
        limit: headroom.limit.clone(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refusal_says_what_is_needed_and_what_is_there() {
        let headroom = Headroom { available: 1 << 30, limit: "/sys/fs/cgroup/a".into() };
        assert!(require(&headroom, "1G", 1 << 30).is_ok());
        let text = require(&headroom, "2G, method seal", 5 << 29).unwrap_err().to_string();
        for part in ["2G, method seal", "2.5 GB", "1 GB", "/sys/fs/cgroup/a"] {
            assert!(text.contains(part), "{part} is missing in: {text}");
        }
    }
}
