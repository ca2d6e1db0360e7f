//! NATS servers, and nodes.

use crate::common::{SERVE, Server, until};
use std::{
	fs::{self, File},
	io::{BufRead, BufReader, Read, Write},
	net::{TcpListener, TcpStream},
	path::{Path, PathBuf},
	process::{Child, Command, Output},
	sync::mpsc::channel,
	time::{Duration, Instant},
};

/// A NATS server, killed at the end of its test.
pub struct Nats {
	process: Child,
	pub directory: PathBuf,
	port: u16,
}

impl Nats {
	/// One alone, with this in its configuration besides.
	pub fn start(name: &str, config: &str) -> Nats {
		let directory = directory(name);
		let port = free_port();
		Nats::run(directory, port, config)
	}

	/// Three of a cluster.
	pub fn three(name: &str) -> Vec<Nats> {
		let ports = [(); 3].map(|()| free_port());
		ports.iter().map(|port| Nats::of_cluster(name, *port, &ports)).collect()
	}

	/// Two: what the first says to the second comes a tenth of a second late.
	pub fn far(name: &str) -> [Nats; 2] {
		let near = free_port();
		[(near, near), (free_port(), late(near))].map(|(port, route)| Nats::of_cluster(name, port, &[route]))
	}

	fn of_cluster(name: &str, port: u16, routes: &[u16]) -> Nats {
		let routes: Vec<_> = routes.iter().map(|route| format!("nats-route://127.0.0.1:{route}")).collect();
		let cluster = format!("cluster {{ name: c, listen: \"127.0.0.1:{port}\", routes: [{}] }}", routes.join(", "));
		let directory = directory(&format!("{name}-{port}"));
		Nats::run(directory, free_port(), &format!("server_name: s{port}\n{cluster}"))
	}

	fn run(directory: PathBuf, port: u16, config: &str) -> Nats {
		// The room is only promised: without a figure, it is a part of what the disk has free.
		let text = format!(
			"listen: \"127.0.0.1:{port}\"\nping_interval: 2s\nping_max: 2\n\
			jetstream {{ store_dir: \"{}\", max_file_store: 16GB }}\n{config}\n",
			directory.join("jetstream").display()
		);
		fs::write(directory.join("conf"), text).unwrap();
		let nats = Nats { process: spawn(&directory), directory, port };
		nats.wait();
		nats
	}

	fn wait(&self) {
		until("nats-server doesn't listen", || TcpStream::connect(("127.0.0.1", self.port)).is_ok());
	}

	pub fn url(&self) -> String {
		format!("nats://127.0.0.1:{}", self.port)
	}

	pub fn kill(&mut self) {
		self.process.kill().unwrap();
		self.process.wait().unwrap();
	}

	pub fn start_again(&mut self) {
		self.process = spawn(&self.directory);
		self.wait();
	}

	/// Asks the server's JetStream something, and gives its answer.
	pub fn ask(&self, subject: &str, body: &str) -> String {
		self.exchange(subject, body).1
	}

	/// The same with the line of NATS's protocol before it.
	pub fn exchange(&self, subject: &str, body: &str) -> (String, String) {
		let mut stream = TcpStream::connect(("127.0.0.1", self.port)).unwrap();
		let length = body.len();
		write!(stream, "CONNECT {{\"verbose\":false}}\r\nSUB inbox 1\r\nPUB {subject} inbox {length}\r\n{body}\r\n")
			.unwrap();
		let mut lines = BufReader::new(stream).lines().map(Result::unwrap);
		let head = lines.find(|line| line.starts_with("MSG ")).expect("an answer");
		(head, lines.next().unwrap())
	}

	/// Has the first message of a subject waited for by what this returns.
	pub fn listen(&self, subject: &str) -> impl FnOnce() + use<> {
		let mut stream = TcpStream::connect(("127.0.0.1", self.port)).unwrap();
		write!(stream, "CONNECT {{\"verbose\":false}}\r\nSUB {subject} 1\r\nPING\r\n").unwrap();
		let mut lines = BufReader::new(stream).lines().map(Result::unwrap);
		assert!(lines.any(|line| line == "PONG"));
		move || assert!(lines.any(|line| line.starts_with("MSG ")))
	}

	/// Says something as nodes do, in a message's header.
	pub fn publish(&self, subject: &str, head: &str) {
		let mut stream = TcpStream::connect(("127.0.0.1", self.port)).unwrap();
		let head = format!("NATS/1.0\r\nFlashfork: {head}\r\n\r\n");
		let length = head.len();
		write!(
			stream,
			"CONNECT {{\"verbose\":false,\"headers\":true}}\r\nHPUB {subject} {length} {length}\r\n{head}\r\nPING\r\n"
		)
		.unwrap();
		assert!(BufReader::new(stream).lines().map(Result::unwrap).any(|line| line == "PONG"));
	}

