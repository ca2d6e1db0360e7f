//! A template to be made: what is asked for, and whether that can be.

use crate::{
	directory::Directory,
	error::Error,
	java,
	link::{Found, Link},
	listener::Listener,
	name::Name,
	program,
	recipe::{Kept, Recipe},
	spawn::{Program, start, start_with_threads},
	start::Strings,
	warming::Warming,
};
use flashfork_warm::ReadyAt;
use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};
use std::{
	ffi::{OsStr, OsString},
	num::NonZeroU64,
	os::fd::AsRawFd,
	path::{Path, PathBuf},
	process::Stdio,
	time::Duration,
};

/// Where programs are looked for.
const PATH: &str = "PATH";
const CLASSPATH: &str = "CLASSPATH";

/// Where a program counts as warm.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Ready {
	/// Where an interpreter (CPython, Perl, Ruby) has run what it was given; before `main` in other programs.
	#[default]
	Auto,
	/// Before `main`, interpreters too.
	Main,
	/// Where the program calls `flashfork_ready`.
	Call,
	/// Where it connects to 127.0.0.1:1, as the runtime client of a function does under
	/// `AWS_LAMBDA_RUNTIME_API=127.0.0.1:1`. Each clone has what it gets as standard input in that connection's place,
	/// reads nothing there, and is locked into namespaces of its own (docs/SERVE.md). With threads ([`Warm::threads`],
	/// [`Moment::Itself`]) any of them may connect.
	Runtime,
}

/// When a program counts as warm whose clones have all its threads.
#[derive(Clone, Debug, PartialEq)]
pub enum Moment {
	/// Where it says so itself: as [`Ready`] has it.
	Itself,
	/// When it has used next to no processor time for so long.
	Idle(Duration),
	/// When it listens for connections, on this port of TCP or on any socket.
	Listen(Option<u16>),
	/// When it has printed a line in which this regular expression (of the crate `regex`) is found.
	Line(String),
}

impl Moment {
	/// As the keeper is told.
	pub(crate) fn word(&self) -> String {
		match self {
			Moment::Itself => "itself".into(),
			Moment::Idle(span) => format!("idle:{}", span.as_secs_f64()),
			Moment::Listen(None) => "listen".into(),
			Moment::Listen(Some(port)) => format!("listen:{port}"),
			Moment::Line(pattern) => format!("line:{pattern}"),
		}
	}
}

/// A template to be made.
///
/// Unless said otherwise: ready where it finds that, any number of clones, no environment, output to nobody.
#[derive(Debug)]
#[must_use = "nothing is warmed until it is started"]
pub struct Warm<'a> {
	names: &'a Directory,
	pub(crate) name: Name,
	pub(crate) command: Vec<OsString>,
	pub(crate) shim: PathBuf,
	pub(crate) ready: Ready,
	pub(crate) threads: Option<Moment>,
	pub(crate) max_clones: Option<NonZeroU64>,
	pub(crate) environment: Strings,
	pub(crate) output: Option<(Stdio, Stdio)>,
	/// Where it runs, if not where this process does.
	pub(crate) directory: Option<PathBuf>,
	/// Whether callers make it anew when it is stale.
	pub(crate) renews: bool,
	/// The template in whose place it comes.
	pub(crate) replaces: Option<Kept>,
	/// The program's file, if it is a wrapper of the one that is warmed.
	pub(crate) wrapper: Option<PathBuf>,
}

