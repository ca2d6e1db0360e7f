//! Finding the daemon, and starting it when it isn't there.

use super::client::Client;
use crate::error::CliError;
use crate::places;
use nix::sys::signal::Signal;
use std::fs::{self, OpenOptions};
use std::io::Read;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};
use tempfile::TempDir;

/// A daemon listens within milliseconds of its start.
const START: Duration = Duration::from_secs(10);

/// Where the user's daemon listens.
pub fn default_socket() -> PathBuf {
    // SAFETY: asks for a number.
    let user = unsafe { libc::geteuid() };
    match std::env::var_os("XDG_RUNTIME_DIR") {
        Some(dir) if user != 0 => Path::new(&dir).join("flashfork/vmd.sock"),
        _ if user == 0 => "/run/flashfork/vmd.sock".into(),
        _ => format!("/tmp/flashfork-{user}/vmd.sock").into(),
    }
}

/// The program, beside this one or where `make install` puts it.
pub fn program() -> Result<PathBuf, CliError> {
    let exe = std::env::current_exe().map_err(CliError::file("find", "the flashfork executable"))?;
    let dir = exe.parent().unwrap_or(Path::new("/"));
    let places = [dir.join("flashfork-vmd"), dir.join("../lib/flashfork/flashfork-vmd")];
    places.iter().find(|path| path.is_file()).cloned().ok_or_else(|| {
        CliError::Unable(format!(
            "flashfork-vmd is neither in {} nor in ../lib/flashfork beside it; build it with `cargo build --release -p flashfork-vmm` or install with `make install`",
            dir.display()
        ))
    })
}

/// The command that runs a daemon at `socket`.
pub fn command(socket: &Path) -> Result<Command, CliError> {
    let mut command = Command::new(program()?);
    command.arg("--socket").arg(socket).arg("--cache").arg(places::cache("lab")?);
    Ok(command)
}

/// The daemon at `socket`, started if nobody listens there.
pub fn connect(socket: &Path) -> Result<Client, CliError> {
    let client = Client::new(socket);
    if client.answers() {
        return Ok(client);
    }
    let mut command = command(socket)?;
    // A session of its own: it outlives this command and its terminal.
    command.process_group(0);
    start(&mut command, socket)?;
    Ok(client)
}

/// A daemon of this command's own, which ends with it and leaves nothing behind.
pub struct Private {
    child: Child,
    pub client: Client,
    _dir: TempDir,
}

impl Private {
    pub fn start() -> Result<Self, CliError> {
        let dir = tempfile::tempdir().map_err(CliError::file("create", "a temporary directory"))?;
        let socket = dir.path().join("vmd.sock");
        let mut command = command(&socket)?;
        // SAFETY: between fork and exec, one system call.
        unsafe { command.pre_exec(|| Ok(nix::sys::prctl::set_pdeathsig(Signal::SIGTERM)?)) };
        let child = start(&mut command, &socket)?;
        Ok(Self { child, client: Client::new(&socket), _dir: dir })
    }
}

impl Drop for Private {
    fn drop(&mut self) {
        // Both fail if it has ended already. Its shells die with it.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Runs a daemon and waits until it listens.
fn start(command: &mut Command, socket: &Path) -> Result<Child, CliError> {
    let dir = socket.parent().unwrap_or(Path::new("/"));
    fs::create_dir_all(dir).map_err(CliError::file("create", dir))?;
    let log_path = socket.with_extension("log");
    let log =
        OpenOptions::new().create(true).append(true).open(&log_path).map_err(CliError::file("write", &log_path))?;
    let before = log.metadata().map_or(0, |m| m.len()) as usize;
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(log).current_dir("/");
    let mut child = command.spawn().map_err(CliError::file("start", "flashfork-vmd"))?;
    let client = Client::new(socket);
    let start = Instant::now();
    while start.elapsed() < START {
        if client.answers() {
            return Ok(child);
        }
        if child.try_wait().is_ok_and(|status| status.is_some()) {
            break;
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    let mut said = String::new();
    let _ = fs::File::open(&log_path).and_then(|mut log| log.read_to_string(&mut said));
    let line = said.get(before..).and_then(|new| new.lines().next()).unwrap_or("it does not listen");
    let line = line.trim_start_matches("flashfork-vmd: ");
    Err(CliError::Unable(format!("the VM daemon did not start: {line}")))
}
