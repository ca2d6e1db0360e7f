//! The daemon's own calls of a guest's agent.

use flashfork_proto::agent::{Client, Exec, Reply, Request};
use serde_bytes::ByteBuf;
use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread;
use std::time::Duration;

/// How long an agent may take to greet.
const GREETING: Duration = Duration::from_secs(5);

/// Where the agent is in its guest.
const AGENT: &str = "/run/flashfork/agent";

/// Bytes of what a command says that are kept, the last ones.
const SAID: usize = 4096;

/// A connection to an agent, which ends with this value, whoever still waits for what comes on it.
pub(super) struct Line(UnixStream);

impl Line {
    pub(super) fn new(stream: UnixStream) -> Self {
        Self(stream)
    }

    /// A client of the agent at the other end. All of its greeting is there in time, or there is none.
    pub(super) fn greet(&self) -> Result<Client<UnixStream, UnixStream>, String> {
        let (one, other) = (self.0.try_clone(), self.0.try_clone());
        let (reader, writer) = (one.map_err(|e| e.to_string())?, other.map_err(|e| e.to_string())?);
        let late = self.0.try_clone().map_err(|e| e.to_string())?;
        let (greeted, waits) = mpsc::channel::<()>();
        let watch = move || {
            if waits.recv_timeout(GREETING) == Err(RecvTimeoutError::Timeout) {
                // It has ended already, else.
                let _ = late.shutdown(Shutdown::Both);
            }
        };
        thread::Builder::new().name("greeting".into()).spawn(watch).map_err(|e| e.to_string())?;
        let client = Client::connect(reader, writer).map_err(|e| e.to_string());
        drop(greeted);
        client
    }
}

impl Drop for Line {
    fn drop(&mut self) {
        // It has ended already, else.
        let _ = self.0.shutdown(Shutdown::Both);
    }
}

/// A command of these words; it goes on when nobody is there to hear of it.
pub(super) fn command(argv: &[String]) -> Exec {
    Exec { argv: argv.iter().map(|word| ByteBuf::from(word.as_bytes())).collect(), survives: true, ..Exec::default() }
}

/// Has the guest give the fork signal, while all else in it stands still. Gives how that ended in the guest that gave
/// it, with what it said: of a guest that becomes a template and doesn't go on nothing is heard.
pub(super) fn signal_fork(client: Client<UnixStream, UnixStream>) -> Result<(), String> {
    let (mut requests, mut replies) = client.split();
    let signal = command(&[AGENT, "signal", "fork"].map(str::to_owned));
    requests.send(&Request::Exec(signal)).map_err(|e| e.to_string())?;
    let mut said = Vec::new();
    loop {
        match replies.receive() {
            Ok(Reply::Started { .. }) => {}
            Ok(Reply::Stdout(bytes) | Reply::Stderr(bytes)) => {
                said.extend_from_slice(&bytes);
                said.drain(..said.len().saturating_sub(SAID));
            }
            Ok(Reply::Exited(exit)) if exit.shell_status() == 0 => return Ok(()),
            Ok(Reply::Exited(exit)) => {
                let said = String::from_utf8_lossy(&said);
                let line = said.lines().rev().find(|line| !line.trim().is_empty()).unwrap_or("no reason given");
                return Err(format!("could not give the fork signal (status {}): {line}", exit.shell_status()));
            }
            Ok(Reply::Failed(e)) => return Err(e.to_string()),
            Ok(_) => return Err("has an agent that answers out of turn".into()),
            Err(_) => return Ok(()),
        }
    }
}
