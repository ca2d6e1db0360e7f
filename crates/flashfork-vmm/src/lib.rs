//! A KVM monitor that clones a booted virtual machine copy-on-write. `README.md` beside this crate has the map.

pub mod layout;
pub mod memory;
