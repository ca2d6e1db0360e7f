//! What goes wrong with templates and clones.

use crate::{name::Name, renew::Stale};
use flashfork_warm::{LISTENERS, MOST_RUNNING, Step};
use std::{ffi::OsString, io, path::PathBuf};

/// A failure in one line: what, why, and what to do.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
	/// A file operation failed.
	#[error("can't {what} {}: {source}", path.display())]
	File {
		/// The verb.
		what: &'static str,
		/// The file.
		path: PathBuf,
		/// The system's reason.
		source: io::Error,
	},
	/// The directory of the names is not the user's alone.
	#[error(
		"{} is no place for templates: {why}; remove it, or set XDG_RUNTIME_DIR to a directory of yours",
		path.display()
	)]
	Place {
		/// The directory, or the one that it lies in.
		path: PathBuf,
		/// What is wrong with it.
		why: &'static str,
	},
	/// What the directory of the names is to be made in isn't there.
	#[error(
		"can't create {}: {} doesn't exist; make it, or set XDG_RUNTIME_DIR to a directory of yours",
		path.display(),
		missing.display()
	)]
	Missing {
		/// The directory.
		path: PathBuf,
		/// What should be there.
		missing: PathBuf,
	},
	/// What lies in the directory by a template's name is something else.
	#[error("{} is no template: it is not a socket; move it away", .0.display())]
	NoSocket(PathBuf),
	/// Somebody else gives and takes names, and doesn't come to an end.
	#[error(
		"another flashfork command has held the names in {} for {seconds} seconds: it is stopped, perhaps; let it go \
		 on, or end it",
		path.display()
	)]
	Locked {
		/// The directory.
		path: PathBuf,
		/// For how long this was waited for.
		seconds: u64,
	},
	/// There is no template of that name.
	#[error(
		"there is no template {0}; `flashfork warm {0} -- COMMAND` makes one, `flashfork ls` lists those there are"
	)]
	Nobody(Name),
	/// The name is taken.
	#[error("there is a template {0}; `flashfork rm {0}` removes it, or choose another name")]
	Taken(Name),
	/// The template has ended.
	#[error("the template {0} has ended, and its clones with it; `flashfork warm {0} -- COMMAND` makes a new one")]
	Gone(Name),
	/// The template belongs to another user or group.
	#[error(
		"the template {name} was warmed by user {user} and group {group}: a clone would run as these; warm one as \
		 yourself"
	)]
	OtherUser {
		/// The template.
		name: Name,
		/// Whom it runs as.
		user: u32,
		/// The group it runs as.
		group: u32,
	},
	/// No connection could be made.
	#[error("can't connect to the template {name}: {}{}", words(source), connect_cure(source))]
	Connect {
		/// The template.
		name: Name,
		/// The system's reason.
		source: io::Error,
	},
	/// The template doesn't accept a connection.
	#[error(
		"the template {name} doesn't let anybody in for {seconds} seconds: it is stopped, or thousands wait for it; \
		 `flashfork ls` in a while tells which"
	)]
	Full {
		/// The template.
		name: Name,
		/// For how long this was waited for.
		seconds: u64,
	},
	/// The template is stopped, by a signal or a debugger.
	#[error(
		"the template {name} is stopped: {} lets it go on, {} ends it and its clones",
		kill(*pid, "CONT"), kill(*pid, "KILL")
	)]
	Stopped {
		/// The template.
		name: Name,
		/// Its process, where it can be seen from here.
		pid: Option<i32>,
	},
	/// The template doesn't answer.
	#[error(
		"the template {name} has not answered for {seconds} seconds: try again later; {} ends it and its clones",
		kill(*pid, "KILL")
	)]
	Silent {
		/// The template.
		name: Name,
		/// Its process, where it can be seen from here.
		pid: Option<i32>,
		/// For how long it was waited for.
		seconds: u64,
	},
	/// What the template says makes no sense.
	#[error(
		"the template {name} and this command don't understand each other: they are of different versions; {} ends it \
		 and its clones, then warm it again",
		kill(*pid, "TERM")
	)]
	Misunderstood {
		/// The template.
		name: Name,
		/// Its process, where it can be seen from here.
		pid: Option<i32>,
	},
	/// The request could not be sent.
	#[error("can't ask the template {name} for a clone: {}", words(source))]
	Ask {
		/// The template.
		name: Name,
		/// The system's reason.
		source: io::Error,
	},
	/// The arguments and the environment could not be written down.
	#[error("can't write down what the clone takes over: {0}; free memory")]
	Start(#[source] io::Error),
	/// A limit on the size of files leaves no room for arguments and environment.
	#[error(
		"can't pass on {kilobytes} KB of arguments and environment under this limit on the size of files: {source}; \
		 raise it (ulimit -f)"
	)]
	FileSize {
		/// How much they are.
		kilobytes: usize,
		/// The system's reason.
		source: io::Error,
	},
	/// A string holds a NUL, which would end it.
	#[error("can't pass on {0:?}: it has a NUL in it, where the program would see its end")]
	Nul(OsString),
	/// The clone's working directory can't be opened.
	#[error("can't open the working directory, where the clone is to run: {}", words(.0))]
	Directory(#[source] io::Error),
	/// The template doesn't listen there, or on more ports than one.
	#[error("{}", no_port(name, *asked, ports))]
	Listens {
		/// The template.
		name: Name,
		/// The port in whose place another was to be.
		asked: Option<u16>,
		/// Those on which it listens.
		ports: Vec<u16>,
	},
	/// A template's socket tells nothing of itself.
	#[error("can't tell on which ports the template {name} listens: {}", words(source))]
	SocketOf {
		/// The template.
		name: Name,
		/// The system's reason.
		source: io::Error,
	},
	/// The port that a clone was to have can't be had.
	#[error("can't listen on port {port}: {}{}", words(source), port_cure(source))]
	Port {
		/// The port.
		port: u16,
		/// The system's reason.
		source: io::Error,
	},
	/// Too many sockets.
	#[error(
		"{0} sockets are more than a clone can have in the place of its template's, which is {LISTENERS}; name fewer ports"
	)]
	ManyPorts(usize),
	/// The template's program would be another one now.
	#[error("{}", stale(.0))]
	Stale(Stale),
	/// A template can't be made anew.
	#[error("can't warm {name} anew, and it {}: {source}{}", stays(let_go.is_some()), taken(let_go.as_deref()))]
	Anew {
		/// The template.
		name: Name,
		/// Why not.
		source: Box<Error>,
		/// `None`: the old one is as it was. Else it has let go of its ports of TCP, and makes no clones any more; on
		/// these its clones, or what they have started, still listen.
		let_go: Option<Vec<u16>>,
	},
	/// A template doesn't know what it was made by.
	#[error(
		"the template {0} was warmed under a limit on the size of files (ulimit -f), which left no room to keep what it was made by: remove it (`flashfork rm {0}`) and warm it again"
	)]
	NoRecipe(Name),
	/// There is no clone.
	#[error("{}", no_clone(name, *step, *errno))]
	NoClone {
		/// The template.
		name: Name,
		/// What could not be done.
		step: Step,
		/// Why: `errno`; 0 for none.
		errno: i32,
	},
	/// The clone, or the program that is warmed, can't be waited for.
	#[error("can't wait for {what}: {}", words(source))]
	Wait {
		/// What was waited for.
		what: String,
		/// The system's reason.
		source: io::Error,
	},
	/// The shim can't be used.
	#[error("{} {why}", path.display())]
	Shim {
		/// Where it should be.
		path: PathBuf,
		/// What is wrong, and what to do.
		why: &'static str,
	},
	/// A program that can't be run.
	#[error("can't run {program}: {why}")]
	Run {
		/// As it was given.
		program: String,
		/// What is wrong with it.
		why: String,
	},
	/// A program that can't become a template, or not to the end that was meant.
	#[error("{program} {why}")]
	Unfit {
		/// The program.
		program: String,
		/// Why not, and what to do.
		why: String,
	},
	/// A program that ended before it was ready.
	#[error("{program} {how} before it was ready; {hint}")]
	Ended {
		/// The program.
		program: String,
		/// How it ended.
		how: String,
		/// What may help.
		hint: &'static str,
	},
	/// The template's sockets can't be made.
	#[error("can't make a socket for the template: {}", words(.0))]
	Socket(#[source] io::Error),
}

