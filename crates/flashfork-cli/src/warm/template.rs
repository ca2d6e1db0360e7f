//! `flashfork warm`.

use super::link::{Found, Link};
use super::names::{Name, Names};
use super::{Ready, WarmArgs, list, program};
use crate::error::CliError;
use crate::{output, places};
use flashfork_core::never_seal::{Reason, TABLE};
use flashfork_warm::{Facts, ReadyAt, Tell};
use nix::sys::signal::{Signal, killpg};
use nix::sys::socket::{AddressFamily, Backlog, SockFlag, SockType, UnixAddr, bind, listen, socket, socketpair};
use nix::unistd::Pid;
use std::ffi::{OsStr, OsString};
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::PathBuf;
use std::process::{Child, Command, ExitCode, ExitStatus, Stdio};

/// How many threads Python's numexpr starts when it is imported, as pandas does.
const NUMEXPR: &str = "NUMEXPR_NUM_THREADS";

/// Callers that may wait to be heard.
const WAITING: i32 = 4095;

pub fn warm(args: &WarmArgs) -> Result<ExitCode, CliError> {
    let names = Names::open()?;
    is_free(&names, &args.name)?;
    program::check(&args.command[0])?;
    let listener = Listener::bind(&names)?;
    let (ours, theirs) =
        socketpair(AddressFamily::Unix, SockType::SeqPacket, None, SockFlag::SOCK_CLOEXEC).map_err(no_socket)?;
    let passed = [theirs.as_raw_fd(), listener.socket.as_raw_fd(), names.directory.as_raw_fd()];
    let signals = Interrupt::catch()?;
    let mut program = Program(start(args, passed)?);
    drop(theirs);
    signals.end(&program);
    let link = Link::over(ours);
    let facts = match link.hear() {
        Some(Tell::Facts(facts)) => facts,
        Some(Tell::Refused { reason }) => return Err(refused(&args.command[0], reason)),
        Some(Tell::Failed { errno, .. }) => {
            let why = nix::Error::from_raw(errno).desc();
            return Err(CliError::Unable(format!(
                "{} is ready but can't wait for callers: {why}",
                args.command[0].display()
            )));
        }
        _ => return Err(ended(&args.command[0], args.ready, program.0.wait())),
    };
    while !listener.name(&args.name)? {
        is_free(&names, &args.name)?;
    }
    // One byte: the socket has its name.
    nix::sys::socket::send(std::os::fd::AsFd::as_fd(&link).as_raw_fd(), &[1], nix::sys::socket::MsgFlags::MSG_NOSIGNAL)
        .map_err(no_socket)?;
    std::mem::forget(program);
    output::say(&announcement(&args.name, &facts))?;
    Ok(ExitCode::SUCCESS)
}

/// Nobody has the name, or nobody who lives.
fn is_free(names: &Names, name: &Name) -> Result<(), CliError> {
    match Link::find(names, name)? {
        Found::Nobody => Ok(()),
        Found::Dead => names.remove(name),
        Found::Alive(_) => Err(CliError::Unable(format!(
            "there is a template {name}; `flashfork rm {name}` removes it, or choose another name"
        ))),
    }
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
        let temporary = PathBuf::from(format!(".{}", std::process::id()));
        // Of a process of the same number, which is long gone.
        names.remove(&temporary)?;
        let socket =
            socket(AddressFamily::Unix, SockType::SeqPacket, SockFlag::SOCK_CLOEXEC, None).map_err(no_socket)?;
        let failed = |e: nix::Error| CliError::file("make a socket in", &names.path)(e.into());
        let address = UnixAddr::new(&names.short(&temporary)).map_err(failed)?;
        bind(socket.as_raw_fd(), &address).map_err(failed)?;
        let listener = Listener { names, socket, temporary };
        listen(&listener.socket, Backlog::new(WAITING).map_err(failed)?).map_err(failed)?;
        Ok(listener)
    }

    /// False: somebody else has the name.
    fn name(&self, name: &Name) -> Result<bool, CliError> {
        self.names
            .rename(&self.temporary, name)
            .map_err(|e| CliError::file("make", self.names.path.join(name))(e.into()))
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
    let order = format!("{control},{listener},{directory},{at},{},{}", args.max_clones.unwrap_or_default(), args.name);
    let mut command = Command::new(&args.command[0]);
    command.args(&args.command[1..]).stdin(Stdio::null()).env("LD_PRELOAD", preload);
    // Its threads don't stop for a fork, and no clone would have them.
    if std::env::var_os(NUMEXPR).is_none() {
        command.env(NUMEXPR, "1");
    }
    command.env(flashfork_warm::VARIABLE.to_string_lossy().as_ref(), order);
    // SAFETY: only async-signal-safe calls between fork and exec.
    unsafe { command.pre_exec(move || prepare(passed)) };
    command.spawn().map_err(|e| CliError::Unable(format!("can't run '{}': {e}", args.command[0].display())))
}

/// In the child before its exec: a session of its own, no signal blocked or ignored (each clone has its caller's), and of the descriptors
/// those passed: others of this command's caller would stay open for good.
fn prepare(passed: [RawFd; 3]) -> std::io::Result<()> {
    nix::unistd::setsid()?;
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

/// Ctrl-C while the program is warmed: it has no terminal, so this command ends it.
struct Interrupt(signal_hook::iterator::Signals);

impl Interrupt {
    fn catch() -> Result<Interrupt, CliError> {
        use signal_hook::consts::{SIGHUP, SIGINT, SIGQUIT, SIGTERM};
        let signals = signal_hook::iterator::Signals::new([SIGHUP, SIGINT, SIGQUIT, SIGTERM]);
        signals.map(Interrupt).map_err(|e| CliError::Unable(format!("can't catch signals: {e}")))
    }

    /// The program's end closes the control socket: the main thread goes on from there.
    fn end(self, program: &Program) {
        let group = group(&program.0);
        let mut signals = self.0;
        std::thread::spawn(move || {
            for signal in &mut signals {
                let _ = killpg(group, Signal::SIGKILL);
                // This command ends as it would without a handler; the main thread may have said why before.
                let _ = signal_hook::low_level::emulate_default_handler(signal);
            }
        });
    }
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

fn ended(command: &OsStr, ready: Ready, status: std::io::Result<ExitStatus>) -> CliError {
    let command = command.display();
    let how = match status.map(|s| (s.code(), s.signal())) {
        Ok((Some(code), _)) => format!("ended with exit status {code}"),
        Ok((_, Some(signal))) => format!("was ended by signal {signal}"),
        _ => "ended".into(),
    };
    let hint = if ready == Ready::Call { "it must call flashfork_ready()" } else { "what it printed may say why" };
    CliError::Unable(format!("{command} {how} before it was ready; {hint}"))
}

fn announcement(name: &Name, facts: &Facts) -> String {
    let cloned = list::where_ready(facts.at);
    let sealed = match facts.unsealed.and_then(|reason| TABLE.get(usize::from(reason))) {
        Some(row) => format!("its memory is not sealed ({}), so clones are plain forks", row.what),
        None => format!("{} of its memory are sealed", list::size(facts.sealed)),
    };
    format!("{name} is ready {cloned} (process {}); {sealed}", facts.pid)
}
