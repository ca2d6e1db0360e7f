//! The commands that ask a server for something.

use crate::{bodies::MOST_PACKAGE, keys, store::pack, tls};
use axum::{
	body::{Body, Bytes, to_bytes},
	http::{
		request::{Builder, Request},
		response::Response,
		uri::Authority,
	},
};
use base64::{Engine, prelude::BASE64_STANDARD as BASE64};
use flashfork_terminal::{CliError, output};
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use serde_json::{Value, json};
use std::{
	collections::BTreeMap,
	io::{ErrorKind, Write},
	path::PathBuf,
	process::ExitCode,
	time::{Duration, Instant},
};
use tokio::io::{AsyncRead, AsyncWrite};

/// Where the server is.
#[derive(clap::Args)]
pub struct Endpoint {
	/// Address of the server, https://HOST:PORT with TLS
	#[arg(long, value_name = "HOST:PORT", default_value = "127.0.0.1:9001", env = "FLASHFORK_ENDPOINT")]
	endpoint: String,
	/// Key to sign with, where the server takes keys; its secret is in AWS_SECRET_ACCESS_KEY
	#[arg(long, value_name = "ID", env = "AWS_ACCESS_KEY_ID", hide_env_values = true)]
	key: Option<String>,
	/// Certificates (PEM) of which one must have signed the server's
	#[arg(long, value_name = "FILE", default_value = "/etc/ssl/certs/ca-certificates.crt", env = "AWS_CA_BUNDLE")]
	ca: PathBuf,
	/// Own certificate (PEM), where the server demands one
	#[arg(long, value_name = "FILE", requires = "certificate_key")]
	certificate: Option<PathBuf>,
	/// Its private key (PEM)
	#[arg(long, value_name = "FILE", requires = "certificate")]
	certificate_key: Option<PathBuf>,
}

/// Deploy a function: a directory or a zip file with code in Python, JavaScript or Java, or with a program
/// `bootstrap`
#[derive(clap::Args)]
#[command(
	after_help = "Examples:\n  flashfork deploy hello/ --handler app.handler --env STAGE=test --secret TOKEN=abc\n  flashfork deploy site/ --runtime nodejs --handler index.handler\n  flashfork deploy tool/\n  flashfork deploy tool/ --vm kernel"
)]
pub struct DeployArgs {
	/// Directory, or zip file
	path: PathBuf,
	/// Its name; that of the directory or file unless given
	#[arg(long)]
	name: Option<String>,
	/// What it runs in, python, nodejs, java or provided; by its files unless given
	#[arg(long, value_name = "NAME")]
	runtime: Option<String>,
	/// Template of the VM daemon's (`flashfork vm template create`) whose clones take the calls: the package has a
	/// program bootstrap, as for AWS's runtime provided
	#[arg(long, value_name = "TEMPLATE")]
	vm: Option<String>,
	/// Module and function that calls go to [default: lambda_function.lambda_handler; Node's: index.handler]; Java's
	/// CLASS::METHOD
	#[arg(long, value_name = "MODULE.FUNCTION")]
	handler: Option<String>,
	/// Seconds that a call may take
	#[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u64).range(1..=900))]
	timeout: u64,
	/// Megabytes that a process of a call may have beside what is warmed [default: 512]
	#[arg(long)]
	memory: Option<u64>,
	/// Calls that a clone may take, one after the other, as in AWS: what one leaves, the next one finds
	#[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..))]
	reuse: u32,
	/// Variable of the environment
	#[arg(long, value_name = "NAME=VALUE")]
	env: Vec<String>,
	/// Variable that calls have and the template doesn't; without a value it is this environment's
	#[arg(long, value_name = "NAME[=VALUE]")]
	secret: Vec<String>,
	#[command(flatten)]
	endpoint: Endpoint,
}

