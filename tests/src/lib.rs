//! What the system tests share.
//!
//! The tests lie beside this directory, one directory for each kind: `model/` is a randomised model checker, `faults/`
//! lets the system calls of the engine fail one by one, `growth/` forks clones that write where nothing was,
//! `restores/` goes back to a snapshot many times, `programs/` runs programs that are not ours, `behaviour/` has one
//! small C program for every row and trap.

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
