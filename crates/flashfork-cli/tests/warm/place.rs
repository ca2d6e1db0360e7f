//! Its own directory of names, with the programs of a test; what is in it ends with it.

use nix::sys::socket::{
    AddressFamily, Backlog, MsgFlags, SockFlag, SockType, UnixAddr, accept, bind, listen, recv, socket,
};
use std::fs;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::{fs::DirBuilder, os::unix::fs::DirBuilderExt, os::unix::process::CommandExt, sync::Once};

#[path = "../../../flashfork-templates/tests/common/process.rs"]
mod process;
pub use process::{kill, until};

#[path = "../common/mod.rs"]
mod common;
#[allow(unused_imports, reason = "one of the two that have this module needs it")]
pub use common::copy;
pub use common::{flashfork, target};

pub struct Place(tempfile::TempDir);

/// A command that ignores these signals when it starts, and of those that a shell may have ignored no other: what runs
/// in the background of a script ignores SIGINT and SIGQUIT, what Python executes SIGXFSZ, and so would its children.
pub fn ignoring(mut command: Command, all: &'static [i32]) -> Command {
    let ignore = move || {
        for signal in [libc::SIGINT, libc::SIGQUIT, libc::SIGHUP, libc::SIGXFSZ] {
            // SAFETY: a default action runs no code of this process.
            unsafe { libc::signal(signal, libc::SIG_DFL) };
        }
        for signal in all {
            // SAFETY: to ignore a signal runs no code either.
            unsafe { libc::signal(*signal, libc::SIG_IGN) };
        }
        Ok(())
    };
    // SAFETY: async-signal-safe calls only.
    unsafe { command.pre_exec(ignore) };
    command
}

impl Place {
    pub fn new() -> Place {
        static BUILT: Once = Once::new();
        BUILT.call_once(|| common::build(&["flashfork-preload", "flashfork-keeper", "flashfork-java"]));
        Place(tempfile::tempdir().unwrap())
    }

    pub fn with_shell() -> Place {
        let place = Place::new();
        place.warm_shell();
        place
    }

    pub fn path(&self) -> &Path {
        self.0.path()
    }

    /// Where something of this name lies here.
    pub fn at(&self, name: impl AsRef<Path>) -> PathBuf {
        self.path().join(name)
    }

    /// Writes a file.
    pub fn file(&self, name: impl AsRef<Path>, text: impl AsRef<[u8]>) -> PathBuf {
        let path = self.at(name);
        fs::write(&path, text).unwrap();
        path
    }

    /// The command, with the names of this place.
    pub fn flashfork(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(exe());
        command.args(arguments).env("XDG_RUNTIME_DIR", self.path()).env_remove("LD_PRELOAD").stdin(Stdio::null());
        ignoring(command, &[])
    }

    /// What came of it.
    pub fn run(&self, arguments: &[&str]) -> Output {
        self.flashfork(arguments).output().unwrap()
    }

    /// What came of a clone of `t`.
    pub fn cloned(&self) -> Output {
        self.run(&["clone", "t"])
    }

    /// A shell outside any template.
    pub fn sh(&self, script: &str) -> Command {
        let mut sh = Command::new("sh");
        sh.args(["-c", script]).env("XDG_RUNTIME_DIR", self.path());
        sh
    }

    /// What a command writes to a terminal, or into a pipe.
    pub fn written(&self, terminal: bool, command: &str) -> String {
        let sh = if terminal { "script -qec \"$0\" /dev/null" } else { "eval \"$0\" 2>&1 | cat" };
        let output = self.sh(sh).arg(command).current_dir(self.path()).stdin(Stdio::null()).output().unwrap();
        stdout(&output).to_owned()
    }

    /// Compiles a C program, which finds flashfork's functions declared.
    pub fn program(&self, name: &str, source: &str) -> PathBuf {
        self.program_with(name, source, &[])
    }

    pub fn program_with(&self, name: &str, source: &str, flags: &[&str]) -> PathBuf {
        let (text, program) = (self.at(format!("{name}.c")), self.at(name));
        let functions = "int flashfork_ready(int *, char ***) __attribute__((weak));
            int flashfork_on_clone(int (*)(void *), void *) __attribute__((weak));";
        fs::write(&text, format!("{functions}\n{source}")).unwrap();
        let mut cc = Command::new("cc");
        assert!(cc.args(["-O1", "-pthread", "-o"]).arg(&program).arg(&text).args(flags).status().unwrap().success());
        program
    }

    /// A template `t` of a program.
    pub fn warm(&self, command: &[&str]) -> Output {
        let output = self.run(&[&["warm", "t", "--"], command].concat());
        assert!(output.status.success(), "{}", stderr(&output));
        output
    }

    /// A template `t` of `sh`, before its main.
    pub fn warm_shell(&self) {
        self.warm(&["sh"]);
    }