impl<'a> Warm<'a> {
	pub(crate) fn new(names: &'a Directory, name: Name, program: OsString, shim: PathBuf) -> Warm<'a> {
		Warm {
			names,
			name,
			command: vec![program],
			shim,
			ready: Ready::Auto,
			threads: None,
			max_clones: None,
			environment: Strings::default(),
			output: None,
			directory: None,
			renews: false,
			replaces: None,
			wrapper: None,
		}
	}

	/// As another was made. It comes in its place, and the old one goes with its last clone.
	pub(crate) fn anew(names: &'a Directory, name: Name, recipe: Recipe, kept: Kept) -> Warm<'a> {
		let Recipe { command, shim, directory, ready, threads, max_clones, renews, environment } = recipe;
		Warm {
			names,
			name,
			command,
			shim,
			ready,
			threads,
			max_clones,
			environment,
			output: None,
			directory: Some(directory),
			renews,
			replaces: Some(kept),
			wrapper: None,
		}
	}

	/// One more argument of the program.
	pub fn arg(mut self, argument: impl AsRef<OsStr>) -> Self {
		self.command.push(argument.as_ref().to_owned());
		self
	}

	/// More arguments.
	pub fn args<S: AsRef<OsStr>>(self, arguments: impl IntoIterator<Item = S>) -> Self {
		arguments.into_iter().fold(self, Warm::arg)
	}

	/// Where it is ready.
	pub fn ready(mut self, ready: Ready) -> Self {
		self.ready = ready;
		self
	}

	/// Its clones have all its threads, from that moment on. docs/THREADED_CLONES.md says what clones have anew and
	/// what is refused. It runs in namespaces of its own; `flashfork-keeper` must be where the shim is.
	pub fn threads(mut self, moment: Moment) -> Self {
		self.threads = Some(moment);
		self
	}

	/// The template goes after so many clones. Without, it stays until it is removed.
	pub fn max_clones(mut self, clones: NonZeroU64) -> Self {
		self.max_clones = Some(clones);
		self
	}

	/// A variable of the environment that the program is warmed in; its clones have their callers'. `PATH` is where the
	/// program is looked for; the shim comes before what `LD_PRELOAD` names; `NUMEXPR_NUM_THREADS` is 1 unless it is
	/// given, for the threads of numexpr don't stop for a fork. Given twice it has the last value.
	pub fn env(mut self, name: impl AsRef<OsStr>, value: impl AsRef<OsStr>) -> Self {
		self.environment.set(name, value);
		self
	}

	/// A string of the environment behind the others, as it is.
	pub fn variable(mut self, string: impl AsRef<OsStr>) -> Self {
		self.environment.push(string.as_ref());
		self
	}

	/// Strings, of `std::env::vars_os()` for example.
	pub fn envs<N: AsRef<OsStr>, V: AsRef<OsStr>>(self, variables: impl IntoIterator<Item = (N, V)>) -> Self {
		variables.into_iter().fold(self, |warm, (name, value)| warm.env(name, value))
	}

	/// Whether a caller finds it made anew ([`Template::renew`]) when it is stale, without being asked. Then it is
	/// stale, too, for a caller whose environment has other values of variables read at a program's start; it is made
	/// anew with these.
	pub fn renews(mut self, renews: bool) -> Self {
		self.renews = renews;
		self
	}

	/// Standard output and standard error while it is warmed. Its standard input is always empty.
	pub fn output(mut self, output: impl Into<Stdio>, errors: impl Into<Stdio>) -> Self {
		self.output = Some((output.into(), errors.into()));
		self
	}

	/// Starts the program, which comes to its ready point meanwhile. The thread that calls this must live until it is
	/// there: with it, the program ends.
	pub fn start(self) -> Result<Warming<'a>, Error> {
		self.check()?.start()
	}

	/// Whether the name is free, and the program one that can be a template; nothing is started yet.
	pub fn check(mut self) -> Result<Checked<'a>, Error> {
		if self.launches_java() && self.ready == Ready::Auto {
			self.ready = Ready::Call;
		}
		match Link::find(self.names, &self.name)? {
			Found::Alive(_) | Found::Stopped(_) if self.replaces.is_none() => return Err(Error::Taken(self.name)),
			Found::Dead => self.names.clear(&self.name)?,
			_ => {}
		}
		let work = self.ready == Ready::Auto && self.threads.is_none();
		self.wrapper = program::check(&self.command[0], self.environment.variable(PATH).unwrap_or_default(), work)?;
		if self.threads == Some(Moment::Itself) && !self.says_when_it_is_ready() {
			let why = if java::is_here(&self.command) {
				"does not say by itself when it is ready with its threads: put flashfork.Launch in front of its main class, or say it for it, with `--ready idle:SECONDS`, `listen`, `listen:PORT` or `line:REGEX`, or `--ready call` if it calls flashfork.Flashfork.ready()"
			} else {
				"does not say by itself when it is ready with its threads: say it for it, with `--ready idle:SECONDS`, `listen`, `listen:PORT` or `line:REGEX`, or `--ready call` if it calls flashfork_ready()"
			};
			return Err(self.unfit(why));
		}
		if self.threads.is_none() && java::launches(&self.command) {
			return Err(
				self.unfit("is run by flashfork.Launch, whose templates have threads: warm it with `--threads`")
			);
		}
		Ok(Checked(self))
	}

