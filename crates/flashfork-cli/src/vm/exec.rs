//! A command in a clone, and its console.

use super::client::Client;
use crate::error::CliError;
use flashfork_proto::agent::{self, CHUNK, Exec, Reply, Request, Requests, STDIN_WINDOW};
use serde_bytes::ByteBuf;
use std::ffi::OsString;
use std::io::{BufReader, Read, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::UnixStream;
use std::process::ExitCode;
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread;

/// Bytes of standard input that may be sent.
type Credit = Arc<(Mutex<usize>, Condvar)>;

fn guest(e: impl std::fmt::Display) -> CliError {
    CliError::Unable(e.to_string())
}

/// Runs `argv` in the clone with this command's standard streams; its exit status becomes this command's.
pub fn exec(client: &Client, clone: &str, argv: &[OsString]) -> Result<ExitCode, CliError> {
    let stream = client.upgrade(&format!("/v1/clones/{clone}/agent"))?;
    let writer = stream.get_ref().try_clone().map_err(guest)?;
    let client = agent::Client::<BufReader<UnixStream>, UnixStream>::connect(stream, writer).map_err(guest)?;
    let (mut requests, mut replies) = client.split();
    let argv = argv.iter().map(|word| ByteBuf::from(word.as_bytes())).collect();
    requests.send(&Request::Exec(Exec { argv, ..Exec::default() })).map_err(guest)?;
    let credit: Credit = Arc::new((Mutex::new(STDIN_WINDOW as usize), Condvar::new()));
    let mut requests = Some(requests);
    loop {
        match replies.receive().map_err(guest)? {
            Reply::Started { .. } => {
                if let Some(requests) = requests.take() {
                    let credit = credit.clone();
                    // Ends with this process: nothing can interrupt its read.
                    thread::spawn(move || pass_input(requests, &credit));
                }
            }
            Reply::Stdout(bytes) => pass(&mut std::io::stdout().lock(), &bytes, "standard output")?,
            Reply::Stderr(bytes) => pass(&mut std::io::stderr().lock(), &bytes, "standard error")?,
            Reply::StdinCredit(more) => {
                *credit.0.lock().unwrap_or_else(PoisonError::into_inner) += more as usize;
                credit.1.notify_one();
            }
            Reply::Exited(exit) => return Ok(ExitCode::from(u8::try_from(exit.shell_status()).unwrap_or(1))),
            Reply::Failed(e) => return Err(guest(e)),
            _ => return Err(CliError::Unable("the guest's agent answered out of turn".into())),
        }
    }
}

fn pass(to: &mut impl Write, bytes: &[u8], name: &str) -> Result<(), CliError> {
    to.write_all(bytes).and_then(|()| to.flush()).map_err(CliError::file("write", name))
}

/// Sends standard input as the guest takes it. A guest or command that is gone ends it.
fn pass_input(mut requests: Requests<UnixStream>, credit: &Credit) {
    let mut bytes = vec![0; CHUNK];
    loop {
        let mut left = credit.0.lock().unwrap_or_else(PoisonError::into_inner);
        while *left == 0 {
            left = credit.1.wait(left).unwrap_or_else(PoisonError::into_inner);
        }
        let room = (*left).min(CHUNK);
        drop(left);
        match std::io::stdin().lock().read(&mut bytes[..room]) {
            Ok(0) | Err(_) => break drop(requests.send(&Request::StdinEnd)),
            Ok(count) => {
                *credit.0.lock().unwrap_or_else(PoisonError::into_inner) -= count;
                if requests.send(&Request::Stdin(ByteBuf::from(&bytes[..count]))).is_err() {
                    break;
                }
            }
        }
    }
}

/// Shows what the clone writes to its console, from the kept past on, and types what is typed; ends with the clone.
pub fn console(client: &Client, clone: &str) -> Result<ExitCode, CliError> {
    let mut stream = client.upgrade(&format!("/v1/clones/{clone}/console"))?;
    let mut writer = stream.get_ref().try_clone().map_err(guest)?;
    thread::spawn(move || {
        // A clone that has ended takes no more.
        let _ = std::io::copy(&mut std::io::stdin().lock(), &mut writer);
    });
    std::io::copy(&mut stream, &mut std::io::stdout().lock()).map_err(CliError::file("pass on", "the console"))?;
    Ok(ExitCode::SUCCESS)
}
