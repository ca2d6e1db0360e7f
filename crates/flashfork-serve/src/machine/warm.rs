//! Making a function's template.

use super::{
	Machines, Owned,
	agent::{Agent, receive},
	one_clone,
};
use crate::{
	error::{ApiError, Result},
	store::Config,
	warden,
};
use flashfork_proto::{
	agent::{Exec, Exit},
	api::{self, Clone, CreateClones, ForkClone, Forked},
	function::{MAX_FRAME, Said},
};
use serde_bytes::ByteBuf;
use std::{io::Error, os::unix::fs::MetadataExt, path::Path};

/// Where guests keep their agent, and a function finds its package, as in AWS.
const AGENT: &str = "/run/flashfork/agent";
const TASK_ROOT: &str = "/var/task";

/// TCP ports of what serves a runtime in its guest.
#[derive(Clone, Copy)]
pub struct Ports {
	pub messages: u16,
	pub streams: u16,
}

/// A function's template.
pub struct Template {
	pub(super) name: String,
	pub(super) ports: Ports,
	/// Whether the daemon's process ids are this process's.
	pub(super) is_seen: bool,
	/// Removes it.
	_owned: Owned,
}

impl Machines {
	/// Makes one with the package in `code`; `print` gets what the runtime prints meanwhile.
	pub async fn warm(&self, config: &Config, of: &str, code: &Path, print: impl Fn(&[u8])) -> Result<Template> {
		// The server may have been started anew with other options.
		self.memory(of).await?;
		self.tidy().await;
		self.watch()?;
		let name = self.name();
		let body = CreateClones { name: Some(name.clone()), ..one_clone() };
		let path = format!("templates/{of}/clones");
		let (_, clone) = self.owned("clones", &name, None).make::<Vec<Clone>>(&path, &body).await?;
		let failed = |why| ApiError::not_ready(format!("the function can't be warmed in a clone of {of}: {why}"));
		// What it asks for, a call or to be heard on its failure, each clone does.
		let ports = self.begin(&name, config, code, print).await.map_err(|e| failed(e.to_string()))?;
		let daemon: api::Daemon = self.daemon.get("/v1").await?;
		let is_seen = std::fs::metadata("/proc/self/ns/pid")?.ino() == daemon.pid_namespace;
		let made = self.name();
		let body = serde_json::json!({ "count": 0, "template": made });
		let body: ForkClone = serde_json::from_value(body).map_err(ApiError::service)?;
		let (_, owned) =
			self.owned("templates", &made, None).make::<Forked>(&format!("clones/{name}/fork"), &body).await?;
		clone.remove().await;
		Ok(Template { name: made, ports, is_seen, _owned: owned })
	}

	/// Starts the function's runtime in a clone, and returns when it asks for something.
	async fn begin(&self, clone: &str, config: &Config, code: &Path, print: impl Fn(&[u8])) -> std::io::Result<Ports> {
		Agent::connect(&self.daemon, clone).await?.store(code, "/var", "task").await?;
		let variables = warden::environment(Path::new(TASK_ROOT), config);
		let command = Exec {
			argv: [AGENT, "function", TASK_ROOT].map(ByteBuf::from).into(),
			env: variables.into_iter().map(|(name, value)| (ByteBuf::from(name), ByteBuf::from(value))).collect(),
			survives: true,
			..Exec::default()
		};
		let mut agent = Agent::connect(&self.daemon, clone).await?;
		let line = agent.start(command).await?;
		let ports = line.split_once(' ').and_then(|(messages, streams)| {
			Some(Ports { messages: messages.parse().ok()?, streams: streams.parse().ok()? })
		});
		let ports = ports.ok_or_else(|| Error::other(format!("its agent is none of this flashfork: {line}")))?;
		let mut control = Agent::connect(&self.daemon, clone).await?.dial(ports.messages).await?;
		loop {
			match receive(&mut control, MAX_FRAME).await? {
				Said::Printed(bytes) => print(&bytes),
				Said::Asks(_) => return Ok(ports),
				Said::Ended(exit) => {
					return Err(Error::other(format!("it ended before it asked for a call, by {}", how(exit))));
				}
				Said::Flushed => {}
			}
		}
	}
}

/// How a runtime has ended.
pub fn how(exit: Exit) -> String {
	match exit {
		Exit::Code(code) => format!("exit status {code}"),
		Exit::Signal(signal) => format!("signal: {signal}"),
	}
}