	fn unfit(&self, why: &str) -> Error {
		Error::Unfit { program: self.command[0].display().to_string(), why: why.into() }
	}

	/// Whether it does so with its threads: at its call, or where it connects, and Python and Node when their code has
	/// run.
	fn says_when_it_is_ready(&self) -> bool {
		match self.ready {
			Ready::Call | Ready::Runtime => true,
			Ready::Main => false,
			Ready::Auto => ReadyAt::of_runtime(self.command[0].as_encoded_bytes()).is_some(),
		}
	}

	/// Whether it is a Java program that flashfork's launcher runs, which says so.
	pub(crate) fn launches_java(&self) -> bool {
		self.threads.is_some() && java::launches(&self.command)
	}

	/// Has `java` find the launcher.
	fn with_launcher(&mut self) -> Result<(), Error> {
		let jar = self.beside_shim("flashfork.jar", JAR)?;
		let variable = self.environment.variable(CLASSPATH).map(OsStr::to_owned);
		java::add_to_class_path(&mut self.command, &jar, variable.as_deref());
		Ok(())
	}

	pub(crate) fn keeper(&self) -> Result<PathBuf, Error> {
		self.beside_shim("flashfork-keeper", KEEPER)
	}

	/// A file there; `why`: what is to be said if it isn't.
	fn beside_shim(&self, name: &str, why: &'static str) -> Result<PathBuf, Error> {
		let path = self.shim.with_file_name(name);
		if path.is_file() { Ok(path) } else { Err(Error::Shim { path, why }) }
	}

	/// The shim, by its full name.
	fn preload(&self) -> Result<OsString, Error> {
		let refuse = |path: &Path, why| Err(Error::Shim { path: path.to_owned(), why });
		let Some(shim) = self.shim.canonicalize().ok().filter(|shim| shim.is_file()) else {
			let why = "is not there, which is the shim that makes programs templates; `make install` installs it";
			return refuse(&self.shim, why);
		};
		// The loader separates by the first two, and replaces $ORIGIN (ld.so(8)).
		if shim.as_os_str().as_encoded_bytes().iter().any(|b| b" :$".contains(b)) {
			return refuse(&shim, "can't be preloaded from a path with a blank, colon or $; install it elsewhere");
		}
		Ok(shim.into())
	}
}

const KEEPER: &str = "is not there, which keeps templates with threads; `make install` installs it";
const JAR: &str = "is not there, which has flashfork.Launch; `make build` makes it where a JDK is installed, and `make install` installs it";

/// A template that can be made.
#[derive(Debug)]
#[must_use = "nothing is warmed until it is started"]
pub struct Checked<'a>(Warm<'a>);

impl<'a> Checked<'a> {
	/// As [`Warm::start`].
	pub fn start(self) -> Result<Warming<'a>, Error> {
		let Checked(mut warm) = self;
		let preload = warm.preload()?;
		let recipe = Recipe::of(&warm)?.file()?;
		if warm.launches_java() {
			warm.with_launcher()?;
		}
		let listener = Listener::bind(warm.names)?;
		let pair = socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None);
		let (ours, theirs) = pair.map_err(Error::socket)?;
		let passed = [theirs.as_raw_fd(), listener.socket.as_raw_fd(), warm.names.open.as_raw_fd(), recipe.as_raw_fd()];
		let started = match warm.threads.clone() {
			None => start(&mut warm, preload, passed),
			Some(moment) => start_with_threads(&mut warm, &moment, preload, passed),
		};
		let program = Program(Some(started?));
		drop(theirs);
		Warming::new(program, Link::over(ours), listener, warm)
	}
}
