//! What a template holds besides RAM, and how it is written down.

mod envelope;
mod machine;

pub(crate) use envelope::Envelope;
pub use envelope::{StateError, VERSION};
pub use machine::MachineState;
