//! A QEMU that is a fork server of AFL's, and its requests.

use std::fs::File;
use std::io::{self, PipeReader, PipeWriter, Read, Write};
use std::os::fd::{AsFd, AsRawFd};
use std::os::unix::fs::FileExt;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus};
use std::time::{Duration, Instant};

use flashfork_core::environment::{ENGINE, STATS, THREADS, TRUST};
use procfs::process::{MMapPath, Process};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, Signal, kill_process_group, set_parent_process_death_signal};
use rustix::thread::{CpuSet, sched_setaffinity};

use crate::subjects::shim::{ShimReport, ShimStats};
use crate::subjects::vm_host::PATIENCE;
use crate::subjects::{Method, heap, held};
use flashfork_measure::BenchError;

/// AFL's descriptors, and the one where the library tells how long forks take.
const REQUESTS: i32 = 198;
const ANSWERS: i32 = 199;
const TIMES: i32 = 197;
/// How long an execution may take; with the first one comes the seal.
const EXECUTION: Duration = Duration::from_secs(120);

/// What all servers have in common.
pub(super) struct Setup<'a> {
    /// What [`super::machine::make`] has made.
    pub dir: &'a Path,
    /// For files of their own.
    pub work: &'a Path,
    pub shim: PathBuf,
    pub cpu: usize,
}

/// A running QEMU. Dropping it ends it.
#[derive(Debug)]
pub(super) struct Server {
    pub method: Method,
    /// Bytes that it had in memory before its first fork.
    pub resident: u64,
    process: Child,
    requests: PipeWriter,
    answers: PipeReader,
    times: PipeReader,
    input: File,
    log: PathBuf,
    stats: Option<ShimStats>,
}

/// What one execution took.
#[derive(Debug)]
pub(super) struct Execution {
    /// From the request until it was known how the child ended.
    pub whole: Duration,
    /// The fork call.
    pub fork: Duration,
    pub status: ExitStatus,
}

impl Server {
    /// Starts QEMU, and waits until its guest's driver asks for the fork server. `trusted`: see
    /// [`Self::library_with_system_calls`].
    pub(super) fn start(setup: &Setup<'_>, method: Method, trusted: Option<&Path>) -> Result<Self, BenchError> {
        let failed = |error: io::Error| BenchError::system("start qemu-system-x86_64", error);
        let place = |what: &str| setup.work.join(format!("{}.{what}", method.name()));
        let log = place("log");
        let input = File::options().create(true).truncate(true).read(true).write(true).open(place("input"));
        let input = input.map_err(failed)?;
        let ((their_requests, requests), (answers, their_answers)) =
            (io::pipe().map_err(failed)?, io::pipe().map_err(failed)?);
        let (times, their_times) = io::pipe().map_err(failed)?;
        let mut command = Command::new(setup.dir.join("qemu"));
        command.env_clear().env("PATH", "/usr/local/bin:/usr/bin:/bin").env("LC_ALL", "C");
        command.stdin(input.try_clone().map_err(failed)?).stdout(File::create("/dev/null").map_err(failed)?);
        command.stderr(File::create(&log).map_err(failed)?).process_group(0);
        let engine = match method {
            Method::Seal => Some("seal"),
            Method::Odf => Some("odf"),
            _ => None,
        };
        let mut stats = None;
        if let Some(engine) = engine {
            let made = ShimStats::create(place("stats"))?;
            command.env("LD_PRELOAD", &setup.shim).env(ENGINE.name(), engine).env(THREADS.name(), "stop");
            command.env(STATS.name(), made.path()).envs(trusted.map(|library| (TRUST.name(), library)));
            stats = (method == Method::Seal).then_some(made);
        }
        let cpu = setup.cpu;
        let ends = [
            (their_requests.as_raw_fd(), REQUESTS),
            (their_answers.as_raw_fd(), ANSWERS),
            (their_times.as_raw_fd(), TIMES),
        ];
        let prepare = move || {
            let mut cpus = CpuSet::new();
            cpus.set(cpu);
            sched_setaffinity(None, &cpus)?;
            set_parent_process_death_signal(Some(Signal::KILL))?;
            heap::choose(method)?;
            for (end, number) in ends {
                // SAFETY: a system call on numbers; those that it replaces are nobody's in a process that becomes a
                // program.
                if unsafe { libc::dup2(end, number) } < 0 {
                    return Err(io::Error::last_os_error());
                }
            }
            Ok(())
        };
        // SAFETY: between fork and exec only system calls are made.
        unsafe { command.pre_exec(prepare) };
        let process = command.spawn().map_err(failed)?;
        drop((their_requests, their_answers, their_times));
        let mut server = Self { method, resident: 0, process, requests, answers, times, input, log, stats };
        server.answer(PATIENCE)?;
        server.resident = held::mapped(server.process.id())?;
        Ok(server)
    }

