//! Renews in each clone of a Java virtual machine what must not be the same in two of them: its generators of random
//! numbers ([`generators`]), the number of its process ([`process`]), and, where the program has said itself that it is
//! ready, its environment and working directory ([`environment`], [`directory`]).
//!
//! The shim loads this library when a program with threads is about to be stopped, and calls
//! [`flashfork_java_prepare`]: from then on no Java code runs ([`held`]). So nothing can change any more of what is
//! found then. The program is stopped, and in each clone the same thread goes on and calls [`flashfork_java_renew`].
//! There the virtual machine is whole, with its collectors and compilers; only Java code waits, until all is renewed.

mod classes;
mod directory;
mod environment;
mod generators;
mod held;
mod java;
mod process;
mod ready;
mod tool;

use directory::Directory;
use environment::Environment;
use generators::Generators;
use held::Held;
use java::Java;
use process::Process;
use std::{
	ffi::{CString, c_char, c_int, c_void},
	ptr::{null, null_mut},
	sync::atomic::{AtomicPtr, Ordering::SeqCst},
};
use tool::Tool;

/// The oldest that has what is looked for here.
const OLDEST: u32 = 17;

/// What is renewed.
struct Found {
	java: Java,
	tool: Tool,
	held: Held,
	generators: Generators,
	process: Process,
	/// Of its caller.
	directory: Option<Directory>,
	environment: Option<Environment>,
}

// Its references are those of the one thread that calls both functions.
static FOUND: AtomicPtr<Found> = AtomicPtr::new(null_mut());

/// In the program: no Java code runs after this, and what clones renew is known. NULL, or why they could not, in words
/// that stay; then the program is of no use any more. `of_caller`: whether environment and directory are the caller's.
///
/// # Safety
/// `machine` is a handle of `libjvm.so`, of dlopen(3). Called once.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn flashfork_java_prepare(machine: *mut c_void, of_caller: c_int) -> *const c_char {
	// SAFETY: as the caller says.
	match unsafe { prepare(machine, of_caller != 0) } {
		Ok(found) => {
			FOUND.store(Box::into_raw(Box::new(found)), SeqCst);
			null()
		}
		Err(why_not) => CString::new(why_not).unwrap_or_default().into_raw(),
	}
}

unsafe fn prepare(machine: *mut c_void, of_caller: bool) -> Result<Found, String> {
	// SAFETY: as the caller says.
	let (java, tool) = unsafe { (Java::attach(machine)?, Tool::of(machine)?) };
	if tool.version()? < OLDEST {
		return Err(format!("it is older than Java {OLDEST}"));
	}
	let virtual_threads = tool.ask_for_capabilities()?;
	// While Java code runs: these classes are loaded, and initialised, if they weren't.
	let process = Process::find(&java)?;
	let environment = of_caller.then(|| Environment::find(&java)).transpose()?;
	let directory = of_caller.then(|| Directory::find(&java)).transpose()?.flatten();
	let (held, generators) = held::hold(&java, &tool, virtual_threads)?;
	Ok(Found { java, tool, held, generators, process, directory, environment })
}

/// In a clone: renews all of it, lets Java code run, and leaves the virtual machine.
///
/// # Safety
/// After [`flashfork_java_prepare`] has given NULL, in the same thread.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn flashfork_java_renew() {
	let found = FOUND.swap(null_mut(), SeqCst);
	if found.is_null() {
		return;
	}
	// SAFETY: stored by `flashfork_java_prepare`, and taken once.
	let found = unsafe { Box::from_raw(found) };
	if let Err(why_not) = renew(&found) {
		// No Java code has run.
		eprintln!("flashfork: the clone is ended: its Java virtual machine can't be renewed: {why_not}");
		std::process::exit(1);
	}
}

fn renew(found: &Found) -> Result<(), String> {
	let Found { java, tool, held, generators, process, directory, environment } = found;
	generators.renew(java)?;
	process.renew(java)?;
	if let Some(directory) = directory {
		directory.renew(java)?;
	}
	if let Some(environment) = environment {
		environment.renew(java)?;
	}
	held.release(tool)?;
	tool.dispose()?;
	java.detach();
	Ok(())
}
