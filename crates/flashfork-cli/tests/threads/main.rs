//! Clones with all threads of a program: `flashfork warm --threads`. The reference is the program itself, started anew.

mod calls;
mod connections;
mod descriptors;
mod ends;
mod files;
mod kernels;
mod moments;
#[path = "../warm/place.rs"]
#[allow(dead_code)] // what the other tests need
mod place;
mod process;
mod programs;
mod refusals;
mod runtimes;
mod threads;
mod torture;
mod users;
