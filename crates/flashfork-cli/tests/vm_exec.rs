//! `flashfork vm exec` as users meet it: terminals, signals, statuses. The agent is the real one, an ordinary process
//! here; the daemon between is a few lines that pass bytes on.

mod common;

use flashfork_proto::api;
use flashfork_proto::shell::ClaimTimes;
use nix::libc;
use nix::pty::openpty;
use nix::sys::signal::{SigHandler, Signal, kill};
use nix::sys::termios::{LocalFlags, tcgetattr};
use nix::unistd::Pid;
use serde_json::{Value, json};
use std::fs::File;
use std::io::{BufRead, BufReader, Read, Write};
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::net::{UnixListener, UnixStream};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

/// A guest's agent behind a daemon's socket.
struct Guest {
    agent: Child,
    dir: tempfile::TempDir,
    /// Methods and paths of all requests.
    asked: Arc<Mutex<Vec<String>>>,
}

impl Guest {
    fn start() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let place = dir.path().join("agent.sock");
        let agent =
            with_signals(Command::new(agent()).arg("serve").arg(format!("unix:{}", place.display()))).spawn().unwrap();
        let listener = UnixListener::bind(dir.path().join("vmd.sock")).unwrap();
        eventually(|| UnixStream::connect(&place).is_ok());
        let asked = Arc::<Mutex<Vec<String>>>::default();
        let heard = asked.clone();
        std::thread::spawn(move || {
            for client in listener.incoming() {
                let (client, place, heard) = (client.unwrap(), place.clone(), heard.clone());
                std::thread::spawn(move || serve(client, &place, &heard));
            }
        });
        Self { agent, dir, asked }
    }

    /// `flashfork vm exec [options] clone -- argv`.
    fn exec(&self, options: &[&str], argv: &[&str]) -> Command {
        let mut command = self.vm();
        command.arg("exec").args(options).args(["clone", "--"]).args(argv);
        command
    }

    /// `flashfork vm run --template template -- argv`.
    fn run(&self, template: &str, argv: &[&str]) -> Command {
        let mut command = self.vm();
        command.args(["run", "--template", template, "--"]).args(argv).stdin(Stdio::null()).stdout(Stdio::piped());
        command
    }

    fn vm(&self) -> Command {
        let mut command = Command::new(common::flashfork());
        command.arg("vm").arg("--socket").arg(self.dir.path().join("vmd.sock"));
        with_signals(&mut command);
        command
    }

    fn was_asked(&self, line: &str) -> bool {
        self.asked.lock().unwrap().iter().any(|asked| asked == line)
    }
}

/// What runs in the background of a script ignores SIGINT and SIGQUIT, and so would its children.
fn with_signals(command: &mut Command) -> &mut Command {
    let defaults = || {
        for signal in [Signal::SIGINT, Signal::SIGQUIT, Signal::SIGHUP] {
            // SAFETY: a default action runs no code of this process.
            unsafe { nix::sys::signal::signal(signal, SigHandler::SigDfl)? };
        }
        Ok(())
    };
    // SAFETY: system calls.
    unsafe { command.pre_exec(defaults) }
}

impl Drop for Guest {
    fn drop(&mut self) {
        self.agent.kill().unwrap();
        self.agent.wait().unwrap();
    }
}

/// What a daemon with one template and one clone answers to a request; one without a line asks whether somebody
/// listens.
fn serve(mut client: UnixStream, agent: &Path, asked: &Mutex<Vec<String>>) {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        let mut byte = [0];
        if client.read(&mut byte).unwrap() == 0 {
            return;
        }
        head.push(byte[0]);
    }
    let head = String::from_utf8(head).unwrap();
    let length = head.split_once("Content-Length: ").unwrap().1.split_once('\r').unwrap().0.parse().unwrap();
    client.read_exact(&mut vec![0; length]).unwrap();
    let asked_for = head.split_once(" HTTP/1.1").unwrap().0;
    asked.lock().unwrap().push(asked_for.into());
    let answer = match asked_for {
        "POST /v1/clones/clone/agent" => return pass_on(client, agent),
        "GET /v1" => json!({ "flashfork": env!("CARGO_PKG_VERSION"), "api": api::VERSION, "pid": std::process::id() }),
        "GET /v1/templates" => json!([]),
        "POST /v1/templates/slow/clones" => {
            // Long enough for a signal before the clone is there.
            std::thread::sleep(Duration::from_millis(500));
            json!([clone()])
        }
        "POST /v1/templates/t/clones" => json!([clone()]),
        "DELETE /v1/clones/clone" => json!(null),
        other => panic!("{other}"),
    }
    .to_string();
    write!(client, "HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n{answer}", answer.len()).unwrap();
}

fn clone() -> Value {
    json!({
        "name": "clone", "template": "t", "generation": "0", "state": "ready", "pid": 1, "cid": 3,
        "claim": ClaimTimes::default(), "first_exit_ns": 1,
    })
}