/// Call a function, and print its answer
#[derive(clap::Args)]
#[command(
	after_help = "Example: flashfork invoke hello '{\"name\": \"you\"}'\n\nExit code: 0 answered, 1 the function or the request has failed"
)]
pub struct InvokeArgs {
	/// The function
	name: String,
	/// What it is called with, as JSON; `-` reads it from standard input
	#[arg(default_value = "{}")]
	payload: String,
	/// Print the end of the call's log on standard error
	#[arg(long)]
	log: bool,
	/// Don't wait: print the event's id
	#[arg(long, conflicts_with = "log")]
	event: bool,
	/// Print what has come of this event, in place of a call
	#[arg(long, value_name = "ID", conflicts_with_all = ["log", "event", "payload"])]
	result: Option<String>,
	#[command(flatten)]
	endpoint: Endpoint,
}

#[derive(clap::Args)]
pub struct FunctionArgs {
	/// The function
	name: String,
	#[command(flatten)]
	endpoint: Endpoint,
}

const FUNCTIONS: &str = "/2015-03-31/functions";

/// The path of a function, of which a server would not know another one by this name.
fn function(name: &str, rest: &str) -> Result<String, CliError> {
	crate::store::name(name).map_err(|e| CliError::Unable(e.why))?;
	Ok(format!("{FUNCTIONS}/{name}{rest}"))
}

/// How long `deploy` waits for a server that was started a moment before.
const TO_START: Duration = Duration::from_secs(2);

impl Endpoint {
	fn ask(&self, request: Builder, body: String) -> Result<Response<Bytes>, CliError> {
		self.ask_within(Duration::ZERO, request, body)
	}

	/// The same of a server that may begin to listen within a while.
	fn ask_within(&self, patience: Duration, request: Builder, body: String) -> Result<Response<Bytes>, CliError> {
		// A server that refuses early is heard.
		output::outlive_the_pipe();
		let secure = self.endpoint.strip_prefix("https://");
		let place = secure.or(self.endpoint.strip_prefix("http://")).unwrap_or(&self.endpoint).trim_end_matches('/');
		let own = self.certificate.as_deref().zip(self.certificate_key.as_deref());
		let tls = secure.map(|_| tls::connector(&self.ca, own)).transpose()?;
		let asked: Result<_, Box<dyn std::error::Error>> = (|| {
			let (mut parts, body) = request.header("host", place).body(body)?.into_parts();
			if let Some(key) = &self.key {
				let secret =
					std::env::var("AWS_SECRET_ACCESS_KEY").map_err(|e| format!("AWS_SECRET_ACCESS_KEY: {e}"))?;
				keys::sign(&mut parts, key, &secret, body.as_bytes())?;
			}
			let request = Request::from_parts(parts, Body::from(body));
			tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(async {
				let until = Instant::now() + patience;
				let stream = loop {
					match tokio::net::TcpStream::connect(place).await {
						Err(e) if e.kind() == ErrorKind::ConnectionRefused && Instant::now() < until => {
							tokio::time::sleep(Duration::from_millis(20)).await;
						}
						connected => break connected?,
					}
				};
				stream.set_nodelay(true)?;
				match tls {
					None => send(stream, request).await,
					Some(tls) => {
						let authority: Authority = place.parse()?;
						let host = authority.host().trim_matches(['[', ']']).to_owned();
						send(tls.connect(host.try_into()?, stream).await?, request).await
					}
				}
			})
		})();
		output::end_with_the_pipe();
		let response = asked.map_err(|e| {
			let refused = e.downcast_ref::<std::io::Error>().is_some_and(|e| e.kind() == ErrorKind::ConnectionRefused);
			let cure = match e.downcast_ref::<hyper::Error>() {
				_ if refused => "; start it with `flashfork serve`",
				Some(e) if e.is_parse() => "; with TLS its address begins with https://",
				_ if secure.is_some() => {
					"; --ca names who has signed its certificate, --certificate and --certificate-key are yours, and http:// is without TLS"
				}
				_ => "",
			};
			let why = std::iter::successors(e.source(), |e| e.source()).last().map(|why| format!(": {why}"));
			CliError::Unable(format!("can't ask {}: {e}{}{cure}", self.endpoint, why.unwrap_or_default()))
		})?;
		if response.status().is_success() {
			return Ok(response);
		}
		let why = serde_json::from_slice::<Value>(response.body()).unwrap_or_default();
		let why = why["Message"].as_str().map(str::to_owned);
		Err(CliError::Unable(why.unwrap_or_else(|| format!("{} says {}", self.endpoint, response.status()))))
	}
}

