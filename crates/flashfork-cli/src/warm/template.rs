//! `flashfork warm`.

use super::link::{Found, Heard, Link};
use super::names::{Name, Names};
use super::{Ready, WarmArgs, caller, list, program};
use crate::error::CliError;
use crate::{output, places};
use flashfork_core::environment;
use flashfork_core::never_seal::{Reason, TABLE};
use flashfork_warm::{Facts, ReadyAt, Tell, WAITING};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::signal::{Signal, killpg};
use nix::sys::signalfd::SignalFd;
use nix::sys::socket::{
    AddressFamily, Backlog, MsgFlags, SockFlag, SockType, UnixAddr, bind, listen, send, socket, socketpair,
};
use nix::sys::stat::{FileStat, fstatat};
use nix::unistd::Pid;
use std::ffi::{OsStr, OsString};
use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::PathBuf;
use std::process::{Child, Command, ExitCode, ExitStatus, Stdio};
use std::time::Duration;

/// How many threads Python's numexpr starts when it is imported, as pandas does.
const NUMEXPR: &str = "NUMEXPR_NUM_THREADS";

/// Signals that end this command while the program is warmed, and the program, which has no terminal, with it.
const ENDING: [Signal; 4] = [Signal::SIGHUP, Signal::SIGINT, Signal::SIGQUIT, Signal::SIGTERM];

/// After how long it is said that the program is not ready yet.
const PATIENCE: Duration = Duration::from_secs(5);

/// How long a program that has let go of its connection may take to end, in milliseconds.
const TO_END: u16 = 1000;

pub fn warm(args: &WarmArgs) -> Result<ExitCode, CliError> {
    let names = Names::open()?;
    match Link::find(&names, &args.name)? {
        Found::Alive(_) | Found::Stopped(_) => return Err(taken(&args.name)),
        Found::Dead => names.clear(&args.name)?,
        Found::Nobody => {}
    }
    program::check(&args.command[0], args.ready == Ready::Auto)?;
    // From here on a signal is read where it ends the program, too. One that comes when that is ready is too late.
    let signals = caller::take_signals(&ENDING)?;
    let listener = Listener::bind(&names)?;
    let (ours, theirs) =
        socketpair(AddressFamily::Unix, SockType::SeqPacket, None, SockFlag::SOCK_CLOEXEC).map_err(no_socket)?;
    let passed = [theirs.as_raw_fd(), listener.socket.as_raw_fd(), names.directory.as_raw_fd()];
    let mut program = Program(start(args, passed)?);
    drop(theirs);
    let link = Link::over(ours);
    let facts = match until_ready(args, &mut program, &link, &signals)? {
        Came::Ready(facts) => facts,
        Came::Signal(signal) => {
            drop((program, listener));
            caller::end_by(signal);
        }
    };
    let socket = listener.name(&args.name)?;
    send(link.as_fd().as_raw_fd(), &socket.st_ino.to_ne_bytes(), MsgFlags::MSG_NOSIGNAL).map_err(no_socket)?;
    std::mem::forget(program);
    output::say(&announcement(&args.name, &facts))?;
    if facts.unwatched > 0 {
        output::complain(&CliError::Unable(format!(
            "changes to {} of the files that {} was made of will not be noticed: the system watches no more for you (sysctl fs.inotify)",
            facts.unwatched, args.name
        )));
    }
    if args.ready == Ready::Auto && facts.at == ReadyAt::Main && program::is_interpreter(&args.command[0]) {
        let line = format!(
            "{} is ready before main, without having done any of its work: it is no CPython (3.8 or later, with its C API), Perl or Ruby, but a program that starts one, perhaps; warm that one itself",
            args.name
        );
        output::complain(&CliError::Unable(line));
    }
    Ok(ExitCode::SUCCESS)
}

/// What comes while the program is warmed.
enum Came {
    Ready(Facts),
    Signal(Signal),
}

/// Waits until the program is ready, however long that takes; unless it ends.
fn until_ready(args: &WarmArgs, program: &mut Program, link: &Link, signals: &SignalFd) -> Result<Came, CliError> {
    let command = &args.command[0];
    // Its end shows even where something that it has started keeps the connection.
    let process = program.descriptor()?;
    let mut told = false;
    loop {
        let all = [process.as_fd(), signals.as_fd(), link.as_fd()];
        let mut ready = all.map(|fd| PollFd::new(fd, PollFlags::POLLIN));
        let patience = if told { None } else { PollTimeout::try_from(PATIENCE).ok() };
        match poll(&mut ready, patience.unwrap_or(PollTimeout::NONE)) {
            Ok(0) => {
                told = true;
                crate::output::complain(&waits(args));
            }
            Ok(_) | Err(nix::Error::EINTR) => {}
            Err(e) => return Err(CliError::Unable(format!("can't wait for {}: {}", command.display(), e.desc()))),
        }
        let ended = ready[0].any().unwrap_or(false);
        if let Ok(Some(info)) = signals.read_signal()
            && let Some(signal) = ENDING.into_iter().find(|signal| *signal as u32 == info.ssi_signo)
        {
            return Ok(Came::Signal(signal));
        }
        match link.hear() {
            Some(Heard::Tell(Tell::Facts(facts))) => return Ok(Came::Ready(facts)),
            Some(Heard::Tell(Tell::Refused { reason })) => return Err(refused(command, reason)),
            Some(Heard::Tell(Tell::Failed { errno, .. })) => {
                let why = nix::Error::from_raw(errno).desc();
                return Err(CliError::Unable(format!(
                    "{} is ready but can't wait for callers: {why}",
                    command.display()
                )));
            }
            None if !ended => {}
            // A process that ends lets go a moment before.
            _ => {
                let mut process = [PollFd::new(process.as_fd(), PollFlags::POLLIN)];
                let ended = ended || poll(&mut process, TO_END).is_ok_and(|count| count == 1);
                let how = ended.then(|| self::ended(command, args.ready, program.0.wait()));
                return Err(how.unwrap_or_else(|| replaced(command)));
            }
        }
    }
}