    /// A clone of `t` that runs a script of the shell.
    pub fn shell(&self, script: &str) -> Command {
        self.flashfork(&["clone", "t", "-c", script])
    }

    pub fn shim(&self) -> PathBuf {
        exe().with_file_name("libflashfork_preload.so")
    }

    /// The templates there are.
    pub fn list(&self) -> Vec<serde_json::Value> {
        let output = self.run(&["ls", "--json"]);
        assert!(output.status.success(), "{}", stderr(&output));
        serde_json::from_slice(&output.stdout).unwrap()
    }

    pub fn template_pid(&self) -> i32 {
        i32::try_from(self.list()[0]["pid"].as_i64().unwrap()).unwrap()
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        for template in self.list() {
            let pid = i32::try_from(template["pid"].as_i64().unwrap()).unwrap();
            // A false one is the test itself.
            if pid != i32::try_from(std::process::id()).unwrap() {
                kill(pid, libc::SIGKILL);
            }
        }
    }
}

/// A socket by the name of a template, with nobody behind it but the test.
pub struct FalseTemplate {
    socket: OwnedFd,
    path: PathBuf,
}

impl FalseTemplate {
    pub fn new(place: &Place, name: &str) -> FalseTemplate {
        // As `warm` makes it.
        let directory = place.at("flashfork/templates");
        DirBuilder::new().recursive(true).mode(0o700).create(&directory).unwrap();
        FalseTemplate::at(&directory.join(name))
    }

    pub fn at(path: &Path) -> FalseTemplate {
        let path = path.to_owned();
        let socket = socket(AddressFamily::Unix, SockType::SeqPacket, SockFlag::SOCK_CLOEXEC, None).unwrap();
        bind(socket.as_raw_fd(), &UnixAddr::new(&path).unwrap()).unwrap();
        listen(&socket, Backlog::new(9).unwrap()).unwrap();
        FalseTemplate { socket, path }
    }

    /// The next caller that asks for something, when it has asked.
    pub fn request(&self) -> OwnedFd {
        loop {
            // SAFETY: a new descriptor, nobody else's.
            let caller = unsafe { OwnedFd::from_raw_fd(accept(self.socket.as_raw_fd()).unwrap()) };
            // Who only looks whether there is somebody goes again.
            match recv(caller.as_raw_fd(), &mut [0; 64], MsgFlags::empty()) {
                Ok(0) => {}
                asked => {
                    assert_eq!(asked, Ok(flashfork_warm::Ask::LEN));
                    return caller;
                }
            }
        }
    }
}

impl Drop for FalseTemplate {
    fn drop(&mut self) {
        fs::remove_file(&self.path).unwrap();
    }
}

/// All there are.
pub fn processes() -> impl Iterator<Item = i32> {
    fs::read_dir("/proc").unwrap().filter_map(|e| e.unwrap().file_name().to_str()?.parse::<i32>().ok())
}

/// Processes that live and were started in this place, of programs whose name begins so.
pub fn pids(place: &Place, name: &str) -> Vec<i32> {
    let mark = format!("XDG_RUNTIME_DIR={}", place.path().display());
    let ours = processes().filter(|pid| {
        let variables = fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
        let comm = fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
        comm.starts_with(name) && variables.split(|b| *b == 0).any(|v| v == mark.as_bytes()) && state(*pid).is_some()
    });
    ours.collect()
}

fn exe() -> &'static Path {
    Path::new(flashfork())
}

/// What came of a command that has to succeed.
#[track_caller]
pub fn good(output: Output) -> Output {
    assert!(output.status.success(), "{}", stderr(&output));
    output
}

pub fn stdout(output: &Output) -> &str {
    std::str::from_utf8(&output.stdout).unwrap()
}

pub fn stderr(output: &Output) -> &str {
    std::str::from_utf8(&output.stderr).unwrap()
}

/// The exit status, and what was written.
pub fn outcome(output: &Output) -> (Option<i32>, String, String) {
    (output.status.code(), stdout(output).to_owned(), stderr(output).to_owned())
}

pub fn both(output: &Output) -> (&str, &str) {
    (stdout(output), stderr(output))
}

/// The one line of a failure.
pub fn line(output: &Output) -> &str {
    let text = stderr(output);
    assert_eq!((output.status.code(), text.lines().count()), (Some(1), 1), "{text}");
    text.trim_end()
}

/// That something was said, which is shown otherwise.
#[track_caller]
pub fn assert_says(said: &str, what: &str) {
    assert!(said.contains(what), "{said}");
}

pub fn signal(child: &Child, signal: i32) {
    kill(i32::try_from(child.id()).unwrap(), signal);
}

/// The state of a process as `ps` shows it; `None` when it is gone or only waits to be waited for.
pub fn state(pid: i32) -> Option<char> {
    process::state(pid).filter(|state| !['Z', 'X'].contains(state))
}