impl Error {
	/// For `map_err` on file operations.
	pub(crate) fn file<E: Into<io::Error>>(what: &'static str, path: impl Into<PathBuf>) -> impl FnOnce(E) -> Error {
		let path = path.into();
		move |e| Error::File { what, path, source: e.into() }
	}

	/// Of a template that was to be made anew.
	pub(crate) fn anew(name: &Name, source: Error, let_go: Option<Vec<u16>>) -> Error {
		Error::Anew { name: name.clone(), source: Box::new(source), let_go }
	}

	/// For `map_err` where the template's sockets are made.
	pub(crate) fn socket(e: rustix::io::Errno) -> Error {
		Error::Socket(e.into())
	}

	pub(crate) fn socket_of(name: &Name, errno: i32) -> Error {
		Error::SocketOf { name: name.clone(), source: io::Error::from_raw_os_error(errno) }
	}

	/// The system's reason, where a call of its failed.
	#[must_use]
	pub fn os_error(&self) -> Option<i32> {
		match self {
			Error::NoClone { errno, .. } => Some(*errno).filter(|errno| *errno != 0),
			Error::Anew { source, .. } => source.os_error(),
			_ => std::error::Error::source(self)?.downcast_ref::<io::Error>()?.raw_os_error(),
		}
	}
}