/// What a program that isn't ready after a while has yet to do.
fn waits(args: &WarmArgs) -> CliError {
    let until = match args.ready {
        Ready::Auto => "until it has run what it was given, or enters main",
        Ready::Main => "until it enters main",
        Ready::Call => "until it calls flashfork_ready()",
    };
    CliError::Unable(format!(
        "{} is not ready yet, and may take all the time it needs, {until}; Ctrl-C ends it",
        args.command[0].display()
    ))
}

fn taken(name: &Name) -> CliError {
    CliError::Unable(format!("there is a template {name}; `flashfork rm {name}` removes it, or choose another name"))
}

fn no_socket(e: nix::Error) -> CliError {
    CliError::Unable(format!("can't make a socket for the template: {}", e.desc()))
}

/// The template's socket, under a name that is not one until it is ready.
struct Listener<'a> {
    names: &'a Names,
    socket: OwnedFd,
    temporary: PathBuf,
}

impl Listener<'_> {
    fn bind(names: &Names) -> Result<Listener<'_>, CliError> {
        let _lock = names.lock()?;
        // Of commands that were killed.
        for name in names.temporary()? {
            if let Found::Dead = Link::find(names, &name)? {
                names.remove(&name)?;
            }
        }
        let temporary = PathBuf::from(format!(".{}", std::process::id()));
        let socket =
            socket(AddressFamily::Unix, SockType::SeqPacket, SockFlag::SOCK_CLOEXEC, None).map_err(no_socket)?;
        let failed = |e: nix::Error| CliError::file("make a socket in", &names.path)(e.into());
        let address = UnixAddr::new(&names.short(&temporary)).map_err(failed)?;
        bind(socket.as_raw_fd(), &address).map_err(failed)?;
        let listener = Listener { names, socket, temporary };
        listen(&listener.socket, Backlog::new(WAITING).map_err(failed)?).map_err(failed)?;
        Ok(listener)
    }

    /// Gives it its name, unless somebody who lives has it; tells which file it is.
    fn name(&self, name: &Name) -> Result<FileStat, CliError> {
        let failed = |e: nix::Error| CliError::file("make", self.names.path.join(name))(e.into());
        let _lock = self.names.lock()?;
        let flags = nix::fcntl::AtFlags::AT_SYMLINK_NOFOLLOW;
        let socket = fstatat(&self.names.directory, &self.temporary, flags).map_err(failed)?;
        if let Found::Dead = Link::find(self.names, name)? {
            self.names.remove(name)?;
        }
        if self.names.rename(&self.temporary, name).map_err(failed)? { Ok(socket) } else { Err(taken(name)) }
    }
}

impl Drop for Listener<'_> {
    fn drop(&mut self) {
        // There when the template isn't ready. It is no name and in nobody's way.
        let _ = self.names.remove(&self.temporary);
    }
}

/// The program while it is warmed: ended with all of its group unless it becomes a template.
struct Program(Child);

impl Drop for Program {
    fn drop(&mut self) {
        // It may have ended.
        let _ = killpg(group(&self.0), Signal::SIGKILL);
        let _ = self.0.wait();
    }
}

impl Program {
    /// One that can be waited for together with others.
    fn descriptor(&self) -> Result<OwnedFd, CliError> {
        // SAFETY: takes numbers.
        let fd = unsafe { libc::syscall(libc::SYS_pidfd_open, self.0.id(), 0) } as RawFd;
        if fd < 0 {
            let e = std::io::Error::last_os_error();
            return Err(CliError::Unable(format!("can't watch over the program: {e}")));
        }
        // SAFETY: a descriptor of this process that nobody else knows.
        Ok(unsafe { OwnedFd::from_raw_fd(fd) })
    }
}

fn group(child: &Child) -> Pid {
    Pid::from_raw(i32::try_from(child.id()).unwrap_or_default())
}

