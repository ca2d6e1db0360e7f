//! A clone, from what it shall have to its start.

use crate::{
	clone::{Asked, Clone},
	directory::Directory,
	error::Error,
	link::Link,
	listen::{self, Listen, Socket},
	name::Name,
	own,
	renew::Renewal,
	start::{self, Strings},
	template::Template,
};
use flashfork_warm::Ask;
use rustix::{
	fs::{CWD, Mode, OFlags},
	io::Errno,
};
use std::{
	ffi::OsStr,
	fs::File,
	os::fd::{AsFd, BorrowedFd, OwnedFd},
	path::{Path, PathBuf},
};

/// How often a template is made anew for one clone, where it is stale again as soon as that is done.
const MOST_RENEWED: u32 = 20;

/// What a clone shall have of its caller.
///
/// Unless said otherwise: no arguments, no environment, this process's working directory and standard streams, no
/// signal ignored or blocked. Always this process's umask (unless it is given), resource limits and filter of core
/// dumps, and the nice value, CPUs, scheduling policy, I/O priority, personality, `no_new_privs`, `PR_SET_MDWE`,
/// `PR_SET_THP_DISABLE`, timer slack and secure bits of the thread that asks.
#[derive(Debug)]
#[must_use = "nothing runs until it is started"]
pub struct Run<'a> {
	names: &'a Directory,
	name: &'a Name,
	arguments: Strings,
	environment: Strings,
	directory: Option<PathBuf>,
	streams: [Option<BorrowedFd<'a>>; 3],
	umask: Option<u32>,
	limits: Vec<(usize, u64)>,
	blocked: u64,
	ignored: u64,
	job: bool,
	listens: Vec<Listen>,
	apart: bool,
	fresh: bool,
}