fn words(error: &io::Error) -> String {
	let text = error.to_string();
	text.split_once(" (os error ").map_or(text.clone(), |(words, _)| words.to_owned())
}

fn connect_cure(error: &io::Error) -> &'static str {
	let short = [libc::EMFILE, libc::ENFILE].map(Some).contains(&error.raw_os_error());
	if short { "; close some, or raise the limit (ulimit -n)" } else { "" }
}

fn port_cure(error: &io::Error) -> &'static str {
	match error.raw_os_error() {
		Some(libc::EADDRINUSE) => "; choose another, or end what listens there",
		Some(libc::EACCES) => "; choose one from sysctl net.ipv4.ip_unprivileged_port_start on",
		_ => "",
	}
}

/// What becomes of a template that can't be made anew.
fn stays(has_let_go: bool) -> &'static str {
	if has_let_go { "makes no clones until that is done" } else { "stays as it was" }
}

/// What may have been in the way of the new one.
fn taken(ports: Option<&[u16]>) -> String {
	match ports {
		None | Some([]) => String::new(),
		Some(ports) => format!(
			"; clones of the old one still listen on port {}: if the new one needs that, end them, or have clones listen elsewhere (--listen)",
			listed(ports)
		),
	}
}

fn listed(ports: &[u16]) -> String {
	ports.iter().map(u16::to_string).collect::<Vec<_>>().join(", ")
}

fn no_port(name: &Name, asked: Option<u16>, ports: &[u16]) -> String {
	let all = listed(ports);
	match (ports, asked) {
		([], _) => format!(
			"{name} listens on no port of TCP, so its clones can't listen on another one; templates that do are warmed with `--threads`"
		),
		(_, Some(port)) => format!("{name} doesn't listen on port {port}; it listens on {all}"),
		([first, ..], None) => {
			format!("{name} listens on several ports ({all}): say in whose place, {first}:PORT for example")
		}
	}
}

/// A command line that sends the template a signal.
fn kill(pid: Option<i32>, signal: &str) -> String {
	pid.map_or_else(|| format!("signal {signal} to its process"), |pid| format!("`kill -{signal} {pid}`"))
}

fn stale(what: &Stale) -> String {
	format!(
		"{what}: `flashfork clone --fresh {}` warms it anew first (fresh=True in Python, flashfork_template_renew in C)",
		what.template
	)
}

