//! A server with functions, and requests as they are on the wire.

use rustix::process::Pid;
use serde_json::{Value, json};
use std::{
	fs,
	io::{BufRead, BufReader, Read, Write},
	net::TcpStream,
	os::unix::fs::PermissionsExt,
	path::{Path, PathBuf},
	process::{Child, Command, Output, Stdio},
	sync::LazyLock,
	time::{Duration, Instant},
};

/// An id and its secret.
pub type Key = (&'static str, &'static str);

/// The keys of servers with keys; the first two may all.
pub const ONE: Key = ("ONE", "secret-of-the-first-owner");
pub const TWO: Key = ("TWO", "secret-of-the-second-owner");
pub const DEPLOYER: Key = ("DEPLOYER", "secret-of-the-deployer-of-one");
pub const CALLER: Key = ("CALLER", "secret-of-the-caller-of-one");
pub const READER: Key = ("READER", "secret-of-the-reader-of-one");
const KEYS: &str = r#"# Of two owners.
ONE = { secret = "secret-of-the-first-owner", owner = "one", may = ["deploy", "invoke", "read"] }
TWO = { secret = "secret-of-the-second-owner", owner = "two", may = ["deploy", "invoke", "read"] }
DEPLOYER = { secret = "secret-of-the-deployer-of-one", owner = "one", may = ["deploy"] }
CALLER = { secret = "secret-of-the-caller-of-one", owner = "one", may = ["invoke"] }
READER = { secret = "secret-of-the-reader-of-one", owner = "one", may = ["read"] }
"#;

pub const SERVE: &str = env!("CARGO_BIN_EXE_flashfork-serve");
const HERE: &str = env!("CARGO_MANIFEST_DIR");

/// Debian's Python with awslambdaric, boto3 and numpy. Shim and keeper are built by then, and what renews Java.
pub static PYTHON: LazyLock<String> = LazyLock::new(|| {
	let mut build = Command::new(option_env!("CARGO").unwrap_or("cargo"));
	build.args(["build", "--locked", "--quiet", "-p", "flashfork-preload", "-p", "flashfork-keeper"]);
	build.args(["-p", "flashfork-java", "--target-dir"]);
	build.arg(Path::new(SERVE).parent().unwrap().parent().unwrap());
	build.args((!cfg!(debug_assertions)).then_some("--release"));
	assert!(build.status().unwrap().success());
	let mut make = Command::new(checkout().join("scripts/python-libraries"));
	let made = make.arg("lambda").stderr(Stdio::inherit()).output().unwrap();
	assert!(made.status.success());
	checkout().join(String::from_utf8(made.stdout).unwrap().trim()).to_str().unwrap().to_owned()
});

pub fn checkout() -> PathBuf {
	Path::new(HERE).join("../..").canonicalize().unwrap()
}

/// A server, killed at the end of its test.
pub struct Server {
	pub process: Child,
	/// `http://ADDRESS` or `https://ADDRESS`.
	pub url: String,
	pub address: String,
	/// Where metrics and health are, if they are anywhere.
	pub operations: Option<String>,
	pub state: PathBuf,
	options: Vec<String>,
}

impl Server {
	pub fn start(name: &str, options: &[&str]) -> Server {
		Server::start_as(name, options, |_| ())
	}