async fn send(
	stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
	request: Request<Body>,
) -> Result<Response<Bytes>, Box<dyn std::error::Error>> {
	let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await?;
	tokio::spawn(connection);
	let (parts, body) = sender.send_request(request).await?.into_parts();
	Ok(Response::from_parts(parts, to_bytes(Body::new(body), usize::MAX).await?))
}

/// A log for people: awslambdaric has `\r` between the lines of one message, which terminals write over each other.
fn lines(log: &[u8]) -> Vec<u8> {
	String::from_utf8_lossy(log).replace("\r\n", "\n").replace('\r', "\n").into_bytes()
}

fn print(bytes: &[u8]) -> Result<ExitCode, CliError> {
	let mut out = std::io::stdout();
	let done = out.write_all(bytes).and_then(|()| if bytes.ends_with(b"\n") { Ok(()) } else { out.write_all(b"\n") });
	done.map_err(CliError::file("write", "standard output"))?;
	Ok(ExitCode::SUCCESS)
}

impl DeployArgs {
	/// Packs a directory, and has the server warm it.
	pub fn main(&self) -> Result<ExitCode, CliError> {
		let file = |what| CliError::file(what, &self.path);
		let path = self.path.canonicalize().map_err(file("find"))?;
		let package = if path.is_dir() {
			pack(&path).map_err(file("pack"))?
		} else {
			std::fs::read(&path).map_err(file("read"))?
		};
		let refuse = |why: String| Err(CliError::Unable(format!("{} {why}", self.path.display())));
		if !package.starts_with(b"PK") {
			return refuse("is no zip file: give one, or the directory in which the code lies".into());
		}
		// In base64, with the configuration.
		let most = MOST_PACKAGE / 4 * 3 - (1 << 20);
		if package.len() > most {
			return refuse(format!("has {} MB packed, and a package has {} at most", package.len() >> 20, most >> 20));
		}
		// A link's own, not that of what it leads to.
		let named = if self.path.file_name().is_some() { &self.path } else { &path };
		let own = if path.is_dir() { named.file_name() } else { named.file_stem() };
		let own = own.unwrap_or_default().to_string_lossy();
		let name = self.name.as_deref().unwrap_or(&own);
		crate::store::name(name).map_err(|e| CliError::Unable(format!("{}; name it with --name", e.why)))?;
		let mut secrets = BTreeMap::new();
		for secret in &self.secret {
			let own = || std::env::var(secret).map_err(|e| CliError::Unable(format!("{secret}: {e}")));
			match secret.split_once('=') {
				Some((name, value)) => secrets.insert(name, value.to_owned()),
				None => secrets.insert(secret, own()?),
			};
		}
		let variables: Option<BTreeMap<_, _>> = self.env.iter().map(|text| text.split_once('=')).collect();
		let variables = variables.ok_or_else(|| CliError::Unable("--env takes NAME=VALUE".into()))?;
		let mut asked = json!({
			"FunctionName": name, "Runtime": self.runtime, "Handler": self.handler.as_deref().unwrap_or_default(), "Timeout": self.timeout, "Reuse": self.reuse,
			"Environment": { "Variables": variables }, "Secrets": secrets, "Code": { "ZipFile": BASE64.encode(package) },
		});
		if let Some(memory) = self.memory {
			asked["MemorySize"] = memory.into();
		}
		if let Some(template) = &self.vm {
			asked["Vm"] = template.as_str().into();
		}
		self.endpoint.ask_within(TO_START, Request::post(FUNCTIONS), asked.to_string())?;
		output::say(&format!("{name} is warm"))?;
		Ok(ExitCode::SUCCESS)
	}
}

