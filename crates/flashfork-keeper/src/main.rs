//! Keeps a template whose clones have all its threads. Started by `flashfork warm --threads`, in place of the program.
//!
//! It makes namespaces ([`namespaces`]), and in them an init ([`init`]) that starts the program, waits for all that
//! ends there, and makes a namespace for each clone ahead ([`pool`]). When the program is ready ([`moment`], [`warm`]),
//! and has given up nothing of what it was started with ([`rights`]), it is made to make a maker in its memory, which
//! stops it (`flashfork_core::forkall`). From then on callers are served
//! ([`serve`]). All of it ends with the keeper.

mod begin;
mod clone;
mod connection;
mod file;
mod init;
mod let_go;
mod message;
mod moment;
mod namespaces;
mod notes;
mod numbers;
mod pool;
mod process;
mod relay;
mod rights;
mod serve;
mod streams;
mod told;
mod variables;
mod warm;

use flashfork_warm::{Tell, WORDS_OF_UNFIT};
use std::{os::fd::AsFd, process::ExitCode};

fn main() -> ExitCode {
	let mut arguments = std::env::args_os().skip(1);
	let told = match told::Told::of(&mut arguments) {
		Some(told) => told,
		None => {
			eprintln!("flashfork-keeper is started by `flashfork warm --threads`, with what that tells it");
			return ExitCode::from(2);
		}
	};
	let ready = match warm::warm(&told) {
		Ok(ready) => ready,
		Err(warm::Failed::Ended(status)) => process::end_as(status),
		Err(warm::Failed::Unfit(words)) => {
			let mut all = [0; WORDS_OF_UNFIT];
			let text = words.as_bytes();
			let len = text.len().min(all.len());
			all[..len].copy_from_slice(&text[..len]);
			// Who is gone needs no reason.
			let _ = message::send(told.control.as_fd(), &Tell::Unfit { words: all }.encode(), &[]);
			return ExitCode::FAILURE;
		}
	};
	serve::serve(told, ready)
}