fn pass_on(mut client: UnixStream, agent: &Path) {
    client.write_all(b"HTTP/1.1 101 Switching Protocols\r\n\r\n").unwrap();
    let mut guest = UnixStream::connect(agent).unwrap();
    let (mut to_client, mut from_guest) = (client.try_clone().unwrap(), guest.try_clone().unwrap());
    std::thread::spawn(move || {
        let _ = std::io::copy(&mut from_guest, &mut to_client);
        let _ = to_client.shutdown(std::net::Shutdown::Both);
    });
    let _ = std::io::copy(&mut client, &mut guest);
    let _ = guest.shutdown(std::net::Shutdown::Both);
}

/// The agent, built with the profile of this test.
fn agent() -> PathBuf {
    let exe = std::env::current_exe().unwrap();
    // target/PROFILE/deps/this
    let profile = exe.ancestors().nth(2).unwrap();
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let mut build = Command::new(cargo);
    build.args(["build", "--quiet", "-p", "flashfork-agent", "--target-dir"]).arg(profile.parent().unwrap());
    if profile.ends_with("release") {
        build.arg("--release");
    }
    assert!(build.current_dir(env!("CARGO_MANIFEST_DIR")).status().unwrap().success());
    profile.join("flashfork-agent")
}

/// A terminal, its user's side.
struct Terminal {
    ours: File,
    theirs: OwnedFd,
    seen: String,
}

impl Terminal {
    fn open(rows: u16, columns: u16) -> Self {
        let pty = openpty(None, None).unwrap();
        let terminal = Self { ours: pty.master.into(), theirs: pty.slave, seen: String::new() };
        terminal.resize(rows, columns);
        terminal
    }

    fn resize(&self, rows: u16, columns: u16) {
        let size = libc::winsize { ws_row: rows, ws_col: columns, ws_xpixel: 0, ws_ypixel: 0 };
        // SAFETY: `size` is what TIOCSWINSZ reads.
        assert_eq!(unsafe { libc::ioctl(self.ours.as_raw_fd(), libc::TIOCSWINSZ, &raw const size) }, 0);
    }

    /// Runs `command` as the only one on the terminal.
    fn run(&self, command: &mut Command) -> Child {
        let end = || Stdio::from(self.theirs.try_clone().unwrap());
        command.stdin(end()).stdout(end()).stderr(end()).env("TERM", "vt220");
        // SAFETY: system calls only.
        unsafe {
            command.pre_exec(|| {
                nix::unistd::setsid()?;
                if libc::ioctl(0, libc::TIOCSCTTY, 0) < 0 {
                    return Err(std::io::Error::last_os_error());
                }
                Ok(())
            });
        }
        command.spawn().unwrap()
    }

    fn type_in(&mut self, text: &str) {
        self.ours.write_all(text.as_bytes()).unwrap();
    }

    /// Reads until `text` has been shown since the last time.
    #[track_caller]
    fn see(&mut self, text: &str) {
        let mut bytes = [0; 1024];
        loop {
            if let Some((_, rest)) = self.seen.split_once(text) {
                self.seen = rest.to_owned();
                return;
            }
            let count = self.ours.read(&mut bytes).unwrap_or(0);
            assert!(count > 0, "no {text:?}, but {:?}", self.seen);
            self.seen += &String::from_utf8_lossy(&bytes[..count]);
        }
    }
}

#[track_caller]
fn eventually(mut condition: impl FnMut() -> bool) {
    let start = Instant::now();
    while !condition() {
        assert!(start.elapsed() < Duration::from_secs(120), "it did not happen");
        std::thread::sleep(Duration::from_millis(10));
    }
}

#[track_caller]
fn end(child: &mut Child) -> ExitStatus {
    let mut status = None;
    eventually(|| {
        status = child.try_wait().unwrap();
        status.is_some()
    });
    status.unwrap()
}

#[test]
fn a_command_on_a_terminal_has_one_too_with_its_size_and_keys() {
    let guest = Guest::start();
    let mut terminal = Terminal::open(30, 90);
    let script = "echo $TERM; stty size; while [ \"$(stty size)\" = '30 90' ]; do sleep 0.02; done; stty size; \
                  read line; echo got-$line; trap 'echo interrupted; exit 3' INT; echo trapped; \
                  while :; do sleep 0.02; done";
    let mut child = terminal.run(&mut guest.exec(&[], &["sh", "-c", script]));
    terminal.see("vt220\r\n30 90\r\n");
    terminal.resize(40, 100);
    terminal.see("40 100\r\n");
    // Raw: what is typed gets there key by key, and the guest's terminal shows it.
    assert!(!tcgetattr(&terminal.theirs).unwrap().local_flags.contains(LocalFlags::ICANON));
    terminal.type_in("wird\x7f\x7f\x7fords\r");
    terminal.see("got-words\r\n");
    terminal.see("trapped");
    terminal.type_in("\x03");
    terminal.see("interrupted");
    assert_eq!(end(&mut child).code(), Some(3));
    let flags = tcgetattr(&terminal.theirs).unwrap().local_flags;
    assert!(flags.contains(LocalFlags::ICANON | LocalFlags::ECHO | LocalFlags::ISIG), "as it was before");
}

