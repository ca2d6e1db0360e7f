//! The programs that are run: a command given, or one of the ready runs.

use std::ffi::OsString;
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process, set_parent_process_death_signal};

use super::options::Ready;
use super::stopping::is_stopped;
use flashfork_measure::BenchError;
use flashfork_measure::workdir::WorkDir;

/// How long a ready run may take until it stops itself.
const PATIENCE: Duration = Duration::from_secs(120);
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

/// How a program is brought to its two moments.
#[derive(Debug)]
enum Pace {
    /// After a time, and after another; sooner when it stops itself.
    Timed { after: Duration, during: Duration },
    /// When it stops itself.
    Stops,
    /// After what is sent to its socket.
    Redis(UnixStream),
}

/// A running program. Dropping it ends it.
#[derive(Debug)]
pub(crate) struct Program {
    name: String,
    child: Child,
    pace: Pace,
    /// Where redis has its socket.
    _dir: Option<WorkDir>,
}

impl Program {
    /// Starts `command`.
    pub(crate) fn command(command: &[OsString], after: f64, during: f64) -> Result<Self, BenchError> {
        let name = command.first().map_or_else(String::new, |name| name.to_string_lossy().into_owned());
        let mut start = Command::new(command.first().map_or(std::ffi::OsStr::new(""), OsString::as_os_str));
        start.args(command.iter().skip(1));
        // What it prints is no result of ours.
        start.stdout(Stdio::from(std::io::stderr()));
        let pace = Pace::Timed { after: Duration::from_secs_f64(after), during: Duration::from_secs_f64(during) };
        Self::start(name, start, pace, None)
    }

    /// Starts a ready run.
    pub(super) fn ready(ready: Ready) -> Result<Self, BenchError> {
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
        let mut program = Self::start(name(ready), start, Pace::Stops, None)?;
        if let Some(mut input) = program.child.stdin.take() {
            input.write_all(SQLITE.as_bytes()).map_err(|error| BenchError::system("write to sqlite3", error))?;
        }
        Ok(program)
    }

    fn redis(mut start: Command) -> Result<Self, BenchError> {
        let dir = WorkDir::new(None)?;
        let socket = dir.path().join("socket");
        start.args(["--port", "0", "--save", "", "--appendonly", "no", "--unixsocket"]).arg(&socket).current_dir("/");
        let mut program = Self::start(name(Ready::Redis), start, Pace::Stops, Some(dir))?;
        let begin = Instant::now();
        let mut stream = loop {
            match UnixStream::connect(&socket) {
                Ok(stream) => break stream,
                Err(error) if begin.elapsed() > PATIENCE => {
                    return Err(BenchError::system("reach redis-server", error));
                }
                Err(_) => program.alive(false)?,
            }
            std::thread::sleep(LOOK);
        };
        redis_writes(&mut stream, 1, "old")?;
        program.pace = Pace::Redis(stream);
        Ok(program)
    }

    fn start(name: String, mut start: Command, pace: Pace, dir: Option<WorkDir>) -> Result<Self, BenchError> {
        // A group of its own: Ctrl-C is for the measurement, which ends the program; if it can't, the kernel does.
        start.process_group(0);
        let die_with_me = || Ok(set_parent_process_death_signal(Some(Signal::KILL))?);
        // SAFETY: one system call; nothing is allocated or locked between fork and exec.
        unsafe { start.pre_exec(die_with_me) };
        let child = start.spawn().map_err(|error| BenchError::system(format!("start {name}"), error))?;
        Ok(Self { name, child, pace, _dir: dir })
    }

    /// The name in records.
    pub(super) fn name(&self) -> &str {
        &self.name
    }

    /// The process.
    pub(crate) fn pid(&self) -> i32 {
        self.child.id() as i32
    }

    /// Waits for the first moment, or for the second; whether the caller wants to stop is asked meanwhile.
    pub(crate) fn reach(&mut self, second: bool, interrupted: &dyn Fn() -> bool) -> Result<(), BenchError> {
        let until = match &mut self.pace {
            Pace::Redis(stream) if second => return redis_writes(stream, 100, "new"),
            Pace::Redis(_) => return Ok(()),
            Pace::Timed { during, .. } if second => *during,
            Pace::Timed { after, .. } => *after,
            Pace::Stops => PATIENCE,
        };
        let begin = Instant::now();
        while is_stopped(self.pid()) != Some(true) {
            self.alive(second)?;
            if interrupted() {
                return Err(BenchError::Unable(format!("{}: interrupted before both looks were taken", self.name)));
            }
            if begin.elapsed() >= until {
                return match self.pace {
                    Pace::Stops => Err(BenchError::Unable(format!("{} has not come to its end in time", self.name))),
                    _ => Ok(()),
                };
            }
            std::thread::sleep(LOOK);
        }
        Ok(())
    }

    /// Lets a program that stopped itself go on.
    pub(super) fn go_on(&self) -> Result<(), BenchError> {
        kill_process(Pid::from_child(&self.child), Signal::CONT)
            .map_err(|errno| BenchError::system(format!("let {} go on", self.name), errno))
    }

    /// Fails when it ended before the first look or the `second`.
    fn alive(&mut self, second: bool) -> Result<(), BenchError> {
        match self.child.try_wait() {
            Ok(None) => Ok(()),
            Ok(Some(status)) => {
                let look = if second { "before the second look" } else { "before it was looked at" };
                let advice = match self.pace {
                    Pace::Timed { .. } if second => "; choose a smaller --after or --for",
                    Pace::Timed { .. } => "; choose a smaller --after",
                    // A ready run takes as long as it takes.
                    Pace::Stops | Pace::Redis(_) => "",
                };
                Err(BenchError::Unable(format!("{} ended ({status}) {look}{advice}", self.name)))
            }
            Err(error) => Err(BenchError::system(format!("wait for {}", self.name), error)),
        }
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        // Both fail only when the process has been reaped already, which is what they are for.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The name in records.
pub(super) fn name(ready: Ready) -> String {
    match ready {
        Ready::Cpython => "cpython",
        Ready::Emacs => "emacs-hanoi",
        Ready::Sqlite => "sqlite",
        Ready::Redis => "redis",
    }
    .to_owned()
}

/// Sets every `step`th key, and checks every answer.
fn redis_writes(stream: &mut UnixStream, step: usize, word: &str) -> Result<(), BenchError> {
    const OK: &[u8] = b"+OK\r\n";
    let failed = |error| BenchError::system("talk to redis-server", error);
    let keys: Vec<u32> = (0..KEYS).step_by(step).collect();
    for keys in keys.chunks(1000) {
        let text: String = keys.iter().map(|key| format!("SET key:{key} {word}{key:0>96}\r\n")).collect();
        stream.write_all(text.as_bytes()).map_err(failed)?;
        let mut answers = vec![0; OK.len() * keys.len()];
        stream.read_exact(&mut answers).map_err(failed)?;
        if answers.chunks(OK.len()).any(|answer| answer != OK) {
            let said = String::from_utf8_lossy(&answers).lines().next().unwrap_or_default().to_owned();
            return Err(BenchError::Unable(format!("redis-server refused a write: {said}")));
        }
    }
    Ok(())
}
