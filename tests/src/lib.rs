//! What the system tests share.
//!
//! The tests lie beside this directory, one directory for each kind: CONTRIBUTING.md says what is where.

/// What comes of part of a test; an error is a line that says what is wrong.
pub type Result<T = (), E = String> = std::result::Result<T, E>;

pub mod content;
pub mod header;
pub mod libraries;
pub mod odf;
pub mod own_code;
pub mod past;
pub mod route;
pub mod shim;
pub mod within;
