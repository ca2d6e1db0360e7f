//! A KVM monitor that clones a booted virtual machine copy-on-write. `README.md` beside this crate has the map.
//!
//! The library never prints, never exits, opens nothing by name and reads no environment variable.

pub mod api;
pub mod boot;
pub mod cpu;
pub mod daemon;
pub mod devices;
pub mod events;
mod files;
#[cfg(test)]
#[path = "../tests/common/fuzz.rs"]
mod fuzz;
pub mod jail;
pub mod kvm;
pub mod layout;
pub mod machine;
pub mod memory;
pub mod pool;
pub mod shell;
pub mod state;
pub mod store;
pub mod template;