	/// The same of a command that is changed before; not when it is started again.
	pub fn start_as(name: &str, options: &[&str], change: impl FnOnce(&mut Command)) -> Server {
		let state = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("serve-{name}"));
		let _ = fs::remove_dir_all(&state);
		Server::run(state, options.iter().map(ToString::to_string).collect(), change)
	}

	/// The same with what its directory has already.
	pub fn keep(name: &str, options: &[&str]) -> Server {
		let state = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("serve-{name}"));
		Server::run(state, options.iter().map(ToString::to_string).collect(), |_| ())
	}

	/// One with keys; of the options that begin with `@` the rest is a file in their directory.
	pub fn with_keys(name: &str, options: &[&str], fill: impl FnOnce(&Path)) -> (Server, PathBuf) {
		let state = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("serve-{name}"));
		let closed = closed(&state);
		fs::write(closed.join("keys"), KEYS).unwrap();
		fs::set_permissions(closed.join("keys"), PermissionsExt::from_mode(0o600)).unwrap();
		fill(&closed);
		let path = |file: &str| closed.join(file).to_str().unwrap().to_owned();
		let all = ["--keys", "@keys"].iter().chain(options);
		let all = all.map(|option| option.strip_prefix('@').map_or(option.to_string(), path));
		(Server::run(state, all.collect(), |_| ()), closed)
	}

	fn run(state: PathBuf, options: Vec<String>, change: impl FnOnce(&mut Command)) -> Server {
		let (process, mut urls) = run(&state, &options, change);
		let address = |url: &String| url.rsplit('/').next().unwrap().to_owned();
		let (operations, url) = (urls.get(1).map(address), urls.swap_remove(0));
		Server { process, address: address(&url), url, operations, state, options }
	}

	pub fn kill_and_start_again(&mut self) {
		self.kill();
		let (state, options) = (self.state.clone(), self.options.clone());
		*self = Server::run(state, options, |_| ());
	}

	pub fn kill(&mut self) {
		self.process.kill().unwrap();
		self.process.wait().unwrap();
	}

	/// Runs a command of ours.
	pub fn command(&self, arguments: &[&str]) -> Output {
		self.command_as(None, arguments)
	}

	/// The same with a key.
	pub fn command_as(&self, key: Option<Key>, arguments: &[&str]) -> Output {
		let mut command = Command::new(SERVE);
		command.args(arguments).args(["--endpoint", &self.url]).env_remove("AWS_ACCESS_KEY_ID");
		if let Some((id, secret)) = key {
			command.env("AWS_ACCESS_KEY_ID", id).env("AWS_SECRET_ACCESS_KEY", secret);
		}
		command.output().unwrap()
	}

	/// Deploys the functions of `handlers.py` under a name.
	pub fn deploy(&self, name: &str, options: &[&str]) {
		let done = self.deploy_as(None, name, options);
		assert!(done.status.success(), "{done:?}");
	}

	/// The same with a key, if it may.
	pub fn deploy_as(&self, key: Option<Key>, name: &str, options: &[&str]) -> Output {
		let code = format!("{HERE}/tests/handlers");
		self.command_as(key, &[&["deploy", &code, "--name", name, "--handler", "handlers.handler"], options].concat())
	}

	/// Deploys what is there under a name, or says why not.
	pub fn deploy_from(&self, code: &Path, name: &str, options: &[&str]) -> Result<(), String> {
		let done = self.command(&[&["deploy", code.to_str().unwrap(), "--name", name], options].concat());
		if done.status.success() { Ok(()) } else { Err(String::from_utf8(done.stderr).unwrap()) }
	}

	/// A request, and what comes back: the status, all headers in lower case, and the body.
	pub fn ask(&self, method: &str, path: &str, headers: &str, body: &[u8]) -> (u16, String, Vec<u8>) {
		let mut stream = self.connect();
		let length = body.len();
		let head = format!(
			"{method} {path} HTTP/1.1\r\nHost: {}\r\nConnection: close\r\nContent-Length: {length}\r\n{headers}\r\n",
			self.address
		);
		stream.write_all(head.as_bytes()).unwrap();
		// One that is refused by its head may be told before all of it is sent.
		let _ = stream.write_all(body);
		answer(&mut stream)
	}

	/// The status and the body of what is at the operators' address.
	pub fn operator(&self, path: &str) -> (u16, String) {
		let mut stream = TcpStream::connect(self.operations.as_ref().unwrap()).unwrap();
		write!(stream, "GET {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n").unwrap();
		let (status, _, body) = answer(&mut stream);
		(status, String::from_utf8(body).unwrap())
	}

	pub fn connect(&self) -> TcpStream {
		TcpStream::connect(&self.address).unwrap()
	}

	/// A connection on which a call of a function has been asked for, with these headers.
	pub fn send(&self, name: &str, headers: &str, body: &str) -> TcpStream {
		let mut stream = self.connect();
		let head = format!("POST /2015-03-31/functions/{name}/invocations HTTP/1.1\r\nHost: {}", self.address);
		write!(stream, "{head}\r\n{headers}\r\n{body}").unwrap();
		stream
	}

	/// The same of one that makes processes with this word, and then sleeps: it has begun.
	pub fn sleeper(&self, word: &str) -> TcpStream {
		let stream = self.ask_sleeper(word);
		until("it never began", || runs(&format!("sleep-{word}")));
		stream
	}

	/// The same before it begins.
	pub fn ask_sleeper(&self, word: &str) -> TcpStream {
		let body = json!({ "do": "fork", "word": word, "then": "sleep" }).to_string();
		self.send("f", &format!("Content-Length: {}\r\n", body.len()), &body)
	}

	/// Calls one of `handlers.py`: its answer, and whether it failed.
	pub fn call(&self, name: &str, event: &Value) -> (Value, bool) {
		let path = format!("/2015-03-31/functions/{name}/invocations");
		let (status, headers, body) = self.ask("POST", &path, "", event.to_string().as_bytes());
		assert_eq!(status, 200, "{}", String::from_utf8_lossy(&body));
		(serde_json::from_slice(&body).unwrap(), headers.contains("x-amz-function-error: unhandled"))
	}

	/// Runs a Python program with boto3, `client` being one of this server.
	pub fn boto(&self, program: &str) {
		self.boto_as(("any", "any"), "None", program);
	}

	/// The same with a key, and `verify` being what it believes the server's certificate by.
	pub fn boto_as(&self, (id, secret): Key, verify: &str, program: &str) {
		let head = format!(
			"import boto3, botocore, json\nfrom botocore.config import Config\n\
			 def to(id, secret, verify={verify}, **config):\n \
			  return boto3.client('lambda', endpoint_url='{}', region_name='local', aws_access_key_id=id, \
			    aws_secret_access_key=secret, verify=verify, config=Config(retries={{'max_attempts': 0}}, **config))\n\
			 client = to('{id}', '{secret}')\n\
			 def refused(what, kind):\n \
			  try: what()\n \
			  except botocore.exceptions.ClientError as e: assert e.response['Error']['Code'] == kind, e\n \
			  else: raise SystemExit('it is not refused: ' + kind)\n",
			self.url
		);
		let done = Command::new(&*PYTHON).args(["-c", &(head + program)]).output().unwrap();
		assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
	}
}