#[test]
fn without_a_terminal_signals_reach_the_command_and_its_end_is_ours() {
    let guest = Guest::start();
    for (signal, status) in [(Signal::SIGINT, 130), (Signal::SIGTERM, 143), (Signal::SIGUSR1, 138)] {
        let mut child = guest
            .exec(&[], &["sh", "-c", "tty; echo $$; exec sleep 1000"])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut said = String::new();
        let mut stdout = child.stdout.take().unwrap();
        while said.lines().count() < 2 {
            let mut bytes = [0; 100];
            let count = stdout.read(&mut bytes).unwrap();
            assert!(count > 0, "{said:?}");
            said += &String::from_utf8_lossy(&bytes[..count]);
        }
        let (first, pid) = said.trim().split_once('\n').unwrap();
        assert_eq!(first, "not a tty");
        let pid = Pid::from_raw(pid.parse().unwrap());
        kill(Pid::from_raw(child.id().cast_signed()), signal).unwrap();
        assert_eq!(end(&mut child).code(), Some(status));
        eventually(|| kill(pid, None).is_err());
    }
}

#[test]
fn what_this_command_ignores_the_guest_does_not_get() {
    let guest = Guest::start();
    let mut command = guest.exec(&[], &["sh", "-c", "echo $$; read line; echo read"]);
    // SAFETY: a system call.
    unsafe { command.pre_exec(|| Ok(nix::sys::signal::signal(Signal::SIGHUP, SigHandler::SigIgn).map(drop)?)) };
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let mut stdout = child.stdout.take().unwrap();
    assert!(stdout.read(&mut [0; 100]).unwrap() > 0);
    kill(Pid::from_raw(child.id().cast_signed()), Signal::SIGHUP).unwrap();
    child.stdin.take().unwrap().write_all(b"line\n").unwrap();
    let mut rest = String::new();
    stdout.read_to_string(&mut rest).unwrap();
    assert_eq!((rest.as_str(), end(&mut child).code()), ("read\n", Some(0)));
}

#[test]
fn a_terminal_can_be_asked_for_and_the_end_of_input_ends_it() {
    let guest = Guest::start();
    let output = guest.exec(&["-t"], &["sh", "-c", "tty; stty size; cat"]).stdin(Stdio::null()).output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(text.starts_with("/dev/pts/") && text.contains("24 80\r\n"), "{output:?}");
    assert_eq!(output.status.code(), Some(0));
}

#[test]
fn an_end_by_signal_is_128_and_its_number() {
    let guest = Guest::start();
    let output = guest.exec(&[], &["sh", "-c", "kill -9 $$"]).output().unwrap();
    assert_eq!(output.status.code(), Some(137), "{output:?}");
}

#[test]
fn a_command_that_does_not_start_is_what_it_is_for_a_shell() {
    let guest = Guest::start();
    for (program, status) in [("no-such-program", 127), ("/etc/passwd", 126)] {
        let output = guest.exec(&[], &[program]).output().unwrap();
        assert_eq!(output.status.code(), Some(status), "{output:?}");
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(said.starts_with("flashfork: ") && said.lines().count() == 1, "{said:?}");
    }
}

#[test]
fn a_run_takes_its_clone_away_whatever_ends_it() {
    let removed = "DELETE /v1/clones/clone";
    // A signal before there is a clone goes to the command.
    let guest = Guest::start();
    let mut child = guest.run("slow", &["sleep", "1000"]).spawn().unwrap();
    eventually(|| guest.was_asked("POST /v1/templates/slow/clones"));
    kill(Pid::from_raw(child.id().cast_signed()), Signal::SIGINT).unwrap();
    assert_eq!(end(&mut child).code(), Some(130));
    assert!(guest.was_asked(removed));
    // A guest that is gone.
    let mut guest = Guest::start();
    let mut child = guest.run("t", &["sh", "-c", "echo $$; exec sleep 1000"]).spawn().unwrap();
    let mut pid = String::new();
    BufReader::new(child.stdout.as_mut().unwrap()).read_line(&mut pid).unwrap();
    guest.agent.kill().unwrap();
    // In a machine it would have gone with it.
    kill(Pid::from_raw(pid.trim().parse().unwrap()), Signal::SIGKILL).unwrap();
    kill(Pid::from_raw(child.id().cast_signed()), Signal::SIGTERM).unwrap();
    assert!(!end(&mut child).success());
    assert!(guest.was_asked(removed));
    // Nobody who reads.
    let guest = Guest::start();
    let mut child = guest.run("t", &["yes"]).spawn().unwrap();
    child.stdout.take().unwrap().read_exact(&mut [0]).unwrap();
    let status = end(&mut child);
    assert_eq!(std::os::unix::process::ExitStatusExt::signal(&status), Some(libc::SIGPIPE), "{status:?}");
    assert!(guest.was_asked(removed));
    // What can't start.
    let guest = Guest::start();
    assert_eq!(guest.run("t", &["no-such-program"]).output().unwrap().status.code(), Some(127));
    assert!(guest.was_asked(removed));
}
