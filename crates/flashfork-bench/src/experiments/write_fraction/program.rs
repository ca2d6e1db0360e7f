//! The programs that are run: a command given, or one of the ready runs.

use std::{
	ffi::OsString,
	io::{Read, Write},
	os::unix::net::UnixStream,
	process::ExitStatus,
};

use flashfork_advise::{Program as Started, Ran};

use super::Ready;
use crate::{advised::failed, prelude::*};

/// How long a ready run may take until it stops itself.
const PATIENCE: Duration = Duration::from_secs(120);
/// How often redis-server is called until it answers.
const LOOK: Duration = Duration::from_millis(2);
/// Keys in redis, and how many of them are written again.
const KEYS: u32 = 100_000;

/// Makes 200,000 records, then keeps the name of one in ten: nothing is changed but the reference counts of what is
/// kept.
const CPYTHON: &str = "\
import gc, os, signal
records = [{'number': i, 'name': 'record %d' % i, 'tags': [i, i + 1]} for i in range(200_000)]
gc.collect()
os.kill(os.getpid(), signal.SIGSTOP)
kept = [record['name'] for record in records[::10]]
assert len(kept) == 20_000
os.kill(os.getpid(), signal.SIGSTOP)
";
/// Ten rings, drawn as fast as possible.
const HANOI: &str = "\
(progn (require 'hanoi)
       (setq hanoi-move-period nil)
       (signal-process (emacs-pid) 'SIGSTOP)
       (hanoi 10)
       (signal-process (emacs-pid) 'SIGSTOP))";
/// 300,000 rows of about 100 bytes, an index, then one row in a hundred updated.
const SQLITE: &str = "\
create table t (id integer primary key, k integer, text text);
with recursive n(i) as (select 1 union all select i + 1 from n where i < 300000)
  insert into t select i, i * 7919 % 300000, printf('%080d', i) from n;
create index t_k on t (k);
.system kill -STOP $PPID
update t set k = k + 1, text = 'new' || substr(text, 4) where id % 100 = 0;
.system kill -STOP $PPID
";

enum Pace {
	/// After a time, and after another; sooner when it stops itself.
	Timed { after: Duration, during: Duration },
	/// When it stops itself.
	Stops,
	/// After what is sent to its socket.
	Redis(UnixStream),
}

/// A running program. Dropping it ends it.
pub struct Program {
	started: Started,
	pace: Pace,
	/// Where redis has its socket.
	_dir: Option<WorkDir>,
}

impl Program {
	pub fn command(command: &[OsString], after: f64, during: f64) -> Result<Self> {
		let pace = Pace::Timed { after: Duration::from_secs_f64(after), during: Duration::from_secs_f64(during) };
		Ok(Self { started: Started::command(command).map_err(failed)?, pace, _dir: None })
	}

	pub fn ready(ready: Ready) -> Result<Self> {
		let mut start = Command::new(match ready {
			Ready::Cpython => "python3",
			Ready::Emacs => "emacs",
			Ready::Sqlite => "sqlite3",
			Ready::Redis => "redis-server",
		});
		start.stdout(Stdio::null()).stderr(Stdio::null());
		match ready {
			Ready::Cpython => start.args(["-S", "-c", CPYTHON]),
			Ready::Emacs => start.args(["-Q", "--batch", "--eval", HANOI]),
			Ready::Sqlite => start.arg(":memory:").stdin(Stdio::piped()),
			Ready::Redis => return Self::redis(start),
		};
		let mut started = Started::start(name(ready), start).map_err(failed)?;
		if let Some(mut input) = started.input() {
			input.write_all(SQLITE.as_bytes()).or_cant("write to sqlite3")?;
		}
		Ok(Self { started, pace: Pace::Stops, _dir: None })
	}

	fn redis(mut start: Command) -> Result<Self> {
		let dir = WorkDir::new(None)?;
		let socket = dir.path().join("socket");
		start.args(["--port", "0", "--save", "", "--appendonly", "no", "--unixsocket"]).arg(&socket).current_dir("/");
		let mut started = Started::start(name(Ready::Redis), start).map_err(failed)?;
		let begin = Instant::now();
		let mut stream = loop {
			match UnixStream::connect(&socket) {
				Ok(stream) => break stream,
				Err(error) if begin.elapsed() > PATIENCE => {
					return Err(BenchError::system("reach redis-server", error));
				}
				Err(_) => match started.ended().map_err(failed)? {
					Some(status) => return Err(ended(started.name(), status, false, "")),
					None => std::thread::sleep(LOOK),
				},
			}
		};
		redis_writes(&mut stream, 1, "old")?;
		Ok(Self { started, pace: Pace::Redis(stream), _dir: Some(dir) })
	}

	/// The name in records.
	pub fn name(&self) -> &str {
		self.started.name()
	}

	/// The process.
	pub fn pid(&self) -> i32 {
		self.started.pid()
	}

	/// Waits for the first moment, or for the second; whether the caller wants to stop is asked meanwhile.
	pub fn reach(&mut self, second: bool, interrupted: &dyn Fn() -> bool) -> Result {
		let (time, advice) = match &mut self.pace {
			Pace::Redis(stream) if second => return redis_writes(stream, 100, "new"),
			Pace::Redis(_) => return Ok(()),
			Pace::Timed { during, .. } if second => (*during, "; choose a smaller --after or --for"),
			Pace::Timed { after, .. } => (*after, "; choose a smaller --after"),
			// A ready run takes as long as it takes.
			Pace::Stops => (PATIENCE, ""),
		};
		let ran = self.started.run(time, interrupted).map_err(failed)?;
		let (name, timed) = (self.started.name(), matches!(self.pace, Pace::Timed { .. }));
		match ran {
			Ran::Stopped => Ok(()),
			Ran::InTime if timed => Ok(()),
			Ran::InTime => Err(unable!("{name} has not come to its end in time")),
			Ran::Interrupted => Err(unable!("{name}: interrupted before both looks were taken")),
			Ran::Ended(status) => Err(ended(name, status, second, advice)),
		}
	}

	/// Lets a program that stopped itself go on.
	pub fn go_on(&self) -> Result {
		self.started.go_on().map_err(failed)
	}
}

/// What is said of a program that ended before the first look, or before the `second`.
fn ended(name: &str, status: ExitStatus, second: bool, advice: &str) -> BenchError {
	let look = if second { "before the second look" } else { "before it was looked at" };
	unable!("{name} ended ({status}) {look}{advice}")
}

/// The name in records.
pub fn name(ready: Ready) -> String {
	match ready {
		Ready::Cpython => "cpython",
		Ready::Emacs => "emacs-hanoi",
		Ready::Sqlite => "sqlite",
		Ready::Redis => "redis",
	}
	.to_owned()
}

/// Sets every `step`th key, and checks every answer.
fn redis_writes(stream: &mut UnixStream, step: usize, word: &str) -> Result {
	const OK: &[u8] = b"+OK\r\n";
	let doing = "talk to redis-server";
	let keys: Vec<u32> = (0..KEYS).step_by(step).collect();
	for keys in keys.chunks(1000) {
		let text: String = keys.iter().map(|key| format!("SET key:{key} {word}{key:0>96}\r\n")).collect();
		stream.write_all(text.as_bytes()).or_cant(doing)?;
		let mut answers = vec![0; OK.len() * keys.len()];
		stream.read_exact(&mut answers).or_cant(doing)?;
		if answers.chunks(OK.len()).any(|answer| answer != OK) {
			let said = String::from_utf8_lossy(&answers).lines().next().unwrap_or_default().to_owned();
			return Err(unable!("redis-server refused a write: {said}"));
		}
	}
	Ok(())
}
