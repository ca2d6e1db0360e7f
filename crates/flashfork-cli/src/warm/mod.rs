//! `flashfork warm`, `clone`, `ls` and `rm`: templates of processes, and clones of them from the shell.
//!
//! What they do is in flashfork-templates; here they are read and what came of them is printed.

mod call;
pub mod caller;
mod list;
mod template;

use clap::Args;
use clap_complete::{ArgValueCandidates, CompletionCandidate};
use flashfork_templates::{Directory, Listen, Moment, Name};
use flashfork_terminal::CliError;
use regex::Regex;
use std::{
	ffi::{OsStr, OsString},
	os::unix::ffi::OsStrExt,
	path::PathBuf,
	process::ExitCode,
	str::FromStr,
	time::Duration,
};

/// Start a program and keep it, warm, as a template for `flashfork clone`
///
/// The program runs until it is ready: CPython, Perl and Ruby when the code they were given has run, any other
/// dynamically linked program when it is linked and about to enter main. There it waits, in the background, until
/// `flashfork rm`. A wrapper that becomes the program (env, pyenv, a script that ends in exec) is followed.
/// docs/WARM.md has the details.
#[derive(Args)]
#[command(override_usage = "flashfork warm [OPTIONS] <NAME> [--] <COMMAND>...")]
#[command(after_help = "Examples:
  flashfork warm py -- python3 -c 'import numpy'
  flashfork clone py script.py")]
pub struct WarmArgs {
	/// What the template is called
	name: Name,
	/// Where the program is ready: auto, main, call; with --threads also idle:SECONDS, listen, listen:PORT, line:REGEX
	///
	/// auto: when an interpreter has run what it was given; before main in other programs. main: before main,
	/// interpreters too. call: where the program calls flashfork_ready(). idle:SECONDS: when it has used next to no
	/// processor time for so long. listen: when it listens for connections. line:REGEX: when it has printed a line in
	/// which that is found.
	#[arg(long, value_name = "WHERE", default_value = "auto")]
	ready: Ready,
	/// Clones have all threads of the program
	///
	/// It runs in namespaces of its own. docs/THREADED_CLONES.md says what clones have anew and what is refused.
	#[arg(long)]
	threads: bool,
	/// A clone finds the template made anew when its program has changed
	///
	/// So does a clone whose environment has another value of a variable read at a program's start (PYTHONPATH,
	/// LD_LIBRARY_PATH, VIRTUAL_ENV and others), or a PATH that leads to another program: the template is warmed anew
	/// with these. Without it such a clone needs `flashfork clone --fresh`.
	#[arg(long)]
	watch: bool,
	/// The template goes after so many clones; without, `flashfork rm` removes it
	#[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
	max_clones: Option<u64>,
	/// The program and its arguments
	#[arg(trailing_var_arg = true, required = true, value_name = "COMMAND")]
	command: Vec<OsString>,
}

/// Where, of a program that knows of clones or whose runtime the shim knows; or at what moment.
#[derive(Clone, Debug, PartialEq)]
enum Ready {
	At(flashfork_templates::Ready),
	When(Moment),
}

impl FromStr for Ready {
	type Err = String;

	fn from_str(text: &str) -> Result<Ready, String> {
		use flashfork_templates::Ready::{Auto, Call, Main};
		let seconds = |text: &str| text.parse().ok().and_then(|seconds| Duration::try_from_secs_f64(seconds).ok());
		Ok(match text.split_once(':').map_or((text, None), |(word, rest)| (word, Some(rest))) {
			("auto", None) => Ready::At(Auto),
			("main", None) => Ready::At(Main),
			("call", None) => Ready::At(Call),
			("listen", None) => Ready::When(Moment::Listen(None)),
			("listen", Some(port)) => {
				let port = port.parse().map_err(|_| format!("{port} is no port; write listen:8080, for example"))?;
				Ready::When(Moment::Listen(Some(port)))
			}
			("idle", Some(text)) => {
				let span = seconds(text).filter(|span| !span.is_zero());
				let span = span.ok_or_else(|| format!("{text} are no seconds; write idle:1.5, for example"))?;
				Ready::When(Moment::Idle(span))
			}
			("line", Some("")) => return Err("say which line; line:. is the first that has anything in it".into()),
			("line", Some(pattern)) => {
				Regex::new(pattern).map_err(|e| e.to_string())?;
				Ready::When(Moment::Line(pattern.into()))
			}
			_ => return Err("it is auto, main, call, idle:SECONDS, listen, listen:PORT or line:REGEX".into()),
		})
	}
}

/// Run a clone of a template as if it were a program started here
///
/// The clone has this command's standard streams, working directory, environment, umask, limits, priority and signals,
/// and ARGS behind the arguments its template was started with. Signals are passed on to it; its exit status is this
/// command's.
///
/// There is no clone, and one line says which file it was, once the program would be another one if it were started
/// now: a module, library or script that it was made of, or data that it has read, has changed, or a module that it had
/// looked for in vain is there. With --fresh the template is made anew.
#[derive(Args)]
#[command(override_usage = "flashfork clone [OPTIONS] <NAME> [--] [ARGS]...")]
#[command(after_help = "Examples:
  flashfork clone py script.py --verbose < input > output
  flashfork clone --fresh py script.py
  flashfork clone --listen 8081 web