    /// The library that QEMU has of those that make system calls of their own. It must be named to be sealed in spite
    /// of them: fork_server.c keeps it from making any.
    pub(super) fn library_with_system_calls(&self) -> Result<Option<PathBuf>, BenchError> {
        let maps = Process::new(self.process.id() as i32).and_then(|process| process.maps());
        let maps = maps.map_err(|error| BenchError::system("read QEMU's mappings", io::Error::other(error)))?;
        Ok(maps.into_iter().find_map(|map| match map.pathname {
            MMapPath::Path(path) if path.to_string_lossy().contains("/liburing.so") => Some(path),
            _ => None,
        }))
    }

    /// What the shim did; an error if this is the sealed one and nothing was sealed.
    pub(super) fn shim(&self) -> Result<Option<ShimReport>, BenchError> {
        self.stats.as_ref().map(ShimStats::read).transpose()
    }

    /// Has a child make the system calls of an input.
    pub(super) fn execute(&mut self, input: &[u8]) -> Result<Execution, BenchError> {
        let failed = |error: io::Error| BenchError::system("ask a fork server for an execution", error);
        self.input.set_len(0).and_then(|()| self.input.write_all_at(input, 0)).map_err(failed)?;
        let start = Instant::now();
        self.requests.write_all(&[0; 4]).map_err(|error| self.ended(&error.to_string()))?;
        self.answer(EXECUTION)?;
        let status = self.answer(EXECUTION)?;
        let whole = start.elapsed();
        let mut took = [0; 8];
        self.times.read_exact(&mut took).map_err(failed)?;
        let fork = Duration::from_nanos(u64::from_ne_bytes(took));
        Ok(Execution { whole, fork, status: ExitStatus::from_raw(status) })
    }

    /// Its next word.
    fn answer(&mut self, patience: Duration) -> Result<i32, BenchError> {
        let time = Timespec { tv_sec: patience.as_secs() as i64, tv_nsec: 0 };
        loop {
            match poll(&mut [PollFd::from_borrowed_fd(self.answers.as_fd(), PollFlags::IN)], Some(&time)) {
                Ok(0) => return Err(self.ended(&format!("it said nothing for {} s", patience.as_secs()))),
                Ok(_) => break,
                // A signal, such as the user's Ctrl-C, after which what is under way is still finished.
                Err(rustix::io::Errno::INTR) => {}
                Err(errno) => return Err(BenchError::system("wait for QEMU", errno)),
            }
        }
        let mut word = [0; 4];
        self.answers.read_exact(&mut word).map_err(|error| self.ended(&error.to_string()))?;
        Ok(i32::from_ne_bytes(word))
    }

    /// An error, with the last that QEMU or its guest's console said.
    fn ended(&self, why: &str) -> BenchError {
        let log = std::fs::read(&self.log).unwrap_or_default();
        let log = String::from_utf8_lossy(&log);
        let lines: Vec<&str> = log.lines().map(str::trim).filter(|line| !line.is_empty()).collect();
        let panic = lines.iter().find(|line| line.contains("Kernel panic"));
        let last = panic.or(lines.last()).copied().unwrap_or("it said nothing");
        BenchError::Unable(format!(
            "QEMU is no fork server ({}): {why}: {last} (qemu-system-x86_64 is in Debian's package qemu-system-x86)",
            self.method
        ))
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // It may be waiting for a child.
        let _ = kill_process_group(Pid::from_child(&self.process), Signal::KILL);
        let _ = self.process.wait();
    }
}
