//! The ways to fuzz a target.

use std::fmt;

/// A way to give each input its state.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Way {
    /// AFL's fork server.
    ForkServer,
    /// The same with the shim.
    Shim,
    /// AFL's persistent loop, each round of which is taken back.
    Rollback,
    /// AFL's persistent loop as it is.
    Persistent,
}

impl Way {
    /// In table order.
    pub const ALL: [Way; 4] = [Way::ForkServer, Way::Shim, Way::Rollback, Way::Persistent];

    /// What records call it.
    pub fn name(self) -> &'static str {
        match self {
            Way::ForkServer => "fork server",
            Way::Shim => "fork server, shim",
            Way::Rollback => "loop on rollback",
            Way::Persistent => "persistent loop",
        }
    }
}

impl fmt::Display for Way {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}