fn no_clone(name: &Name, step: Step, errno: i32) -> String {
	let why = words(&io::Error::from_raw_os_error(errno));
	let not_the_callers = |what, by| {
		format!(
			"a clone of {name} can't have its caller's {what}: {why}; call it under the one that its template was warmed under, or warm it under this one ({by})"
		)
	};
	match step {
		Step::TooMany => format!(
			"{MOST_RUNNING} clones of {name} run, no more can; wait until some have ended, or warm another template"
		),
		Step::Retired => {
			format!("the template {name} is being removed; `flashfork warm {name} -- COMMAND` makes a new one")
		}
		Step::Fork => format!(
			"can't fork a clone of {name}: {why}; free memory, or raise the limits its template was warmed under"
		),
		Step::Descriptors => format!(
			"the template {name} is out of descriptors, of which it needs one for each clone that runs: wait until some have ended, or warm it under a higher limit (ulimit -n)"
		),
		Step::Directory => format!("a clone of {name} can't go to the working directory: {why}; run it elsewhere"),
		Step::Streams => format!("a clone of {name} can't take the standard streams: {why}"),
		Step::Arguments => format!(
			"{name} takes no arguments: its program was ready without knowing of clones, and all that it does from there is what it did in the template; call flashfork_ready() in it, and warm it with `--ready call`, to pass some; options of `flashfork clone` itself come before the name"
		),
		Step::Namespaces => format!(
			"can't make namespaces for a clone of {name}: {why}; sysctl user.max_pid_namespaces and user.max_mnt_namespaces say how many there may be"
		),
		Step::Files => format!("can't make the descriptors of a clone of {name} anew: {why}"),
		Step::Threads if errno == 0 => format!("a clone of {name} was killed before it began"),
		Step::Threads => format!(
			"can't make the threads of a clone of {name}: {why}; free memory, or raise the limits of processes (ulimit -u)"
		),
		Step::Hooks if errno == libc::ETIMEDOUT => format!(
			"a clone of {name} was ended: what its program has asked to be done first in each clone (flashfork_on_clone) came to no end in a minute"
		),
		Step::Hooks => format!(
			"a clone of {name} was ended: a function that its program has run first in each clone (flashfork_on_clone) has failed"
		),
		Step::Scheduling => format!(
			"a clone of {name} can't have its caller's scheduling policy: {why}; call it under the policy that its template was warmed under, or warm it under this one"
		),
		Step::IoPriority => not_the_callers("I/O priority", "ionice"),
		Step::Personality => not_the_callers("personality", "setarch"),
		Step::DumpFilter => format!(
			"a clone of {name} can't have its caller's filter of core dumps: {why}; let it write /proc/self/coredump_filter, or warm it under this filter"
		),
		Step::NoNewPrivs => format!(
			"the template {name} was warmed under no_new_privs, which its clones can't give up, and this caller is not under it; warm it from where it is called"
		),
		Step::Prctl => format!(
			"a clone of {name} can't have its caller's PR_SET_MDWE, secure bits, PR_SET_THP_DISABLE or timer slack: {why}; warm it from where it is called"
		),
		Step::Map | Step::Wait | Step::Request => {
			format!("a clone of {name} can't take its arguments: {why}; free memory, or raise its limit (ulimit -v)")
		}
	}
}

#[cfg(test)]
mod tests {
	use super::*;

	#[test]
	fn every_failure_is_one_line() {
		let name: Name = "t".parse().unwrap();
		let source = || io::Error::from_raw_os_error(libc::EMFILE);
		let all = [
			Error::Connect { name: name.clone(), source: source() },
			Error::Silent { name: name.clone(), pid: Some(7), seconds: 10 },
			Error::NoClone { name: name.clone(), step: Step::Fork, errno: libc::EAGAIN },
			Error::Gone(name),
			Error::Start(source()),
		];
		let texts = all.each_ref().map(ToString::to_string);
		assert!(texts.iter().all(|text| !text.contains(['\n', '\\']) && !text.contains("  ")), "{texts:?}");
		let connect =
			"can't connect to the template t: Too many open files; close some, or raise the limit (ulimit -n)";
		assert_eq!(texts[0], connect);
		assert!(texts[1].contains("10 seconds") && texts[1].contains("`kill -KILL 7` ends it"), "{}", texts[1]);
		let errors = [Some(libc::EMFILE), None, Some(libc::EAGAIN), None, Some(libc::EMFILE)];
		assert_eq!(all.each_ref().map(Error::os_error), errors);
	}
}