impl Drop for Server {
	fn drop(&mut self) {
		self.kill();
	}
}

/// Whose functions may not be seen by the server's: where its keys are.
fn closed(state: &Path) -> PathBuf {
	let closed = if rustix::process::geteuid().is_root() { state.with_extension("closed") } else { state.to_owned() };
	for place in [state, &closed] {
		let _ = fs::remove_dir_all(place);
	}
	fs::create_dir_all(&closed).unwrap();
	closed
}

fn run(state: &Path, options: &Vec<String>, change: impl FnOnce(&mut Command)) -> (Child, Vec<String>) {
	let mut command = Command::new(SERVE);
	command.args(["serve", "--python", &PYTHON, "--state"]).arg(state).args(options);
	if !options.iter().any(|option| option == "--listen") {
		command.args(["--listen", "127.0.0.1:0"]);
	}
	change(&mut command);
	let mut process = command.stdout(Stdio::piped()).spawn().unwrap();
	let mut line = String::new();
	BufReader::new(process.stdout.take().unwrap()).read_line(&mut line).unwrap();
	let urls = line.split([' ', ',', '\n']).filter(|word| word.starts_with("http"));
	(process, urls.map(|url| url.replace("0.0.0.0", "127.0.0.1")).collect())
}

pub fn answer(stream: &mut TcpStream) -> (u16, String, Vec<u8>) {
	let mut all = Vec::new();
	// It may close before all of a request is read; what it has said before that counts.
	let _ = stream.read_to_end(&mut all);
	let end = all.windows(4).position(|four| four == b"\r\n\r\n").unwrap_or_else(|| panic!("no answer: {all:?}"));
	let head = String::from_utf8(all[..end].to_vec()).unwrap().to_lowercase();
	(head[9..12].parse().unwrap(), head, all[end + 4..].to_vec())
}

/// Waits until something is so; panics where it stays otherwise.
pub fn until(what: &str, so: impl Fn() -> bool) {
	let start = Instant::now();
	while !so() {
		assert!(start.elapsed() < Duration::from_secs(60), "{what}");
		std::thread::sleep(Duration::from_millis(5));
	}
}

/// Whether a process has this word in its environment or command line.
pub fn runs(word: &str) -> bool {
	!processes(word).is_empty()
}

/// All that have.
pub fn processes(word: &str) -> Vec<Pid> {
	let all = fs::read_dir("/proc").unwrap().flatten();
	let all = all.filter_map(|entry| Some((entry.path(), Pid::from_raw(entry.file_name().to_str()?.parse().ok()?)?)));
	let has = |path: &Path| {
		["environ", "cmdline"].iter().any(|file| {
			let text = fs::read(path.join(file)).unwrap_or_default();
			text.windows(word.len()).any(|window| window == word.as_bytes())
		})
	};
	all.filter(|(path, _)| has(path)).map(|(_, pid)| pid).collect()
}
