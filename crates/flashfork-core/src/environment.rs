//! The variables of the environment by which a program under the shim is told what to do: the one table that the shim,
//! the command, man pages and docs/ENVIRONMENT.md follow.

use core::ffi::CStr;

/// A variable.
#[derive(Debug)]
pub struct Variable {
	/// Its name, for `getenv(3)`.
	pub name: &'static CStr,
	/// What it may be.
	pub values: &'static [Value],
	/// What holds without it.
	pub without: &'static str,
}

/// A value of a variable.
#[derive(Debug)]
pub struct Value {
	/// As it is written, in backquotes; or what is given.
	pub value: &'static str,
	/// What it means, as Markdown without links.
	pub meaning: &'static str,
	/// The document of docs/ that says more, if any does.
	pub more: Option<&'static str>,
}

/// How forks are made.
pub const ENGINE: Variable = Variable {
	name: c"FLASHFORK_ENGINE",
	values: &[
		Value {
			value: "`auto`",
			meaning: "fork on demand where the kernel grants it; else seal, part by part, what the time that forks have lost would have paid for; at most 1.5 times the memory of a plain process",
			more: Some("POLICY.md"),
		},
		Value {
			value: "`seal`",
			meaning: "seal before the first fork; consents to twice the memory and more",
			more: Some("POLICY.md"),
		},
		Value { value: "`fork`", meaning: "never seal; forks are counted", more: None },
		Value {
			value: "`odf`",
			meaning: "ask the kernel to fork on demand; where it doesn't, one line says why, and forks stay plain",
			more: Some("ON_DEMAND_FORK.md"),
		},
	],
	without: "`auto`",
};

/// Whether processes with threads are sealed.
pub const THREADS: Variable = Variable {
	name: c"FLASHFORK_THREADS",
	values: &[
		Value { value: "`refuse`", meaning: "a process with threads is not sealed", more: None },
		Value {
			value: "`stop`",
			meaning: "its threads are stopped for each step of 2 MB, by a signal where ptrace is refused",
			more: Some("THREADS.md"),
		},
	],
	without: "`refuse`",
};

/// Files that are answered for.
pub const TRUST: Variable = Variable {
	name: c"FLASHFORK_TRUST",
	values: &[Value {
		value: "whole paths, one a line",
		meaning: "files whose code makes system calls of its own, for which you answer; at most 16",
		more: Some("SYSTEM_CALLS.md"),
	}],
	without: "none",
};

/// Where it is counted what happened.
pub const STATS: Variable = Variable {
	name: c"FLASHFORK_STATS",
	values: &[Value {
		value: "path",
		meaning: "the statistics of a `flashfork run`, in memory that all processes of the program share; those that may not open it, or run on when the command has ended, count for themselves only",
		more: None,
	}],
	without: "counted in the process only",
};

/// Whether the program becomes a template.
///
/// Its value is six decimal numbers and a name, with commas between: descriptors of the control socket, the listening
/// socket and the directory of the names; where the program is ready (`flashfork_warm::ReadyAt`, 0 for wherever it
/// suits the program); most clones to make, 0 for any number; the process that starts the program, by which this one is
/// told from what it starts in turn; the template's name. Of a template with threads it is the word `threads` and two
/// numbers: the socket on which the program says that it is ready, and where that is; behind a wrapper also a file with
/// the environment that this was started with.
pub const WARM: Variable = Variable {
	name: c"FLASHFORK_WARM",
	values: &[Value {
		value: "set by `flashfork warm` only",
		meaning: "the program becomes a template; the shim takes the variable out of the environment",
		more: Some("WARM.md"),
	}],
	without: "an ordinary program",
};

/// All of them, in the order of the document.
pub static TABLE: [Variable; 5] = [ENGINE, THREADS, TRUST, STATS, WARM];

impl Variable {
	/// Its name.
	pub const fn name(&self) -> &'static str {
		match self.name.to_str() {
			Ok(name) => name,
			Err(_) => panic!("names are ASCII"),
		}
	}
}