	/// A node of this name.
	pub fn node(&self, test: &str, name: &str, options: &[&str]) -> Server {
		Server::start(&format!("{test}-{name}"), &[&["--nats", &self.url(), "--node-name", name], options].concat())
	}

	/// Two nodes.
	pub fn nodes(&self, test: &str, options: &[&str]) -> [Server; 2] {
		["n1", "n2"].map(|name| self.node(test, name, options))
	}

	/// Kills a node, and waits until NATS has seen that: what it still gives that node is lost.
	pub fn kill_node(&self, node: &mut Server, name: &str) {
		node.kill();
		until("NATS has not seen that it was killed", || !self.has_node(name));
	}

	/// Whether anything listens on a subject of that node's.
	fn has_node(&self, name: &str) -> bool {
		let mut stream = TcpStream::connect(("127.0.0.1", self.port)).unwrap();
		let connect = "CONNECT {\"verbose\":false,\"headers\":true,\"no_responders\":true}";
		// The pong comes behind what comes of the message at once: word that nobody is there.
		write!(stream, "{connect}\r\nSUB inbox 1\r\nPUB flashfork.node.{name}.gone.test inbox 0\r\n\r\nPING\r\n")
			.unwrap();
		let mut lines = BufReader::new(stream).lines().map(Result::unwrap);
		lines.find(|line| line == "PONG" || line.starts_with("HMSG inbox ")).expect("an answer") == "PONG"
	}

	/// `flashfork cluster`.
	pub fn cluster(&self, arguments: &[&str]) -> Output {
		self.cluster_command(arguments).output().unwrap()
	}

	pub fn cluster_command(&self, arguments: &[&str]) -> Command {
		let mut command = Command::new(SERVE);
		command.arg("cluster").args(arguments).args(["--nats", &self.url()]);
		command
	}

	/// The line of a node in `flashfork cluster status`, in words.
	pub fn status(&self, node: &str) -> Vec<String> {
		let done = self.cluster(&["status"]);
		assert!(done.status.success(), "{done:?}");
		let text = String::from_utf8(done.stdout).unwrap();
		let line = text.lines().find(|line| line.split_whitespace().next() == Some(node)).unwrap_or_default();
		line.split_whitespace().map(str::to_owned).collect()
	}

	/// Waits until `flashfork cluster status` has this in a column of a node's, of which the first is its name.
	pub fn until_node(&self, node: &str, column: usize, text: &str) {
		until(&format!("{node} is not {text}"), || self.status(node).get(column).is_some_and(|word| word == text));
	}
}

impl Drop for Nats {
	fn drop(&mut self) {
		self.kill();
	}
}

fn directory(name: &str) -> PathBuf {
	let directory = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("nats-{name}"));
	let _ = fs::remove_dir_all(&directory);
	fs::create_dir_all(&directory).unwrap();
	directory
}

/// One that nobody has now.
fn free_port() -> u16 {
	TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}

/// Another port for what listens on this one, by which that is heard late.
fn late(port: u16) -> u16 {
	let listener = TcpListener::bind("127.0.0.1:0").unwrap();
	let own = listener.local_addr().unwrap().port();
	std::thread::spawn(move || {
		let mut here = listener.accept().unwrap().0;
		let mut there = TcpStream::connect(("127.0.0.1", port)).unwrap();
		let (mut from, mut to) = (there.try_clone().unwrap(), here.try_clone().unwrap());
		std::thread::spawn(move || std::io::copy(&mut here, &mut there));
		let (sender, receiver) = channel();
		std::thread::spawn(move || {
			let mut bytes = [0; 1 << 16];
			while let Ok(count @ 1..) = from.read(&mut bytes) {
				sender.send((Instant::now() + Duration::from_millis(100), bytes[..count].to_vec())).unwrap();
			}
		});
		for (due, bytes) in receiver {
			std::thread::sleep(due.saturating_duration_since(Instant::now()));
			to.write_all(&bytes).unwrap();
		}
	});
	own
}

fn spawn(directory: &Path) -> Child {
	let log = File::options().create(true).append(true).open(directory.join("log")).unwrap();
	let mut command = Command::new("nats-server");
	command.arg("-c").arg(directory.join("conf")).stdout(log.try_clone().unwrap()).stderr(log);
	command.spawn().expect("nats-server is installed (apt-get install nats-server)")
}
