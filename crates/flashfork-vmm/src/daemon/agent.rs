//! The daemon's own calls of a guest's agent.

use flashfork_proto::agent::{Client, Exec, Reply, Request};
use serde_bytes::ByteBuf;
use std::os::unix::net::UnixStream;
use std::time::Duration;

/// How long an agent may take to greet.
const GREETING: Duration = Duration::from_secs(5);

/// Where the agent is in its guest.
const AGENT: &str = "/run/flashfork/agent";

/// A client of the agent at the other end.
pub(super) fn greet(stream: UnixStream) -> Result<Client<UnixStream, UnixStream>, String> {
    let writer = stream.try_clone().map_err(|e| e.to_string())?;
    stream.set_read_timeout(Some(GREETING)).map_err(|e| e.to_string())?;
    let client = Client::connect(stream.try_clone().map_err(|e| e.to_string())?, writer).map_err(|e| e.to_string())?;
    stream.set_read_timeout(None).map_err(|e| e.to_string())?;
    Ok(client)
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
            Ok(Reply::Stdout(bytes) | Reply::Stderr(bytes)) => said.extend_from_slice(&bytes),
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
