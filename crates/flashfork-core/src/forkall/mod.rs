//! Clones of a process with all its threads.
//!
//! `fork(2)` copies the calling thread only. Here a process in the same memory, the *maker*, which the program's keeper
//! has its main thread make when it is ready ([`seize`]), stops all threads of a program for good ([`stop`]), writes
//! down what each of them is ([`look`], [`frozen`]), ends the program ([`leave`]), whose memory stays, and then forks
//! itself for each clone: the child becomes the main thread, and makes the others from what was written down
//! ([`make`]).
//!
//! The maker is no thread of the program: so it can trace all of them, it has its own table of descriptors, and a clone
//! forked from it inherits memory and signal handlers, which it shares with the program, and nothing else. From the
//! stop on nothing here calls libc, allocates, or takes a lock: whatever lock there is may be held by a thread that
//! stands still.
//!
//! What a clone gets, a file each: threads ([`look`], [`frame`], [`thread`]), what is left of their calls ([`rest`],
//! [`signalled`]), descriptors ([`descriptors`], [`renew`], [`pairs`], [`deleted`]), timers and pending signals
//! ([`timers`], [`pending`]), memory that fork would not copy ([`memory`]), other random numbers ([`generators`]).
//! [`alike`] refuses what can't be given ([`unfit`]).

mod alike;
mod attributes;
mod counters;
mod deleted;
mod descriptors;
mod fdinfo;
mod frame;
mod frozen;
mod generators;
mod held;
mod inject;
mod leave;
mod linked;
mod listening;
mod look;
mod make;
mod maker;
mod memory;
mod multicast;
mod number;
mod open;
mod pairs;
mod pending;
mod raw;
mod renew;
mod rest;
mod seize;
mod settings;
mod signalled;
mod sockets;
mod stop;
mod thread;
mod timers;
mod trampoline;
mod unfit;

pub use frozen::{Code, Frozen, Settings};
pub use listening::{leave_sets, listen_alike, port};
pub use make::{Made, Place, go_to};
pub use maker::prepare;
pub use raw::{CloneArguments, call, start};
pub use seize::Seized;
pub use thread::Gate;
pub use unfit::{Fit, Unfit, WORDS, What};
