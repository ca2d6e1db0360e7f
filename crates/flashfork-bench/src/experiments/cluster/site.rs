//! Three NATS servers, one JetStream cluster, and four nodes, each on a machine of its own.

use std::{
	cell::RefCell,
	fs::{self, File, Permissions, set_permissions},
	net::TcpStream,
	os::unix::fs::PermissionsExt,
	process::{Child, ChildStdin, ChildStdout},
};

use tokio::{
	io::{AsyncBufReadExt, BufReader},
	net::UnixDatagram,
};

use super::network::{Network, Space};
use crate::{
	prelude::*,
	subjects::{
		command::{apart, cc, last_line},
		guard::Guard,
	},
};

pub const SERVERS: usize = 3;
pub const NODES: usize = 4;

/// Where a node listens on its machine.
pub const LISTEN: &str = "127.0.0.1:9001";
/// How long a server may take to listen.
const START: Duration = Duration::from_secs(10);

/// A process that is killed when this is dropped or the experiment ends in any way.
pub struct Killed {
	process: Child,
	guard: Option<Guard>,
}

impl Killed {
	pub fn start(command: &mut Command) -> Result<Self> {
		let doing = || format!("run {}", Path::new(command.get_program()).display());
		let (mut guard, doing) = (Guard::that_sends("KILL")?, doing());
		let process = command.spawn().or_cant(doing)?;
		guard.watch(process.id())?;
		Ok(Self { process, guard: Some(guard) })
	}

	/// Its standard input and output, where these are pipes.
	pub fn streams(&mut self) -> (Option<ChildStdin>, Option<ChildStdout>) {
		(self.process.stdin.take(), self.process.stdout.take())
	}
}

impl Drop for Killed {
	fn drop(&mut self) {
		// Nobody else has its number until it is waited for.
		drop(self.guard.take());
		let _ = self.process.wait();
	}
}

/// All of it.
pub struct Site {
	servers: RefCell<[Option<Killed>; SERVERS]>,
	nodes: RefCell<[Option<Killed>; NODES]>,
	pub network: Network,
	pub work: WorkDir,
	flashfork: PathBuf,
	python: PathBuf,
}

/// A node's name.
pub fn name(node: usize) -> String {
	format!("node-{}", node + 1)
}

/// A NATS server's name.
pub fn server_name(server: usize) -> String {
	format!("nats-{}", server + 1)
}

/// The server that a node, or who asks from its machine, connects to first; that tells of the others.
pub fn url(node: usize) -> String {
	format!("nats://{}:4222", Network::address(node % SERVERS))
}

impl Site {
	/// Starts it, within a runtime. Of /tmp each call has its own, so what nodes have lies elsewhere.
	pub async fn start(flashfork: PathBuf, python: PathBuf) -> Result<Self> {
		let network = Network::new(SERVERS + NODES)?;
		let work = WorkDir::new(Some(Path::new("/var/tmp")))?;
		// Started by root a node becomes another user.
		set_permissions(work.path(), Permissions::from_mode(0o711)).or_cant("open a directory to nodes")?;
		let (servers, nodes) = Default::default();
		let site = Self { servers, nodes, network, work, flashfork, python };
		(0..SERVERS).try_for_each(|server| site.configure(server).and_then(|()| site.start_server(server)))?;
		(0..SERVERS).try_for_each(|server| site.wait_for(server))?;
		for node in 0..NODES {
			site.start_node(node).await?;
		}
		Ok(site)
	}

	/// A node's machine.
	pub fn node(&self, node: usize) -> &Space {
		&self.network.machines[SERVERS + node]
	}

	/// Cuts a node's link, or mends it.
	pub fn link(&self, node: usize, up: bool) -> Result {
		self.network.link(SERVERS + node, up)
	}

	fn directory(&self, name: &str) -> PathBuf {
		self.work.path().join(name)
	}

	/// As docs/SERVE.md has it.
	fn configure(&self, server: usize) -> Result {
		let name = server_name(server);
		let directory = self.directory(&name);
		let own = Network::address(server);
		let routes: Vec<_> = (0..SERVERS).map(|i| format!("nats-route://{}:6222", Network::address(i))).collect();
		let text = format!(
			"server_name: {name}\nlisten: \"{own}:4222\"\nmax_payload: 8MB\nping_interval: 2s\nping_max: 2\n\
			 jetstream {{ store_dir: \"{}\", max_file_store: 16GB }}\n\
			 cluster {{ name: functions, listen: \"{own}:6222\", routes: [{}] }}\n",
			directory.join("jetstream").display(),
			routes.join(", ")
		);
		let written = fs::create_dir(&directory).and_then(|()| fs::write(directory.join("conf"), text));
		written.or_cant("write the configuration of nats-server")
	}

