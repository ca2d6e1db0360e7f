//! The template's init: the first process of its namespace. It starts the program, makes namespaces for clones, and
//! waits for everything that ends, clones among it: they are its children.

use crate::namespaces;
use crate::notes::{Note, What};
use crate::pool::{self, Space};
use crate::process;
use crate::told::Told;
use flashfork_core::environment::WARM;
use rustix::event::{PollFd, PollFlags, poll};
use rustix::process::{Pid, PidfdFlags, pidfd_open};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};

/// The variable by which the dynamic linker loads the shim.
const PRELOAD: &str = "LD_PRELOAD";

/// What the program gets beside what is told.
pub struct Passed {
    /// Where the program rings.
    pub bell: OwnedFd,
    /// Whether it has no capabilities.
    pub drops: bool,
    /// Where its output and its errors go, if not where the keeper's does.
    pub output: Option<[OwnedFd; 2]>,
}

/// Starts it, in the namespaces of a template. Gives its process and its socket.
pub fn start(told: &Told, passed: Passed) -> std::io::Result<(i32, OwnedFd)> {
    let number = std::process::id();
    let (ours, theirs) = crate::message::pair()?;
    match process::fork(libc::CLONE_NEWPID | libc::CLONE_NEWNS)? {
        Some(pid) => Ok((pid, ours)),
        None => {
            drop(ours);
            let failed = |what, e: &std::io::Error| {
                let errno = e.raw_os_error().unwrap_or(libc::EIO);
                // Who is gone needs no reason.
                let _ = Note::Failed { what, errno }.send(theirs.as_fd(), &[]);
                std::process::exit(1)
            };
            if let Err(e) = process::end_with_parent().and_then(|()| process::mount_proc()) {
                failed(What::Proc, &e);
            }
            // Whether all that clones need can be had is known before anything is started.
            if let Err(e) = pool::make(2) {
                failed(What::Namespace, &e);
            }
            let (pid, process) = match begin(told, passed, number) {
                Ok(program) => program,
                Err(e) => failed(What::Program, &e),
            };
            if (Note::Runs { pid }).send(theirs.as_fd(), &[process.as_fd()]).is_err() {
                std::process::exit(1);
            }
            drop(process);
            run(theirs.as_fd())
        }
    }
}

/// Starts the program, which gets this number: the keeper's, so that files in common directories that are named by
/// processes' numbers (Java's, for example) are no other process's. Gives its process, and a descriptor for that.
fn begin(told: &Told, passed: Passed, number: u32) -> std::io::Result<(i32, OwnedFd)> {
    std::fs::write("/proc/sys/kernel/ns_last_pid", (number - 1).to_string())?;
    let Passed { bell, drops, output } = passed;
    let (mut begun, failed) = std::io::pipe()?;
    let Some(pid) = process::fork(0)? else {
        drop(begun);
        if drops {
            namespaces::bound_capabilities();
        }
        let e = execute(told, &bell, output);
        let errno = e.raw_os_error().unwrap_or(libc::ENOENT);
        // Its other end says that it was nothing.
        let _ = std::io::Write::write_all(&mut { failed }, &errno.to_ne_bytes());
        std::process::exit(127);
    };
    drop(failed);
    let mut errno = [0; 4];
    if std::io::Read::read_exact(&mut begun, &mut errno).is_ok() {
        return Err(std::io::Error::from_raw_os_error(i32::from_ne_bytes(errno)));
    }
    let process = Pid::from_raw(pid).ok_or(std::io::ErrorKind::NotFound)?;
    Ok((pid, pidfd_open(process, PidfdFlags::empty())?))
}

/// Becomes the program.
fn execute(told: &Told, bell: &OwnedFd, output: Option<[OwnedFd; 2]>) -> std::io::Error {
    let bell = bell.as_raw_fd();
    // SAFETY: takes numbers; the program closes it.
    if let Err(e) = process::check(unsafe { libc::fcntl(bell, libc::F_SETFD, 0) }) {
        return e;
    }
    let at = if matches!(told.moment, crate::moment::Moment::Itself) { told.at } else { told.ready_at() as u8 };
    let mut command = Command::new(&told.command[0]);
    command.args(&told.command[1..]).env(PRELOAD, &told.preload);
    command.env(WARM.name(), format!("threads,{bell},{at}"));
    command.stdin(Stdio::null());
    if let Some([output, errors]) = output {
        command.stdout(output).stderr(errors);
    }
    command.exec()
}

/// Until the keeper is gone.
fn run(line: BorrowedFd<'_>) -> ! {
    process::set_name(c"flashfork-init");
    let line = process::keep_only(line);
    let signals = process::signals(&[libc::SIGCHLD]);
    let (Ok(line), Ok(signals), Ok(())) = (line, signals, process::let_go_of_streams()) else { std::process::exit(1) };
    let _ = std::env::set_current_dir("/");
    loop {
        process::take_signals(signals.as_fd());
        while let Some((pid, status)) = process::next_child() {
            // The keeper reads as long as it lives; a moment later this process is gone, too.
            while let Err(rustix::io::Errno::AGAIN) = (Note::Waited { pid, status }).send(line.as_fd(), &[]) {
                let mut ready = [PollFd::new(&line, PollFlags::OUT)];
                let _ = poll(&mut ready, None);
            }
        }
        let mut ready = [PollFd::new(&line, PollFlags::IN), PollFd::new(&signals, PollFlags::IN)];
        if poll(&mut ready, None).is_err() {
            continue;
        }
        match Note::receive(line.as_fd()) {
            Ok(Some((Note::Namespace { pid }, _))) => answer(line.as_fd(), pid),
            Ok(Some((Note::Users, descriptors))) => enter(line.as_fd(), &descriptors),
            Ok(_) => {}
            Err(_) => std::process::exit(0),
        }
    }
}

/// Goes where the clones will be.
fn enter(line: BorrowedFd<'_>, descriptors: &[OwnedFd]) {
    let Some(users) = descriptors.first() else { return };
    // Who is gone needs no answer.
    let _ = match namespaces::go_to_users(users) {
        Ok(()) => Note::Users.send(line, &[]),
        Err(e) => {
            let errno = e.raw_os_error().unwrap_or(libc::EIO);
            Note::Failed { what: What::Namespace, errno }.send(line, &[])
        }
    };
}

fn answer(line: BorrowedFd<'_>, pid: i32) {
    // Who is gone needs none.
    let _ = match pool::make(pid) {
        Ok(Space { init, processes, mounts, leash }) => {
            Note::Made { init, pid }.send(line, &[processes.as_fd(), mounts.as_fd(), leash.as_fd()])
        }
        Err(e) => {
            let errno = e.raw_os_error().unwrap_or(libc::EIO);
            Note::Failed { what: What::Namespace, errno }.send(line, &[])
        }
    };
}
