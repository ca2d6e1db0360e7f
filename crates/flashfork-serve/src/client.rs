//! The commands that ask a server for something.

use crate::keys::sign;
use crate::store::pack;
use axum::body::Bytes;
use base64::{Engine, prelude::BASE64_STANDARD as BASE64};
use flashfork_terminal::CliError;
use http_body_util::{BodyExt, Full};
use hyper::client::conn::http1;
use hyper::{Request, Response};
use hyper_util::rt::TokioIo;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::io::Write;
use std::path::PathBuf;
use std::process::ExitCode;

/// Where the server is, and who asks.
#[derive(clap::Args)]
pub struct Endpoint {
    /// Address of the server
    #[arg(long, value_name = "HOST:PORT", default_value = "127.0.0.1:9001", env = "FLASHFORK_ENDPOINT")]
    endpoint: String,
    /// Key to sign with, where the server asks for one; its secret is in AWS_SECRET_ACCESS_KEY
    #[arg(long, value_name = "ID", env = "AWS_ACCESS_KEY_ID", hide_env_values = true)]
    key: Option<String>,
}

/// Deploy a function: a directory or a zip file with Python code
#[derive(clap::Args)]
#[command(after_help = "Example: flashfork deploy hello/ --handler app.handler --env STAGE=test --secret TOKEN=abc")]
pub struct DeployArgs {
    /// Directory, or zip file
    path: PathBuf,
    /// Its name; that of the directory or file unless given
    #[arg(long)]
    name: Option<String>,
    /// Module and function that calls go to
    #[arg(long, value_name = "MODULE.FUNCTION", default_value = "lambda_function.lambda_handler")]
    handler: String,
    /// Seconds that a call may take
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u64).range(1..=900))]
    timeout: u64,
    /// Megabytes that a process of a call may have beside what is warmed
    #[arg(long, default_value_t = 512)]
    memory: u64,
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
    /// What it is called with, as JSON
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

/// Print what a function has printed lately
#[derive(clap::Args)]
#[command(after_help = "Example: flashfork logs hello")]
pub struct LogsArgs {
    /// The function
    name: String,
    #[command(flatten)]
    endpoint: Endpoint,
}

/// List the functions
#[derive(clap::Args)]
#[command(after_help = "Example: flashfork functions")]
pub struct FunctionsArgs {
    #[command(flatten)]
    endpoint: Endpoint,
}

/// Remove a function
#[derive(clap::Args)]
#[command(after_help = "Example: flashfork undeploy hello")]
pub struct UndeployArgs {
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

impl Endpoint {
    fn ask(
        &self,
        method: &str,
        path: &str,
        more: &[(&str, &str)],
        body: Vec<u8>,
    ) -> Result<(Response<()>, Bytes), CliError> {
        let failed = |e: &dyn std::fmt::Display| {
            CliError::Unable(format!("can't ask {}: {e}; start it with `flashfork serve`", self.endpoint))
        };
        let secret = std::env::var("AWS_SECRET_ACCESS_KEY").unwrap_or_default();
        let signed = self.key.as_ref().map(|key| sign(key, &secret, method, &self.endpoint, path, more, &body));
        let mut request = Request::builder().method(method).uri(path).header("host", &self.endpoint);
        for (name, value) in signed.into_iter().flatten() {
            request = request.header(name, value);
        }
        for (name, value) in more {
            request = request.header(*name, *value);
        }
        let request = request.body(Full::new(Bytes::from(body))).map_err(|e| failed(&e))?;
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(|e| failed(&e))?;
        let asked: Result<_, Box<dyn std::error::Error>> = runtime.block_on(async {
            let stream = tokio::net::TcpStream::connect(&self.endpoint).await?;
            stream.set_nodelay(true)?;
            let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await?;
            tokio::spawn(connection);
            let (parts, body) = sender.send_request(request).await?.into_parts();
            Ok((Response::from_parts(parts, ()), body.collect().await?.to_bytes()))
        });
        let (response, body) = asked.map_err(|e| failed(&e))?;
        if response.status().is_success() {
            return Ok((response, body));
        }
        let why =
            serde_json::from_slice::<Value>(&body).ok().and_then(|value| Some(value["Message"].as_str()?.to_owned()));
        Err(CliError::Unable(why.unwrap_or_else(|| format!("{} says {}", self.endpoint, response.status()))))
    }
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
        let own = path.file_stem().unwrap_or_default().to_string_lossy();
        let name = self.name.as_deref().unwrap_or(&own);
        crate::store::name(name).map_err(|e| CliError::Unable(format!("{}; name it with --name", e.why)))?;
        let mut secrets = BTreeMap::new();
        for secret in &self.secret {
            let (name, value) = match secret.split_once('=') {
                Some((name, value)) => (name, value.to_owned()),
                None => {
                    (secret.as_str(), std::env::var(secret).map_err(|e| CliError::Unable(format!("{secret}: {e}")))?)
                }
            };
            secrets.insert(name, value);
        }
        let variables: Option<BTreeMap<_, _>> = self.env.iter().map(|text| text.split_once('=')).collect();
        let variables = variables.ok_or_else(|| CliError::Unable("--env takes NAME=VALUE".into()))?;
        let asked = json!({
            "FunctionName": name, "Handler": self.handler, "Timeout": self.timeout, "MemorySize": self.memory,
            "Environment": { "Variables": variables }, "Secrets": secrets, "Code": { "ZipFile": BASE64.encode(package) },
        });
        self.endpoint.ask("POST", FUNCTIONS, &[], asked.to_string().into_bytes())?;
        print(format!("{name} is warm").as_bytes())
    }
}