impl InvokeArgs {
	/// Calls, and says so if the function has failed.
	pub fn main(&self) -> Result<ExitCode, CliError> {
		if let Some(id) = &self.result {
			if !id.bytes().all(|b| b.is_ascii_hexdigit() || b == b'-') {
				return Err(CliError::Unable(format!("{id} is no id of an event")));
			}
			let path = function(&self.name, &format!("/events/{id}"))?;
			let response = self.endpoint.ask(Request::get(path), String::new())?;
			print(response.body())?;
			let told: Value = serde_json::from_slice(response.body()).unwrap_or_default();
			return Ok(ExitCode::from(u8::from(told["Status"] == "Failed")));
		}
		let payload = match &*self.payload {
			"-" => std::io::read_to_string(std::io::stdin()).map_err(CliError::file("read", "standard input"))?,
			payload => payload.to_owned(),
		};
		let request = Request::post(function(&self.name, "/invocations")?)
			.header("x-amz-invocation-type", if self.event { "Event" } else { "RequestResponse" })
			.header("x-amz-log-type", if self.log { "Tail" } else { "None" });
		let response = self.endpoint.ask(request, payload)?;
		let header = |name: &str| response.headers().get(name).and_then(|value| value.to_str().ok());
		if let Some(log) = header("x-amz-log-result").and_then(|text| BASE64.decode(text).ok()) {
			std::io::stderr().write_all(&lines(&log)).map_err(CliError::file("write", "standard error"))?;
		}
		print(if self.event { header("x-amzn-requestid").unwrap_or_default().as_bytes() } else { response.body() })?;
		Ok(ExitCode::from(u8::from(header("x-amz-function-error").is_some())))
	}
}

impl FunctionArgs {
	/// Prints what it has printed.
	pub fn logs(&self) -> Result<ExitCode, CliError> {
		print(&lines(self.endpoint.ask(Request::get(function(&self.name, "/logs")?), String::new())?.body()))
	}

	/// Removes it.
	pub fn undeploy(&self) -> Result<ExitCode, CliError> {
		self.endpoint.ask(Request::delete(function(&self.name, "")?), String::new())?;
		Ok(ExitCode::SUCCESS)
	}
}

impl Endpoint {
	/// Prints all functions, one a line.
	pub fn functions(&self) -> Result<ExitCode, CliError> {
		let mut path = FUNCTIONS.to_owned();
		loop {
			let response = self.ask(Request::get(path), String::new())?;
			let all: Value = serde_json::from_slice(response.body()).map_err(|e| CliError::Unable(e.to_string()))?;
			for function in all["Functions"].as_array().into_iter().flatten() {
				let text = |name: &str| function[name].as_str().unwrap_or_default();
				let (name, handler) = (text("FunctionName"), text("Handler"));
				// A program may have none.
				let handler = if handler.is_empty() { text("Runtime") } else { handler };
				output::say(&format!("{name}  {handler}  {} s  {} MB", function["Timeout"], function["MemorySize"]))?;
			}
			let Some(next) = all["NextMarker"].as_str() else { return Ok(ExitCode::SUCCESS) };
			path = format!("{FUNCTIONS}?Marker={next}");
		}
	}
}

#[cfg(test)]
mod tests {
	use super::*;

	#[test]
	fn a_log_is_shown_in_lines() {
		assert_eq!(
			lines(b"KeyError\rTraceback\r\xc2\xa0File\r\nnext\n"),
			"KeyError\nTraceback\n\u{a0}File\nnext\n".as_bytes()
		);
	}
}
