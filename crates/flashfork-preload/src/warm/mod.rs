//! A template for `flashfork clone`: the program comes to its ready point, then waits and forks a clone for each
//! caller.
//!
//! [`entry`] finds the ready point, [`prepare`] makes a template of the process there, [`serve`] waits for callers, and
//! [`take_over`] gives a clone what is its caller's. The fork in between is the program's own, or its runtime's, so
//! that handlers of `pthread_atfork`, or an interpreter's, run as in any other fork: [`forked`] is called from the
//! shim's `fork`.
//!
//! Of templates whose clones have all their threads there is none of that: [`threads`].
//!
//! Any other template has one thread and, once it waits, every signal blocked: what is here needs no locks.

mod ahead;
mod api;
mod end;
mod entry;
mod environment;
mod files;
pub mod follow;
pub mod forked;
mod hooks;
mod inherited;
mod init;
mod interpreters;
mod mapped;
mod message;
mod node;
mod parent;
mod perl;
mod prepare;
mod process;
mod python;
mod recipe;
pub mod runtime;
mod script;
mod serve;
mod shared;
mod source;
mod stacks;
mod streams;
mod take_over;
mod template;
mod threads;
mod variables;
mod wait;

pub use entry::ready_call;
pub use hooks::Hook;
pub use node::has_no_rings;
pub use script::call;
pub use take_over::environ;
pub use threads::on_clone;