impl InvokeArgs {
    /// Calls, and says so if the function has failed.
    pub fn main(&self) -> Result<ExitCode, CliError> {
        if let Some(id) = &self.result {
            let plain = id.bytes().all(|b| b.is_ascii_hexdigit() || b == b'-');
            if !plain {
                return Err(CliError::Unable(format!("{id} is no id of an event")));
            }
            return print(&self.endpoint.ask("GET", &function(&self.name, &format!("/events/{id}"))?, &[], vec![])?.1);
        }
        let more: &[_] = match (self.event, self.log) {
            (true, _) => &[("x-amz-invocation-type", "Event")],
            (_, true) => &[("x-amz-log-type", "Tail")],
            _ => &[],
        };
        let path = function(&self.name, "/invocations")?;
        let (response, body) = self.endpoint.ask("POST", &path, more, self.payload.clone().into_bytes())?;
        let header = |name: &str| response.headers().get(name).and_then(|value| value.to_str().ok());
        if let Some(log) = header("x-amz-log-result").and_then(|text| BASE64.decode(text).ok()) {
            std::io::stderr().write_all(&log).map_err(CliError::file("write", "standard error"))?;
        }
        print(if self.event { header("x-amzn-requestid").unwrap_or_default().as_bytes() } else { &body })?;
        Ok(ExitCode::from(u8::from(header("x-amz-function-error").is_some())))
    }
}

impl LogsArgs {
    /// Prints them.
    pub fn main(&self) -> Result<ExitCode, CliError> {
        print(&self.endpoint.ask("GET", &function(&self.name, "/logs")?, &[], vec![])?.1)
    }
}

impl FunctionsArgs {
    /// Prints one a line.
    pub fn main(&self) -> Result<ExitCode, CliError> {
        let (_, body) = self.endpoint.ask("GET", FUNCTIONS, &[], vec![])?;
        let all: Value = serde_json::from_slice(&body).map_err(|e| CliError::Unable(e.to_string()))?;
        for function in all["Functions"].as_array().into_iter().flatten() {
            let text = |name: &str| function[name].as_str().unwrap_or_default();
            print(
                format!(
                    "{}  {}  {} s  {} MB",
                    text("FunctionName"),
                    text("Handler"),
                    function["Timeout"],
                    function["MemorySize"]
                )
                .as_bytes(),
            )?;
        }
        Ok(ExitCode::SUCCESS)
    }
}

impl UndeployArgs {
    /// Removes it.
    pub fn main(&self) -> Result<ExitCode, CliError> {
        self.endpoint.ask("DELETE", &function(&self.name, "")?, &[], vec![])?;
        Ok(ExitCode::SUCCESS)
    }
}
