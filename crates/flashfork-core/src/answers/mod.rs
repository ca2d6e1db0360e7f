//! What the program's own calls mean on sealed memory: each is answered as the kernel would answer it on anonymous
//! memory. The hooks of [`crate::calls`] lead here, and the shim.

pub mod advise;
pub(crate) mod anonymous;
mod discard;
pub(crate) mod exec;
mod moving;
pub mod mremap;
pub(crate) mod nodes;
mod pieces;
pub mod pipes;
pub mod rings;
pub mod sandbox;