Exit code: the clone's own; a signal that ends the clone ends the command. 1 when there is no clone (one line says why; a template that is stale is such a reason), 2 for wrong usage.")]
pub struct CloneArgs {
	/// The template
	#[arg(add = ArgValueCandidates::new(candidates))]
	name: Name,
	/// The port on which the clone listens, in place of its template's. Before NAME
	///
	/// If the template listens on several ports, TEMPLATE_PORT says in place of which. The socket is as the template's,
	/// and is bound by this command. Of templates with threads.
	#[arg(long, value_name = "[TEMPLATE_PORT:]PORT", value_parser = listen)]
	listen: Vec<Listen>,
	/// If the template's program has changed, warm it anew first. Before NAME
	///
	/// By its own command line, directory, environment and options. If nothing has changed the clone is made at once.
	/// Of several commands that do this at a time one warms it, and all get their clones. If it can't be warmed the old
	/// template stays; one with threads that listens on ports has let go of them, and makes no clones any more. What
	/// the program prints meanwhile is dropped, but for its errors.
	#[arg(long)]
	fresh: bool,
	/// The clone's arguments
	#[arg(trailing_var_arg = true, allow_hyphen_values = true, value_name = "ARGS")]
	args: Vec<OsString>,
}

fn listen(text: &str) -> Result<Listen, String> {
	let port = |text: &str| text.parse().ok().filter(|port| *port > 0).ok_or_else(|| format!("{text} is no port"));
	let (before, behind) = text.split_once(':').map_or((None, text), |(before, behind)| (Some(before), behind));
	Ok(Listen { instead_of: before.map(port).transpose()?, port: port(behind)? })
}

/// List templates
///
/// PROCESS is the template's number. READY says where its clones begin: before main, where it called, in an
/// interpreter (python, perl, ruby, node), where it listened, was idle or had printed a line; or that it is stopped,
/// silent (doesn't answer) or strange (is none of flashfork's). RUNNING and MADE count its clones; behind a slash
/// MADE says how many there may be. SEALED is the memory that clones share with it at no cost. CHANGED counts what it
/// was made of and has changed since: then there are no clones, until it is made anew.
#[derive(Args)]
#[command(after_help = "Example: flashfork ls")]
pub struct LsArgs {
	/// Print JSON
	#[arg(long)]
	json: bool,
}

/// Remove templates; their clones run on to their end
///
/// What isn't there needs no removing: that is said, and no failure.
#[derive(Args)]
#[command(after_help = "Example: flashfork rm py")]
pub struct RmArgs {
	/// The templates
	#[arg(required = true, value_name = "NAME", add = ArgValueCandidates::new(candidates))]
	names: Vec<Name>,
}

fn place() -> PathBuf {
	let runtime = std::env::var_os("XDG_RUNTIME_DIR");
	Directory::place(runtime.as_ref().map(AsRef::as_ref))
}

/// Opens it; without one there is no template.
fn names() -> Result<Option<Directory>, flashfork_templates::Error> {
	Directory::find(place())
}

/// For a shell's completion; where names can't be read there are none.
fn candidates() -> Vec<CompletionCandidate> {
	let all = names().and_then(|names| names.map_or_else(|| Ok(Vec::new()), |names| names.names())).unwrap_or_default();
	all.into_iter().map(|name| CompletionCandidate::new(name.to_string())).collect()
}

pub fn warm(args: &WarmArgs) -> Result<ExitCode, CliError> {
	template::warm(args)
}

pub fn clone(args: &CloneArgs) -> Result<ExitCode, CliError> {
	call::clone(&args.name, &args.args, &args.listen, args.fresh).map(ExitCode::from)
}

/// `clone NAME ARGS…` when it is as plain as that: from NAME on all words are the clone's, whatever they look like. The
/// launcher, which reads them likewise, comes here when something must be said.
pub fn plain_clone(line: &[OsString]) -> Option<Result<ExitCode, CliError>> {
	let [command, name, words @ ..] = line else { return None };
	let name = name.to_str().filter(|_| command == "clone")?.parse().ok()?;
	let words = words.strip_prefix(&[OsString::from("--")]).unwrap_or(words);
	Some(call::clone(&name, words, &[], false).map(ExitCode::from))
}

/// Goes on with a clone that the launcher has asked for, if it says so.
pub fn go_on(line: &[OsString]) -> Option<Result<ExitCode, CliError>> {
	let [attend, handed, _, name, ..] = line else { return None };
	let name =
		name.to_str().filter(|_| attend == OsStr::from_bytes(flashfork_warm::ATTEND.to_bytes()))?.parse().ok()?;
	let (connection, clone) = handed.to_str()?.split_once(',')?;
	let (connection, clone) = (connection.parse().ok().filter(|fd| *fd > 2)?, clone.parse().ok()?);
	Some(call::go_on(name, connection, clone).map(ExitCode::from))
}

pub fn ls(args: &LsArgs) -> Result<ExitCode, CliError> {
	list::ls(args.json)
}

pub fn rm(args: &RmArgs) -> Result<ExitCode, CliError> {
	list::rm(&args.names)
}
