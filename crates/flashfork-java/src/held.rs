//! Has no Java code run: all threads that may are suspended, and none of them has the state of a generator in its
//! hands, or in a register.

use crate::{
	classes::Classes,
	generators::{self, Generators},
	java::Java,
	tool::{EachStart, HAS_ENDED, Thread, Tool, WAS_SUSPENDED},
};
use jni_sys::{jfieldID, jmethodID, jobject};
use std::{
	collections::HashSet,
	ffi::c_void,
	sync::atomic::{AtomicU32, Ordering::SeqCst},
	time::{Duration, Instant},
};

/// How long a thread may have to do with a generator, and how often it is looked at least.
const TURNS: u32 = 200;
const PATIENCE: Duration = Duration::from_secs(10);
/// How long such a thread runs until it is looked again.
const TURN: Duration = Duration::from_millis(1);
/// Every so often all others run, too.
const TURNS_FOR_ALL: u32 = 50;

/// 1 while no thread may start.
static CLOSED: AtomicU32 = AtomicU32::new(0);

/// Threads that are suspended.
pub struct Held {
	own: Vec<Thread>,
	/// Those that the program has suspended itself.
	others: Vec<Thread>,
	virtual_threads: bool,
}

/// Suspends all, and finds what is to be renewed: from then on nothing of it changes.
pub fn hold(java: &Java, tool: &Tool, virtual_threads: bool) -> Result<(Held, Generators), String> {
	const START: EachStart = wait_at_start;
	CLOSED.store(1, SeqCst);
	tool.on_start(START)?;
	let deadline = Instant::now() + PATIENCE;
	let mut held = Held { own: Vec::new(), others: Vec::new(), virtual_threads };
	if virtual_threads {
		tool.suspend_virtual()?;
	}
	// While some are busy, those of the classes that were there at first.
	let mut look: Option<Look> = None;
	let mut turn = 0;
	loop {
		turn += 1;
		held.suspend_new(java, tool)?;
		let mut busy = look.as_ref().map_or_else(Vec::new, |look| look.busy(held.all()));
		if busy.is_empty() {
			let classes = Classes::loaded(tool)?;
			let new = look.insert(Look::with(java, tool, &classes)?);
			busy = new.busy(held.all());
			if busy.is_empty() {
				let generators = Generators::find(java, tool, &classes)?;
				if new.busy(generators.virtual_threads().iter()).is_empty() {
					classes.forget(java);
					return Ok((held, generators));
				}
			}
			classes.forget(java);
		}
		// They may wait for others; and what carries virtual threads has to run, too.
		if busy.is_empty() || turn % TURNS_FOR_ALL == 0 {
			held.run_for_a_turn(tool)?;
		} else {
			held.run_some_for_a_turn(tool, &busy)?;
		}
		if turn > TURNS && Instant::now() > deadline {
			let innermost = busy.first().and_then(|thread| tool.stack(*thread).first().copied());
			let method = innermost.and_then(|frame| tool.method_name(frame.method).ok()).unwrap_or_default();
			return Err(format!("a thread uses one all the time, now in its method {method}"));
		}
	}
}

struct Look<'a> {
	java: &'a Java,
	tool: &'a Tool,
	/// Methods in which a generator's state is in a thread's hands; and such in which it isn't, whatever they do.
	with_state: HashSet<jmethodID>,
	without: HashSet<jmethodID>,
	probe: jfieldID,
}

impl<'a> Look<'a> {
	fn with(java: &'a Java, tool: &'a Tool, classes: &Classes) -> Result<Look<'a>, String> {
		let (with_state, without) = (generators::methods(tool, classes)?, methods_that_switch(tool, classes));
		Ok(Look { java, tool, with_state, without, probe: generators::probe(java, classes)? })
	}

	/// Those in the middle of a generator's methods; and of those that have drawn from a `ThreadLocalRandom` the ones
	/// at such an instruction. There compiled code may keep its state in a register, for it doesn't count on others'
	/// writing to it. Where loops and methods end, and methods are entered, it reads it anew.
	fn busy<'t>(&self, threads: impl Iterator<Item = &'t Thread>) -> Vec<Thread> {
		let is_busy = |thread: &Thread| {
			let stack = self.tool.stack(*thread);
			let innermost = stack.first().filter(|frame| !self.without.contains(&frame.method));
			let keeps = || innermost.and_then(|frame| self.tool.instruction(frame)).is_some_and(makes_object);
			stack.iter().any(|frame| self.with_state.contains(&frame.method))
				|| self.java.int(*thread, self.probe) != 0 && keeps()
		};
		threads.copied().filter(is_busy).collect()
	}
}