impl<'a> Run<'a> {
	pub(crate) fn new(names: &'a Directory, name: &'a Name) -> Run<'a> {
		Run {
			names,
			name,
			arguments: Strings::default(),
			environment: Strings::default(),
			directory: None,
			streams: [rustix::stdio::stdin(), rustix::stdio::stdout(), rustix::stdio::stderr()].map(Some),
			umask: None,
			limits: Vec::new(),
			blocked: 0,
			ignored: 0,
			job: false,
			listens: Vec::new(),
			apart: false,
			fresh: false,
		}
	}

	/// One more argument, behind those that the template was started with.
	pub fn arg(mut self, argument: impl AsRef<OsStr>) -> Self {
		self.arguments.push(argument.as_ref());
		self
	}

	/// More arguments.
	pub fn args<S: AsRef<OsStr>>(self, arguments: impl IntoIterator<Item = S>) -> Self {
		arguments.into_iter().fold(self, Run::arg)
	}

	/// A variable of the environment. Given twice it is there twice.
	pub fn env(self, name: impl AsRef<OsStr>, value: impl AsRef<OsStr>) -> Self {
		self.variable([name.as_ref(), value.as_ref()].join(OsStr::new("=")))
	}

	/// Variables, of `std::env::vars_os()` for example.
	pub fn envs<N: AsRef<OsStr>, V: AsRef<OsStr>>(self, variables: impl IntoIterator<Item = (N, V)>) -> Self {
		variables.into_iter().fold(self, |run, (name, value)| run.env(name, value))
	}

	/// A string of the environment, as it is: `NAME=VALUE`.
	pub fn variable(mut self, string: impl AsRef<OsStr>) -> Self {
		self.environment.push(string.as_ref());
		self
	}

	/// The directory that it runs in.
	pub fn current_dir(mut self, directory: impl Into<PathBuf>) -> Self {
		self.directory = Some(directory.into());
		self
	}

	/// Its standard input, output and error: it gets these very files, and no byte is copied. `None`: it is started
	/// without that stream.
	pub fn streams(mut self, streams: [Option<BorrowedFd<'a>>; 3]) -> Self {
		self.streams = streams;
		self
	}

	/// The mask for files that it makes.
	pub fn umask(mut self, mask: u32) -> Self {
		self.umask = Some(mask);
		self
	}

	/// A resource limit (`RLIMIT_…` of `getrlimit(2)`), soft and hard, in place of this process's.
	pub fn limit(mut self, resource: u32, limit: u64) -> Self {
		self.limits.push((resource as usize, limit));
		self
	}

	/// The template is a stranger's, in namespaces of its own: nothing of what it says of processes is believed.
	pub fn apart(mut self) -> Self {
		self.apart = true;
		self
	}

	/// Signals that it ignores from the start on: bit N-1 for signal N.
	pub fn ignored(mut self, signals: u64) -> Self {
		self.ignored = signals;
		self
	}

	/// Signals that it blocks from the start on: bit N-1 for signal N.
	pub fn blocked(mut self, signals: u64) -> Self {
		self.blocked = signals;
		self
	}

	/// To a shell this process and its clone are one job: when the clone stops, the template stops this process
	/// (SIGSTOP), and continues it with its clone.
	pub fn one_job(mut self) -> Self {
		self.job = true;
		self
	}

	/// A port on which it listens in place of one of its template's, which must have its threads
	/// ([`Warm::threads`](crate::Warm::threads)). The socket is like the template's, and is bound by this process.
	pub fn listen(mut self, listen: Listen) -> Self {
		self.listens.push(listen);
		self
	}

	/// If the template is stale it is made anew first ([`Template::renew`]), however long that takes.
	pub fn fresh(mut self) -> Self {
		self.fresh = true;
		self
	}

	/// Asks for the clone and waits until it runs, a minute at most. Before that nothing of the program has run in it.
	pub fn start(self) -> Result<Clone, Error> {
		let template = Template::named(self.names, self.name.clone());
		let mut renewed = 0;
		loop {
			let asked = self.connect().and_then(Request::ask);
			let (started, asked) = match asked {
				Ok(asked) => {
					let template = asked.template();
					(asked.started(), Some(template))
				}
				Err(e) => (Err(e), None),
			};
			match started {
				Err(Error::Stale(stale)) if (self.fresh || stale.renews) && renewed < MOST_RENEWED => {
					self.renewed()?;
					renewed += 1;
				}
				Err(e) if template.is_replaced(&e, asked) => {}
				started => return started,
			}
		}
	}

	/// Begins to make the template anew, as [`Template::renew`] does. What of this environment counts is taken over by
	/// a template warmed so ([`Warm::renews`](crate::Warm::renews)). The program's errors are written where the clone's
	/// are.
	pub fn renew(&self) -> Result<Renewal<'a>, Error> {
		let template = Template::named(self.names, self.name.clone());
		template.renew_for(self.streams[2], Some(&self.environment))
	}

	/// The same to its end, whoever does it.
	fn renewed(&self) -> Result<(), Error> {
		loop {
			match self.renew()? {
				Renewal::Done => return Ok(()),
				Renewal::Others => std::thread::sleep(Template::TURN),
				Renewal::Warming(warming) => return warming.wait().map(drop),
			}
		}
	}

	/// Finds the template, and writes down what the clone takes over; it is asked for nothing yet.
	pub fn connect(&self) -> Result<Request<'a>, Error> {
		let mut link = Link::to(self.names, self.name)?;
		link.template = link.template.filter(|_| !self.apart);
		let mut own = own::describe(self.umask).map_err(Error::Start)?;
		for (resource, limit) in &self.limits {
			own.limits[*resource] = [*limit; 2];
		}
		let closed = (0..3).filter(|stream| self.streams[*stream].is_none()).fold(0, |set, stream| set | 1 << stream);
		let start = flashfork_warm::Start { blocked: self.blocked, ignored: self.ignored, closed, ..own };
		let start = start::file(start, &self.arguments, &self.environment)?;
		let place = self.directory.as_deref().unwrap_or(Path::new("."));
		let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
		let directory = rustix::fs::openat(CWD, place, flags, Mode::empty()).map_err(|e| Error::Directory(e.into()))?;
		let sockets = listen::sockets(&link, self.name, &self.listens)?;
		Ok(Request { link, name: self.name, start, directory, streams: self.streams, job: self.job, sockets })
	}
}

/// A clone that can be asked for.
#[derive(Debug)]
#[must_use = "nothing runs until it is asked for"]
pub struct Request<'a> {
	link: Link,
	name: &'a Name,
	start: File,
	directory: OwnedFd,
	streams: [Option<BorrowedFd<'a>>; 3],
	job: bool,
	sockets: Vec<Socket>,
}

impl Request<'_> {
	/// Asks for it, without waiting for what comes of it.
	pub fn ask(self) -> Result<Asked, Error> {
		let directory = self.directory.as_fd();
		// For a stream that will be closed any file does.
		let [input, output, errors] = self.streams.map(|stream| stream.unwrap_or(directory));
		let descriptors = [self.start.as_fd(), directory, input, output, errors];
		let mut asked = self
			.sockets
			.iter()
			.try_for_each(|(number, socket)| self.link.ask(Ask::Listen { number: *number }, &[socket.as_fd()]));
		asked = asked.and_then(|()| self.link.ask(Ask::Clone { job: self.job }, &descriptors));
		match asked {
			Ok(()) => Ok(Asked::new(self.link, self.name.clone())),
			Err(Errno::PIPE | Errno::CONNRESET) => Err(Error::Gone(self.name.clone())),
			Err(e) => Err(Error::Ask { name: self.name.clone(), source: e.into() }),
		}
	}
}