/// Starts the program, with the shim, in a session of its own; its output goes where this command's goes.
fn start(args: &WarmArgs, passed: [RawFd; 3]) -> Result<Child, CliError> {
    let mut preload = OsString::from(places::shim()?);
    if let Some(before) = std::env::var_os("LD_PRELOAD").filter(|p| !p.is_empty()) {
        preload.push(":");
        preload.push(before);
    }
    let at = match args.ready {
        Ready::Auto => 0,
        Ready::Main => ReadyAt::Main as u8,
        Ready::Call => ReadyAt::Call as u8,
    };
    let [control, listener, directory] = passed;
    let (max, starter) = (args.max_clones.unwrap_or_default(), std::process::id());
    let order = format!("{control},{listener},{directory},{at},{max},{starter},{}", args.name);
    let mut command = Command::new(&args.command[0]);
    command.args(&args.command[1..]).stdin(Stdio::null()).env("LD_PRELOAD", preload);
    // Its threads don't stop for a fork, and no clone would have them.
    if std::env::var_os(NUMEXPR).is_none() {
        command.env(NUMEXPR, "1");
    }
    command.env(environment::WARM.name(), order);
    // SAFETY: only async-signal-safe calls between fork and exec.
    unsafe { command.pre_exec(move || prepare(passed, starter)) };
    command.spawn().map_err(|e| CliError::Unable(format!("can't run '{}': {e}", args.command[0].display())))
}

/// In the child before its exec: a session of its own, no signal blocked or ignored (each clone has its caller's), and
/// of the descriptors those passed: others of this command's caller would stay open for good. Until it is ready it ends
/// with this command.
fn prepare(passed: [RawFd; 3], starter: u32) -> std::io::Result<()> {
    nix::unistd::setsid()?;
    // SAFETY: takes numbers.
    unsafe { libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL) };
    if std::os::unix::process::parent_id() != starter {
        return Err(std::io::ErrorKind::Interrupted.into());
    }
    for signal in 1..=64 {
        // SAFETY: no handler; libc refuses the numbers that are its own, and those that can't be set.
        unsafe { libc::signal(signal, libc::SIG_DFL) };
    }
    nix::sys::signal::SigSet::empty().thread_set_mask()?;
    // SAFETY: takes numbers. Closed by the exec: until then std reports its failure through one.
    if unsafe { libc::syscall(libc::SYS_close_range, 3, libc::c_uint::MAX, libc::CLOSE_RANGE_CLOEXEC) } < 0 {
        return Err(std::io::Error::last_os_error());
    }
    for fd in passed {
        // SAFETY: takes numbers.
        if unsafe { libc::fcntl(fd, libc::F_SETFD, 0) } < 0 {
            return Err(std::io::Error::last_os_error());
        }
    }
    Ok(())
}

fn refused(command: &OsStr, reason: u8) -> CliError {
    let command = command.display();
    if reason == Reason::Threads as u8 {
        return CliError::Unable(format!(
            "{command} can't be a template: at its ready point it has other threads, which clones would lack; have it, or the library that starts them, start them later (OMP_NUM_THREADS=1 helps with some), or warm it with --ready main"
        ));
    }
    let row = TABLE.get(usize::from(reason));
    let what = row.map_or("something that can't be cloned", |row| row.what);
    let why = row.map_or_else(String::new, |row| format!(" ({})", row.why));
    CliError::Unable(format!(
        "{command} can't be a template: at its ready point it has {what}{why}; make it ready earlier, `--ready main`, or without them"
    ))
}

/// It is still there, but as something else.
fn replaced(command: &OsStr) -> CliError {
    let command = command.display();
    CliError::Unable(format!(
        "{command} let go of flashfork before it was ready: it has gone on as another program (exec), or closed descriptors that are not its own; warm the program that it starts itself"
    ))
}

fn ended(command: &OsStr, ready: Ready, status: std::io::Result<ExitStatus>) -> CliError {
    let command = command.display();
    let killed = status.as_ref().is_ok_and(|s| s.signal() == Some(libc::SIGKILL));
    let how = match status.map(|s| (s.code(), s.signal())) {
        _ if killed => "was killed".into(),
        Ok((Some(code), _)) => format!("ended with exit status {code}"),
        Ok((_, Some(signal))) => format!("was ended by signal {signal}"),
        _ => "ended".into(),
    };
    let hint = match ready {
        // What does so in most cases prints nothing, least of all in the program.
        _ if killed => "somebody has, or memory was short (the kernel's log or the cgroup's memory.events tells)",
        Ready::Call => "it must call flashfork_ready()",
        Ready::Auto | Ready::Main => "what it printed may say why",
    };
    CliError::Unable(format!("{command} {how} before it was ready; {hint}"))
}

fn announcement(name: &Name, facts: &Facts) -> String {
    let cloned = list::where_ready(facts.at);
    let sealed = match facts.unsealed.and_then(|reason| TABLE.get(usize::from(reason))) {
        Some(row) => format!("its memory is not sealed ({}), so clones are plain forks", row.what),
        None => format!("{} of its memory are sealed", list::size(facts.sealed)),
    };
    let sealed = match facts.at {
        ReadyAt::Main => format!(
            "{sealed}; none of its own code has run, so clones do all its work again (flashfork_ready in the program and --ready call change that)"
        ),
        _ => sealed,
    };
    format!("{name} is ready {cloned} (process {}); {sealed}", facts.pid)
}
