//! The connection to NATS.

use crate::closed;
use async_nats::{Client, ConnectOptions, Event};
use flashfork_terminal::CliError;
use std::{
	path::{Path, PathBuf},
	time::Duration,
};

/// How often NATS is asked whether it is there. After two pings without an answer the connection is made anew.
const PING: Duration = Duration::from_secs(2);

/// What NATS takes.
#[derive(clap::Args)]
pub struct Access {
	/// File, of mode 600, with USER:PASSWORD or a token for NATS
	#[arg(long, value_name = "FILE", requires = "nats")]
	nats_credentials: Option<PathBuf>,
	/// Certificates (PEM) of which one must have signed those of the NATS servers, in place of the system's
	#[arg(long, value_name = "FILE", requires = "nats")]
	nats_ca: Option<PathBuf>,
}

impl Access {
	/// Whether the NATS servers ask who comes.
	pub fn has_credentials(&self) -> bool {
		self.nats_credentials.is_some()
	}

	/// How a connection is made; `state` is the directory of a server, if one asks.
	pub fn options(&self, state: Option<&Path>) -> Result<ConnectOptions, CliError> {
		let mut options = ConnectOptions::new()
			.ping_interval(PING)
			.connection_timeout(PING)
			.reconnect_delay_callback(|attempts| Duration::from_millis(100 << attempts.min(3)));
		if let Some(path) = &self.nats_credentials {
			let bad = |why: &str| CliError::Unable(format!("{}: {why}", path.display()));
			let text = String::from_utf8(closed::read(path, state)?).map_err(|_| bad("it is no text"))?;
			options = match text.trim_end().split_once(':') {
				_ if text.trim_end().contains(char::is_whitespace) || text.trim_end().is_empty() => {
					return Err(bad("it has one line, USER:PASSWORD or a token"));
				}
				Some((user, password)) => options.user_and_password(user.into(), password.into()),
				None => options.token(text.trim_end().into()),
			};
		}
		Ok(match &self.nats_ca {
			Some(path) => options.add_root_certificates(path.clone()),
			None => options,
		})
	}
}

/// Makes it. From then on it is made anew, for ever, whenever it breaks; `told` hears of that.
pub async fn connect(
	servers: &[String],
	options: ConnectOptions,
	told: impl Fn(Event) + Send + Sync + 'static,
) -> Result<Client, CliError> {
	if servers.iter().any(|url| url.contains('@')) {
		let why = "a command line can be seen by all users of this machine: put user and password, or a token, into a file, and give --nats-credentials";
		return Err(CliError::Unable(why.into()));
	}
	let options = options.event_callback(move |event| {
		told(event);
		std::future::ready(())
	});
	let client = options.connect(servers).await;
	client.map_err(|e| CliError::Unable(format!("can't reach NATS at {}: {e}", servers.join(", "))))
}
