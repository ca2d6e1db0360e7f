//! What a template holds besides RAM, and how it is written down.

mod envelope;
#[cfg(test)]
mod fuzz;
mod machine;

pub(crate) use envelope::Envelope;
#[cfg(test)]
pub(crate) use envelope::reseal;
pub use envelope::{StateError, VERSION};
pub use machine::MachineState;
