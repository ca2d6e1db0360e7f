//! A server of functions.

use std::{
	ffi::OsStr,
	fs::{File, Permissions, set_permissions},
	io::{BufRead, BufReader},
	os::unix::fs::PermissionsExt,
	process::Child,
};

use crate::{
	prelude::*,
	subjects::{
		command::{apart, last_line},
		guard::Guard,
	},
};

/// Seconds that a call may take.
const PATIENCE: &str = "60";

/// One that runs, until this is dropped or the experiment is killed.
pub struct Server {
	process: Child,
	guard: Option<Guard>,
	/// Host and port.
	pub address: String,
	/// Functions are written there. Its state is there, too, and what it says.
	pub work: WorkDir,
	flashfork: PathBuf,
}

impl Server {
	/// Starts one with these options besides. Of /tmp each call has its own, so its state lies elsewhere.
	pub fn start(flashfork: PathBuf, python: &Path, options: &[&OsStr]) -> Result<Self> {
		let work = WorkDir::new(Some(Path::new("/var/tmp")))?;
		let doing = "start flashfork serve";
		// Started by root it becomes another user.
		set_permissions(work.path(), Permissions::from_mode(0o711)).or_cant(doing)?;
		let said = work.path().join("said");
		let errors = File::create(&said).or_cant(doing)?;
		let mut command = apart(&flashfork);
		command.args(["serve", "--listen", "127.0.0.1:0", "--python"]).arg(python).args(options);
		command.arg("--state").arg(work.path().join("state"));
		let mut guard = Guard::start()?;
		let mut process = command.stdout(Stdio::piped()).stderr(errors).spawn().or_cant(doing)?;
		guard.watch(process.id())?;
		let mut line = String::new();
		let told = process.stdout.take().map(|told| BufReader::new(told).read_line(&mut line));
		told.transpose().or_cant(doing)?;
		let address = line.trim_end().rsplit_once("http://").map(|(_, address)| address.to_owned());
		let server = Self { process, guard: Some(guard), address: address.unwrap_or_default(), work, flashfork };
		if server.address.is_empty() {
			let said = std::fs::read(said).unwrap_or_default();
			return Err(unable!("{}", last_line(&said, "flashfork serve does not start")));
		}
		Ok(server)
	}

	/// Deploys what is in a directory, under its name.
	pub fn deploy(&self, code: &Path, handler: &str) -> Result {
		let mut deploy = apart(&self.flashfork);
		deploy.args(["deploy", "--timeout", PATIENCE, "--endpoint", &self.address, "--handler", handler]).arg(code);
		let done = deploy.output().or_cant("start flashfork deploy")?;
		if done.status.success() {
			Ok(())
		} else {
			Err(unable!("{}", last_line(&done.stderr, "flashfork deploy failed")))
		}
	}
}

impl Drop for Server {
	fn drop(&mut self) {
		// This ends the process, whose directory is removed afterwards.
		drop(self.guard.take());
		let _ = self.process.wait();
	}
}
