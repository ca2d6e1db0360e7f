//! Clones with all threads of a program: `flashfork warm --threads`. The reference is the program itself, started anew.

mod anew;
mod bench;
mod calls;
mod connections;
mod descriptors;
mod ends;
mod files;
mod filters;
mod generators;
mod hooks;
mod java;
mod kernels;
mod listen;
#[path = "../warm/measured.rs"]
mod measured;
mod moments;
mod native;
mod node;
#[path = "../warm/place.rs"]
#[allow(dead_code)] // what the other tests need
mod place;
mod process;
mod programs;
mod python;
mod refusals;
mod rights;
mod ruby;
mod runtimes;
mod systemv;
mod threads;
mod torture;
mod users;
mod wrappers;
