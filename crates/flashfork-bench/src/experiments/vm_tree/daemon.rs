//! A daemon of the experiment's own, and its requests.

use std::io::{self, Read, Write};
use std::os::unix::net::UnixStream;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use flashfork_proto::agent::Client;
use flashfork_proto::api;
use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::subjects::vm_host::linux::Agent;
use crate::subjects::vm_host::{PATIENCE, vm};
use flashfork_measure::BenchError;
use flashfork_measure::experiment::Places;
use flashfork_measure::workdir::WorkDir;

/// A running daemon. Dropping it ends it, with all that it has.
pub(super) struct Daemon {
    process: Child,
    work: WorkDir,
}

impl Daemon {
    /// With one shell ready, as the least that it can have.
    pub(super) fn start(here: &dyn Places) -> Result<Self, BenchError> {
        let work = WorkDir::new(None)?;
        let shell = here.shell()?;
        let program = shell.with_file_name("flashfork-vmd");
        let mut command = Command::new(&program);
        command.arg("--socket").arg(work.path().join("socket")).args(["--pool", "1", "--shell"]).arg(&shell);
        command.arg("--agent").arg(here.agent()?).arg("--cache").arg(here.cache("lab")?);
        let process = command.stdin(Stdio::null()).stdout(Stdio::null()).spawn();
        let process = process.map_err(|error| BenchError::system(format!("start {}", program.display()), error))?;
        let daemon = Self { process, work };
        let begun = Instant::now();
        while let Err(error) = daemon.connect() {
            if begun.elapsed() > PATIENCE {
                return Err(BenchError::system("talk to the VM daemon", error));
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        Ok(daemon)
    }

    fn connect(&self) -> io::Result<UnixStream> {
        let stream = UnixStream::connect(self.work.path().join("socket"))?;
        stream.set_read_timeout(Some(PATIENCE))?;
        Ok(stream)
    }

    /// What it answers; an error in its own words if it can't.
    pub(super) fn ask<T: DeserializeOwned>(&self, method: &str, path: &str, body: &Value) -> Result<T, BenchError> {
        let answer = self.answer(method, path, &body.to_string()).map_err(failed)?;
        serde_json::from_str(&answer).map_err(|_| match serde_json::from_str::<api::Error>(&answer) {
            Ok(error) => vm(error),
            Err(_) => vm(format!("the VM daemon answers {path} with {answer:?}")),
        })
    }

    /// Removes a template or clone.
    pub(super) fn delete(&self, path: &str) -> Result<(), BenchError> {
        match self.answer("DELETE", path, "").map_err(failed)?.as_str() {
            "" => Ok(()),
            why => Err(vm(why)),
        }
    }

    fn answer(&self, method: &str, path: &str, body: &str) -> io::Result<String> {
        let mut stream = self.connect()?;
        let request = format!(
            "{method} {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Type: application/json\r\n\
             Content-Length: {}\r\n\r\n{body}",
            body.len()
        );
        stream.write_all(request.as_bytes())?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer)?;
        Ok(answer.split_once("\r\n\r\n").map_or(String::new(), |(_, body)| body.to_owned()))
    }

    /// A connection to a clone's agent.
    pub(super) fn agent(&self, clone: &str) -> Result<Agent, BenchError> {
        let mut stream = self.connect().map_err(failed)?;
        let request = format!(
            "POST /v1/clones/{clone}/agent HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: {}\r\n\
             Content-Length: 0\r\n\r\n",
            api::UPGRADE
        );
        stream.write_all(request.as_bytes()).map_err(failed)?;
        // To the end of the head and no further: what follows is the agent's.
        let mut head = Vec::new();
        while !head.ends_with(b"\r\n\r\n") {
            let mut byte = [0];
            stream.read_exact(&mut byte).map_err(failed)?;
            head.extend(byte);
        }
        if !head.starts_with(b"HTTP/1.1 101") {
            return Err(vm(String::from_utf8_lossy(&head)));
        }
        Client::connect(stream.try_clone().map_err(failed)?, stream).map_err(vm)
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        // Its machines die with it.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

fn failed(error: io::Error) -> BenchError {
    BenchError::system("talk to the VM daemon", error)
}
