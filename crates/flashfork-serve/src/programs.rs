//! The programs in which functions run.

use crate::{
	error::{ApiError, Result},
	store::{Config, Language},
};
use flashfork_proto::function::BOOTSTRAP;
use serde::{Deserialize, Serialize};
use std::{
	ffi::OsString,
	path::{Path, PathBuf},
};

/// Where they are, as the server was told. They are looked for when a function needs one.
pub struct Programs {
	pub python: PathBuf,
	pub node: PathBuf,
	/// A directory `node_modules` with AWS's runtime client.
	pub modules: Option<PathBuf>,
	pub java: PathBuf,
	/// A directory with the jars of AWS's runtime client.
	pub jars: Option<PathBuf>,
}

/// What is warmed for a function.
#[derive(Serialize, Deserialize)]
pub struct Program {
	pub path: PathBuf,
	pub arguments: Vec<OsString>,
	/// Variables of the warm-up alone.
	pub variables: Vec<(String, String)>,
	/// Whether it has threads, which its clones must have, too; `None` where that shows when it is warmed.
	pub threads: Option<bool>,
}

impl Programs {
	/// The one of this function, which finds its code there.
	pub fn of(&self, config: &Config, code: &Path) -> Result<Program> {
		match config.language() {
			Language::Python => self.python(config),
			Language::Node => self.node(config),
			Language::Java => self.java(config, code),
			Language::Provided => {
				Ok(Program { path: code.join(BOOTSTRAP), arguments: Vec::new(), variables: Vec::new(), threads: None })
			}
		}
	}

	fn python(&self, config: &Config) -> Result<Program> {
		let arguments = vec!["-m".into(), "awslambdaric".into(), OsString::from(&config.handler)];
		let variables = vec![("PYTHONDONTWRITEBYTECODE".into(), "1".into())];
		Ok(Program { path: found(&self.python, "--python")?, arguments, variables, threads: Some(false) })
	}

	fn node(&self, config: &Config) -> Result<Program> {
		let path = found(&self.node, "--node")?;
		let cure =
			"install it (npm install aws-lambda-ric@3) and start the server with --node-modules DIR/node_modules";
		let Some(modules) = &self.modules else {
			return Err(ApiError::not_ready(format!("there is no runtime client of AWS's for Node: {cure}")));
		};
		let client = modules.join(".bin/aws-lambda-ric");
		let client =
			client.canonicalize().map_err(|e| ApiError::not_ready(format!("{}: {e}; {cure}", client.display())))?;
		// As AWS has it: what is garbage is collected before memory is short.
		let heap = format!("--max-old-space-size={}", config.memory_size * 9 / 10);
		let arguments = vec![heap.into(), client.into(), OsString::from(&config.handler)];
		Ok(Program { path, arguments, variables: Vec::new(), threads: Some(true) })
	}

	fn java(&self, config: &Config, code: &Path) -> Result<Program> {
		let path = found(&self.java, "--java")?;
		let cure = "put aws-lambda-java-runtime-interface-client and what it needs (Maven) into a directory, and start the \
		            server with --java-jars DIR";
		let Some(jars) = &self.jars else {
			return Err(ApiError::not_ready(format!("there is no runtime client of AWS's for Java: {cure}")));
		};
		let jars = jars.canonicalize().map_err(|e| ApiError::not_ready(format!("{}: {e}; {cure}", jars.display())))?;
		// The class path is AWS's, and so is the collector: it needs no threads.
		let places = [code.to_owned(), code.join("lib/*"), jars.join("*")];
		let places = std::env::join_paths(places).map_err(ApiError::service)?;
		let heap = format!("-Xmx{}m", config.memory_size * 9 / 10);
		let client = "com.amazonaws.services.lambda.runtime.api.client.AWSLambda";
		let mut arguments: Vec<OsString> =
			["-XX:+UseSerialGC", "-XX:-UsePerfData", &heap, "-cp"].map(OsString::from).into();
		arguments.extend([places, client.into(), OsString::from(&config.handler)]);
		Ok(Program { path, arguments, variables: Vec::new(), threads: Some(true) })
	}
}

fn found(program: &Path, option: &str) -> Result<PathBuf> {
	let paths = std::env::var_os("PATH").unwrap_or_default();
	let path = flashfork_templates::find(program.as_os_str(), &paths);
	let path = path.map_err(|e| {
		let user = rustix::process::geteuid().as_raw();
		let cure = match e.to_string().contains("Permission denied") {
			true => {
				format!("user {user}, as whom functions run, can't reach it: put it elsewhere, or name another --user")
			}
			false => format!("start the server with {option}"),
		};
		ApiError::not_ready(format!("{e}: {cure}"))
	})?;
	// Its links stay, for an environment of Python is known by its own.
	Ok(std::path::absolute(path)?)
}