/// Whether an object may be made at an instruction: `new`, `newarray`, `anewarray`, `multianewarray`, and in place of a
/// call, `invokevirtual` to `invokedynamic`, what the compiler does itself, such as copies of arrays.
fn makes_object(code: u8) -> bool {
	[0xbb, 0xbc, 0xbd, 0xc5].contains(&code) || (0xb6..=0xba).contains(&code)
}

/// In these a virtual thread waits, and a thread that carries one.
fn methods_that_switch(tool: &Tool, classes: &Classes) -> HashSet<jmethodID> {
	let all = ["java/lang/VirtualThread", "jdk/internal/vm/Continuation"].map(|name| classes.named(name));
	all.into_iter().flatten().flat_map(|class| tool.methods(class)).collect()
}

impl Held {
	fn all(&self) -> impl Iterator<Item = &Thread> {
		self.own.iter().chain(&self.others)
	}

	/// Suspends threads until there is none that isn't.
	fn suspend_new(&mut self, java: &Java, tool: &Tool) -> Result<(), String> {
		let this = tool.current_thread()?;
		loop {
			let known = |thread: &jobject| {
				let mut all = self.own.iter().chain(&self.others).chain([&this]);
				all.any(|other| java.is_same(*thread, *other))
			};
			let (known, new): (Vec<_>, Vec<_>) = tool.threads()?.into_iter().partition(known);
			known.into_iter().for_each(|thread| java.forget(thread));
			if new.is_empty() {
				java.forget(this);
				return Ok(());
			}
			for (thread, status) in new.iter().copied().zip(tool.suspend(&new)?) {
				match status {
					0 => self.own.push(thread),
					WAS_SUSPENDED => self.others.push(thread),
					HAS_ENDED => java.forget(thread),
					_ => return Err(format!("a thread can't be suspended: error {status}")),
				}
			}
		}
	}

	/// Lets some of them run for a moment.
	fn run_some_for_a_turn(&mut self, tool: &Tool, some: &[Thread]) -> Result<(), String> {
		let run: Vec<_> = some.iter().copied().filter(|thread| self.own.contains(thread)).collect();
		tool.resume(&run)?;
		std::thread::sleep(TURN);
		let ended: Vec<_> = run.iter().zip(tool.suspend(&run)?).filter(|(_, s)| *s == HAS_ENDED).collect();
		self.own.retain(|thread| ended.iter().all(|(other, _)| *other != thread));
		Ok(())
	}

	fn run_for_a_turn(&mut self, tool: &Tool) -> Result<(), String> {
		tool.resume(&self.own)?;
		if self.virtual_threads {
			tool.resume_virtual()?;
		}
		std::thread::sleep(TURN);
		if self.virtual_threads {
			tool.suspend_virtual()?;
		}
		let ended: Vec<_> = self.own.iter().zip(tool.suspend(&self.own)?).map(|(_, s)| s == HAS_ENDED).collect();
		let mut ended = ended.into_iter();
		self.own.retain(|_| !ended.next().unwrap_or_default());
		Ok(())
	}

	/// Lets all go on, and threads start.
	pub fn release(&self, tool: &Tool) -> Result<(), String> {
		CLOSED.store(0, SeqCst);
		// SAFETY: the kernel uses the address only.
		unsafe { libc::syscall(libc::SYS_futex, CLOSED.as_ptr(), libc::FUTEX_WAKE, i32::MAX) };
		tool.resume(&self.own)?;
		if self.virtual_threads { tool.resume_virtual() } else { Ok(()) }
	}
}

/// A thread that starts waits before it runs any Java code.
extern "system" fn wait_at_start(_: *mut c_void, _: *mut c_void, _: Thread) {
	while CLOSED.load(SeqCst) == 1 {
		// SAFETY: the kernel reads the word.
		unsafe {
			libc::syscall(libc::SYS_futex, CLOSED.as_ptr(), libc::FUTEX_WAIT, 1, std::ptr::null::<libc::timespec>())
		};
	}
}
