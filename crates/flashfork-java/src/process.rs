//! What `ProcessHandle.current()` says: the number of the process, and when it has started.

use crate::java::Java;
use jni_sys::{jclass, jfieldID, jlong, jmethodID, jobject};

/// Where it is kept.
pub struct Process {
	class: jclass,
	current: jobject,
	pid: jfieldID,
	start: jfieldID,
	/// Gives the start of a process.
	asks: jmethodID,
	/// What it adds to what the kernel says, if that is all it does: nothing of it has to run in clones then.
	boot: Option<jlong>,
}

impl Process {
	/// Java code may run yet.
	pub fn find(java: &Java) -> Result<Process, String> {
		let class = java.class(c"java/lang/ProcessHandleImpl")?;
		let current = java.static_field(class, c"current", c"Ljava/lang/ProcessHandleImpl;")?;
		let mut found = Process {
			class,
			current: java.static_object(class, current),
			pid: java.field(class, c"pid", c"J")?,
			start: java.field(class, c"startTime", c"J")?,
			asks: java.static_method(class, c"isAlive0", c"(J)J")?,
			boot: None,
		};
		// The same of this process and of its namespace's first, which has started earlier.
		let [own, first] = [std::process::id(), 1].map(|pid| found.added(java, pid));
		found.boot = own?.filter(|added| first == Ok(Some(*added)));
		Ok(found)
	}

	fn added(&self, java: &Java, pid: u32) -> Result<Option<jlong>, String> {
		let start = self.start_of(java, pid)?;
		Ok(started(pid).map(|started| start - started))
	}

	fn start_of(&self, java: &Java, pid: u32) -> Result<jlong, String> {
		// SAFETY: the method takes a number.
		unsafe { java.call_static_long(self.class, self.asks, pid.into()) }
	}

	/// In a clone.
	pub fn renew(&self, java: &Java) -> Result<(), String> {
		let pid = std::process::id();
		let start = match self.boot.zip(started(pid)) {
			Some((boot, started)) => boot + started,
			None => self.start_of(java, pid)?,
		};
		java.set_long(self.current, self.pid, pid.into());
		java.set_long(self.current, self.start, start);
		Ok(())
	}
}

/// When a process has started, in milliseconds after the kernel has (`proc_pid_stat(5)`).
fn started(pid: u32) -> Option<jlong> {
	const START: usize = 22;
	let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
	// The second field is a name, in which there may be spaces.
	let (_, rest) = stat.rsplit_once(") ")?;
	let ticks: jlong = rest.split(' ').nth(START - 3)?.parse().ok()?;
	// SAFETY: takes a number.
	let second = unsafe { libc::sysconf(libc::_SC_CLK_TCK) };
	(second > 0).then(|| ticks * 1000 / second)
}
