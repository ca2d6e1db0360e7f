//! A redis-server prepared for one method.

use std::process::Child;

use super::client::Client;
use crate::{prelude::*, subjects::shim::preload};

const PATIENCE: Duration = Duration::from_secs(120);
/// Bytes a key of `DEBUG POPULATE` with values of this length takes in memory, about.
const VALUE: u64 = 1000;
const KEY: u64 = 1110;

pub struct Server {
	process: Child,
	client: Client,
	place: WorkDir,
}

impl Server {
	/// Starts one and waits until it answers.
	pub fn start(method: Method, shim: &Path) -> Result<Self> {
		let place = WorkDir::new(None)?;
		let mut command = Command::new("redis-server");
		command.args(["--port", "0", "--save", "", "--daemonize", "no", "--enable-debug-command", "yes"]);
		command.arg("--unixsocket").arg(place.path().join("socket")).arg("--dir").arg(place.path());
		// Redis forbids huge pages to itself, unless told not to; its allocator asks for them only when it is told to.
		match method {
			Method::Fork4k | Method::Odf | Method::Seal => command.args(["--disable-thp", "yes"]),
			Method::ForkThp => command.args(["--disable-thp", "no"]).env("MALLOC_CONF", "thp:always"),
			Method::Hugetlb => return Err(unable!("Redis takes no pages from the host's pool")),
		};
		preload(&mut command, shim, method);
		command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
		let mut process = command.spawn().or_cant("start redis-server (Debian: redis-server)")?;
		let begin = Instant::now();
		loop {
			if let Ok(mut client) = Client::connect(&place.path().join("socket"))
				&& client.ask(&["PING"]).is_ok()
			{
				return Ok(Self { process, client, place });
			}
			let ended = process.try_wait().or_cant("wait for redis-server")?;
			if ended.is_some() || begin.elapsed() > PATIENCE {
				end(&mut process);
				return Err(unable!("redis-server does not start"));
			}
			std::thread::sleep(Duration::from_millis(20));
		}
	}

	pub fn socket(&self) -> PathBuf {
		self.place.path().join("socket")
	}

	/// Fills it with about `size` bytes; how many keys that are (`key:0` and up).
	pub fn fill(&mut self, size: u64) -> Result<u64> {
		let keys = (size / KEY).max(1);
		self.client.ask(&["DEBUG", "POPULATE", &keys.to_string(), "key", &VALUE.to_string()])?;
		Ok(keys)
	}

	/// Takes a snapshot and waits for its end; microseconds of its fork, as Redis tells.
	pub fn snapshot(&mut self) -> Result<f64> {
		self.client.ask(&["BGSAVE"])?;
		let begin = Instant::now();
		while self.info("rdb_bgsave_in_progress")? != "0" {
			if begin.elapsed() > PATIENCE {
				return Err(unable!("a snapshot of Redis takes longer than two minutes"));
			}
			std::thread::sleep(Duration::from_millis(20));
		}
		if self.info("rdb_last_bgsave_status")? != "ok" {
			return Err(unable!("a snapshot of Redis failed (is there room in the temporary directory?)"));
		}
		let text = self.info("latest_fork_usec")?;
		text.parse().map_err(|_| unable!("Redis says its fork took '{text}' microseconds"))
	}

	fn info(&mut self, field: &str) -> Result<String> {
		let text = String::from_utf8_lossy(&self.client.ask(&["INFO"])?).into_owned();
		let found = text.lines().find_map(|line| line.strip_prefix(field)?.strip_prefix(':').map(str::trim));
		found.map(str::to_owned).ok_or_else(|| unable!("INFO of Redis lacks {field}"))
	}

	pub fn is_sealed(&self) -> Result<bool> {
		let path = format!("/proc/{}/maps", self.process.id());
		let maps = std::fs::read_to_string(&path).or_cant(format_args!("read {path}"))?;
		Ok(maps.contains("/memfd:flashfork:"))
	}

	/// Ends it, without a last snapshot.
	pub fn stop(mut self) -> Result {
		let mut out = Vec::new();
		super::client::command(&mut out, &[b"SHUTDOWN", b"NOSAVE"]);
		self.client.send(&out)?;
		let status = self.process.wait().or_cant("wait for redis-server")?;
		if status.success() { Ok(()) } else { Err(BenchError::Void(format!("redis-server ended with {status}"))) }
	}
}

impl Drop for Server {
	fn drop(&mut self) {
		end(&mut self.process);
	}
}

/// One that has ended already is what is wanted.
fn end(process: &mut Child) {
	let _ = process.kill();
	let _ = process.wait();
}