	/// Without waiting for it.
	pub fn start_server(&self, server: usize) -> Result {
		let directory = self.directory(&server_name(server));
		let log = File::create(directory.join("log")).or_cant("write a log")?;
		let mut command = apart(Path::new("nats-server"));
		command.arg("-c").arg(directory.join("conf")).stdout(Stdio::null()).stderr(log);
		let started = self.network.machines[server].within(|| Killed::start(&mut command));
		let started = started.map_err(|error| unable!("{error} (apt-get install nats-server)"))?;
		self.servers.borrow_mut()[server] = Some(started);
		Ok(())
	}

	fn wait_for(&self, server: usize) -> Result {
		let begin = Instant::now();
		self.network.machines[server].within(|| {
			while TcpStream::connect((Network::address(server), 4222)).is_err() {
				if begin.elapsed() > START {
					let log = fs::read(self.directory(&server_name(server)).join("log")).unwrap_or_default();
					return Err(unable!("{}", last_line(&log, "nats-server does not listen")));
				}
				std::thread::sleep(Duration::from_millis(10));
			}
			Ok(())
		})
	}

	pub fn kill_server(&self, server: usize) {
		self.servers.borrow_mut()[server] = None;
	}

	/// Returns when it serves.
	pub async fn start_node(&self, node: usize) -> Result {
		let name = name(node);
		let said = self.directory(&format!("{name}.log"));
		let errors = File::create(&said).or_cant("write a log")?;
		let mut command = apart(&self.flashfork);
		command.args(["serve", "--listen", LISTEN, "--event-retry", "1", "--node-name", &name, "--nats", &url(node)]);
		command.arg("--python").arg(&self.python).arg("--state").arg(self.directory(&name));
		command.stdout(Stdio::piped()).stderr(errors);
		let mut started = self.node(node).within(|| Killed::start(&mut command))?;
		let mut line = String::new();
		if let (_, Some(told)) = started.streams() {
			let told = tokio::process::ChildStdout::from_std(told).or_cant("read what a node says")?;
			BufReader::new(told).read_line(&mut line).await.or_cant("read what a node says")?;
		}
		if line.is_empty() {
			let said = fs::read(said).unwrap_or_default();
			return Err(unable!("{}", last_line(&said, "flashfork serve does not start")));
		}
		self.nodes.borrow_mut()[node] = Some(started);
		Ok(())
	}

	pub fn kill_node(&self, node: usize) {
		self.nodes.borrow_mut()[node] = None;
	}

	/// Where a run of an event tells its number.
	pub fn count(&self) -> PathBuf {
		self.directory("count")
	}

	/// Hears that, from now on.
	pub fn counter(&self) -> Result<UnixDatagram> {
		let (path, doing) = (self.count(), "listen for events");
		match fs::remove_file(&path) {
			Err(error) if error.kind() != std::io::ErrorKind::NotFound => return Err(error).or_cant(doing),
			_ => {}
		}
		let counter = UnixDatagram::bind(&path).or_cant(doing)?;
		set_permissions(&path, Permissions::from_mode(0o666)).or_cant(doing)?;
		Ok(counter)
	}

	/// Deploys the function in Python, or the one in C, with so many bytes that it has written to, at a node. There it
	/// is warm then, and nowhere else.
	pub fn deploy(&self, node: usize, name: &str, in_c: bool, bytes: u64) -> Result {
		let code = self.directory(if in_c { "program" } else { "code" });
		let write = |place: &Path, text: &str| fs::write(place, text).or_cant("write a function");
		fs::create_dir_all(&code).or_cant("write a function")?;
		if in_c {
			let source = self.directory("function.c");
			write(&source, include_str!("function.c"))?;
			cc(&["-O2"], &source, &code.join("bootstrap"))?;
		} else {
			write(&code.join("lambda_function.py"), include_str!("function.py"))?;
		}
		let mut deploy = apart(&self.flashfork);
		deploy.args(["deploy", "--name", name, "--endpoint", LISTEN, "--env", &format!("HELD={bytes}")]).arg(code);
		let done = self.node(node).within(|| deploy.output().or_cant("run flashfork deploy"))?;
		if done.status.success() {
			Ok(())
		} else {
			Err(unable!("{}", last_line(&done.stderr, "flashfork deploy failed")))
		}
	}
}
