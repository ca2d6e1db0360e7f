//! Functions on disk: `functions/OWNER:NAME` is a configuration, and `code/OWNER:NAME/ID` has the files of its package.

use crate::{
	error::{ApiError, Result},
	lease::{Lease, Leases},
	pool::uuid,
};
use base64::{Engine, prelude::BASE64_STANDARD as BASE64};
use flashfork_proto::function::BOOTSTRAP;
use ring::digest;
use serde::{Deserialize, Serialize};
use std::{
	collections::{BTreeMap, BTreeSet},
	fmt::Display,
	fs::{self, File},
	io::{Cursor, ErrorKind, Read, Write},
	os::unix::fs::{OpenOptionsExt, PermissionsExt},
	path::{Component, Path, PathBuf},
};

/// Most bytes of a function's files, unpacked, and most files and directories: those of AWS, and enough.
const MOST_BYTES: u64 = 250 << 20;
const MOST_FILES: usize = 30_000;
/// Most names in the path of a file.
const MOST_DEEP: usize = 32;
/// What AWS calls a runtime that the package brings along.
const PROVIDED: &str = "provided";
/// Most bytes of variables and secrets, as all programs there get them (`ARG_MAX` is 2 MB).
const MOST_VARIABLES: usize = 64 << 10;

/// What a function is, in AWS's words; secrets are ours.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub struct Config {
	pub function_name: String,
	/// Its language, with any version: functions run in the server's; in a virtual machine `provided`. None in what
	/// older servers have written, which is Python's.
	#[serde(default)]
	pub runtime: Option<String>,
	#[serde(default)]
	pub handler: String,
	/// Seconds that a call may take.
	#[serde(default = "timeout")]
	pub timeout: u64,
	/// Megabytes that a process of a call may have beside what the template has; a virtual machine has them in all.
	#[serde(default = "memory")]
	pub memory_size: u64,
	/// Calls that a clone may take, one after the other.
	#[serde(default = "reuse")]
	pub reuse: u32,
	#[serde(default)]
	pub environment: Environment,
	/// The template of the VM daemon's that it is made of; `None` for one that is a process.
	#[serde(default, skip_serializing_if = "Option::is_none")]
	pub vm: Option<String>,
	/// Variables that calls have, and the template doesn't.
	#[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
	pub secrets: BTreeMap<String, String>,
	/// Of the package: whatever is deployed has its own.
	#[serde(default)]
	pub revision_id: String,
	/// The package's SHA-256, in base64.
	#[serde(default)]
	pub code_sha256: String,
	/// Whose it is: not for a request to say.
	#[serde(default)]
	pub owner: String,
}

/// What a function is written in.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Language {
	Python,
	Node,
	Java,
	/// A program that the package brings along.
	Provided,
}

impl Language {
	const ALL: [Language; 4] = [Language::Python, Language::Node, Language::Java, Language::Provided];

	/// As runtimes are named after it, with a version behind it.
	fn name(self) -> &'static str {
		match self {
			Language::Python => "python",
			Language::Node => "nodejs",
			Language::Java => "java",
			Language::Provided => PROVIDED,
		}
	}

	/// That of a runtime.
	fn of(runtime: &str) -> Option<Language> {
		Language::ALL.into_iter().find(|language| runtime.starts_with(language.name()))
	}
}

/// AWS's shape of an environment.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub struct Environment {
	#[serde(default)]
	pub variables: BTreeMap<String, String>,
}

fn timeout() -> u64 {
	3
}
fn memory() -> u64 {
	512
}
fn reuse() -> u32 {
	1
}

impl Config {
	/// As whoever asks may see it.
	pub fn shown(&self) -> serde_json::Value {
		let mut shown = serde_json::to_value(self).unwrap_or_default();
		shown["Secrets"] = self.secrets.keys().cloned().collect();
		shown["FunctionArn"] = self.arn().into();
		shown["Version"] = LATEST.into();
		shown["State"] = "Active".into();
		shown
	}

	/// Where the files of its package are in the server's directory.
	pub fn code(&self, state: &Path) -> PathBuf {
		state.join("code").join(self.full_name()).join(&self.revision_id)
	}

	pub fn language(&self) -> Language {
		Language::of(self.runtime.as_deref().unwrap_or_default()).unwrap_or(Language::Python)
	}

	/// Says what the request left open, by the files of the package.
	fn complete(&mut self, code: &Path) -> Result<()> {
		let program = fs::metadata(code.join(BOOTSTRAP)).ok().filter(fs::Metadata::is_file);
		const PYTHON: &str = "lambda_function.lambda_handler";
		const NODE: &str = "index.handler";
		let has = |handler: &str, extensions: &[&str]| {
			let (folder, name) = handler.rsplit_once('/').unwrap_or(("", handler));
			let module = Path::new(folder).join(name.split('.').next().unwrap_or_default());
			// Nothing is looked for elsewhere.
			let plain = module.components().all(|part| matches!(part, Component::Normal(_)));
			plain && extensions.iter().any(|extension| code.join(&module).with_extension(extension).is_file())
		};
		let either = |default| if self.handler.is_empty() { default } else { &*self.handler };
		let class = self.handler.split("::").next().unwrap_or_default().replace('.', "/");
		let language = match () {
			() if self.vm.is_some() => Language::Provided,
			() if has(either(PYTHON), &["py"]) => Language::Python,
			() if has(either(NODE), &["js", "mjs", "cjs"]) => Language::Node,
			() if self.handler.contains("::") || has(&class, &["class"]) => Language::Java,
			() if program.is_some() => Language::Provided,
			() => Language::Python,
		};
		self.runtime.get_or_insert_with(|| language.name().into());
		let runs = program.is_some_and(|program| program.permissions().mode() & 0o100 != 0);
		if self.language() == Language::Provided && !runs {
			let why = "the package has no executable program bootstrap (chmod +x, which a zip file keeps)";
			return Err(ApiError::invalid(why));
		}
		if self.handler.is_empty() {
			self.handler = match self.language() {
				Language::Python => PYTHON,
				Language::Node => NODE,
				Language::Java => return Err(ApiError::invalid("Handler is missing: in Java it is CLASS::METHOD")),
				// It need not look at any.
				Language::Provided => return Ok(()),
			}
			.into();
		}
		Ok(())
	}

	/// Its name among those of all owners.
	pub fn full_name(&self) -> String {
		format!("{}:{}", self.owner, self.function_name)
	}

	/// Its name as AWS has it.
	pub fn arn(&self) -> String {
		format!("arn:aws:lambda:local:{}:function:{}", self.owner, self.function_name)
	}

	/// Whether it may be what another node has put into the bucket.
	pub fn check_known(&self) -> Result<()> {
		if ![&self.owner, &self.function_name, &self.revision_id].iter().all(|name| is_plain(name)) {
			return Err(ApiError::invalid("it has a name that is none"));
		}
		self.check()
	}

	/// What functions in virtual machines can't have.
	fn check_machine(&self) -> Result<()> {
		let why = if !self.runtime.iter().all(|name| name.starts_with(PROVIDED)) {
			"Runtime is provided in a virtual machine, which has its own: give none"
		} else if !self.secrets.is_empty() {
			"a function in a virtual machine can have no secrets: its runtime is started once, and they would be in its template"
		} else if self.reuse != 1 {
			"each call of a function in a virtual machine has a new clone: Reuse is for functions in processes"
		} else {
			return Ok(());
		};
		Err(ApiError::invalid(why))
	}

	/// Whether it may be what a request asks for.
	pub fn check(&self) -> Result<()> {
		if !(1..=900).contains(&self.timeout) || !(16..=1 << 20).contains(&self.memory_size) {
			return Err(ApiError::invalid("Timeout is 1 to 900 seconds, MemorySize 16 megabytes to a terabyte"));
		}
		if self.reuse == 0 {
			return Err(ApiError::invalid("Reuse is 1, for a new clone for each call, or more"));
		}
		if self.handler.starts_with('-') || self.handler.contains('\0') || self.handler.len() > 256 {
			return Err(ApiError::invalid("Handler is MODULE.FUNCTION"));
		}
		if self.vm.is_some() {
			self.check_machine()?;
		} else if !self.runtime.iter().all(|name| Language::of(name).is_some()) {
			return Err(ApiError::invalid(
				"Runtime is python, nodejs or java, with any version: functions run in the server's; or provided",
			));
		}
		let all = || self.environment.variables.iter().chain(&self.secrets);
		let plain = |name: &str| {
			!name.is_empty() && name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_') && !name.starts_with("LD_")
		};
		let ours = |name: &str| name.starts_with("AWS_LAMBDA_") || ["_HANDLER", "LAMBDA_TASK_ROOT"].contains(&name);
		if let Some((name, _)) = all().find(|(name, _)| ours(name)) {
			return Err(ApiError::invalid(format!("{name} is a variable that the server sets")));
		}
		if all().map(|(name, value)| name.len() + value.len()).sum::<usize>() > MOST_VARIABLES {
			return Err(ApiError::invalid("variables and secrets have 64 KB at most, with their names"));
		}
		if !all().all(|(name, value)| plain(name) && !value.contains('\0')) {
			return Err(ApiError::invalid("names of variables are letters, digits and '_', and don't begin with LD_"));
		}
		Ok(())
	}
}

/// Whether it may be the name of a function or an owner, or the id of a key.
pub fn is_plain(name: &str) -> bool {
	let plain = |b: u8| b.is_ascii_alphanumeric() || b == b'_' || b == b'-';
	(1..=64).contains(&name.len()) && name.bytes().all(plain) && !name.starts_with('-')
}

/// The version that all functions have.
pub const LATEST: &str = "$LATEST";

/// The function that a request names, also by its ARN or a part of that, or with `:$LATEST`, and whose it is if that is
/// said.
pub fn name(asked: &str) -> Result<(Option<&str>, &str)> {
	let (owner, name, version) = match asked.split(':').collect::<Vec<_>>()[..] {
		["arn", "aws", "lambda", _, owner, "function", name] | [owner, "function", name] => (Some(owner), name, LATEST),
		["arn", "aws", "lambda", _, owner, "function", name, version] | [owner, "function", name, version] => {
			(Some(owner), name, version)
		}
		[name, version] => (None, name, version),
		_ => (None, asked, LATEST),
	};
	match is_plain(name) {
		true if version == LATEST => Ok((owner, name)),
		true => Err(ApiError::no_version(name, version)),
		false => Err(ApiError::invalid("the name of a function is 1 to 64 letters, digits, '_' and '-'")),
	}
}

/// The server's directory, as far as functions are in it.
#[derive(Clone)]
pub struct Store {
	state: PathBuf,
	leases: Leases,
}

impl Store {
	pub fn new(state: PathBuf) -> Store {
		// What was being unpacked when the last server ended.
		let _ = fs::remove_dir_all(state.join("fetched"));
		Store { state, leases: Leases::default() }
	}

	/// For as long as the function's files are needed.
	pub fn lease(&self, config: &Config) -> Lease {
		self.leases.take(config.code(&self.state))
	}

	fn function(&self, config: &Config) -> PathBuf {
		self.state.join("functions").join(config.full_name())
	}

	/// Unpacks it, and adds to the configuration which that is, and whose.
	pub fn unpack(&self, mut config: Config, owner: String, package: &[u8]) -> Result<Config> {
		config.check()?;
		let (of, name) = name(&config.function_name)?;
		if of.is_some_and(|of| of != owner) {
			return Err(ApiError::denied("the function would be another owner's"));
		}
		(config.function_name, config.owner, config.revision_id) = (name.to_owned(), owner, uuid());
		config.code_sha256 = digest(package);
		let code = config.code(&self.state);
		fs::create_dir_all(&code)?;
		let done = unpack(package, &code).and_then(|()| Ok(sync_above(&code)?));
		let done = done.and_then(|()| config.complete(&code));
		done.inspect_err(|_| drop(fs::remove_dir_all(&code)))?;
		Ok(config)
	}

	/// Unpacks what another node has unpacked before, unless it is here.
	pub fn fetched(&self, config: &Config, package: &[u8]) -> Result<()> {
		config.check()?;
		if digest(package) != config.code_sha256 {
			return Err(ApiError::service("the package is not what was deployed: its SHA-256 is another one"));
		}
		let new = self.state.join("fetched").join(&config.revision_id);
		let _ = fs::remove_dir_all(&new);
		fs::create_dir_all(&new)?;
		fs::create_dir_all(self.state.join("code").join(config.full_name()))?;
		let code = config.code(&self.state);
		let renamed = || fs::rename(&new, &code).and_then(|()| sync_above(&code));
		let done = unpack(package, &new).and_then(|()| Ok(renamed()?));
		done.inspect_err(|_| drop(fs::remove_dir_all(&new)))
	}

	/// Whose packages there are, by functions' full names.
	pub fn names(&self) -> Vec<String> {
		let entries = fs::read_dir(self.state.join("code")).into_iter().flatten().flatten();
		entries.filter_map(|entry| entry.file_name().into_string().ok()).collect()
	}

	/// From now on the function is this one.
	pub fn put(&self, config: &Config) -> Result<()> {
		let text = serde_json::to_vec(config).map_err(ApiError::service)?;
		Ok(write(&self.function(config), &text)?)
	}

	/// Whether there is a configuration of this function, which may make no sense.
	pub fn has(&self, name: &str) -> bool {
		self.state.join("functions").join(name).exists()
	}

	/// Forgets it.
	pub fn remove(&self, config: &Config) -> Result<()> {
		fs::remove_file(self.function(config))?;
		File::open(self.state.join("functions"))?.sync_all()?;
		self.tidy(&config.full_name(), &[]);
		Ok(())
	}

	/// Removes packages of a function's but these, and those that calls still need when they have ended.
	pub fn tidy(&self, name: &str, keep: &[&Config]) {
		let keep: Vec<_> = keep.iter().map(|config| config.code(&self.state)).collect();
		let entries = fs::read_dir(self.state.join("code").join(name)).into_iter().flatten().flatten();
		for path in entries.map(|entry| entry.path()).filter(|path| !keep.contains(path)) {
			self.leases.remove(&path);
		}
		// If there is nothing in it.
		let _ = fs::remove_dir(self.state.join("code").join(name));
	}

	/// All that there are.
	pub fn all(&self) -> Result<Vec<Config>> {
		let (mut all, functions) = (Vec::new(), self.state.join("functions"));
		fs::create_dir_all(&functions)?;
		// One with an extension was being written when the last server ended.
		let paths = fs::read_dir(functions)?.flatten().map(|entry| entry.path());
		for path in paths {
			if path.extension().is_some() {
				fs::remove_file(&path)?;
				continue;
			}
			match serde_json::from_slice(&fs::read(&path)?) {
				Ok(config) => all.push(config),
				Err(e) => tracing::error!("{} is left out: {e}", path.display()),
			}
		}
		Ok(all)
	}
}

/// Writes a file whole, or not at all.
pub fn write(path: &Path, bytes: &[u8]) -> std::io::Result<()> {
	let new = path.with_extension("new~");
	let mut file = File::options().write(true).create(true).truncate(true).mode(0o600).open(&new)?;
	file.write_all(bytes)?;
	file.sync_all()?;
	fs::rename(&new, path)?;
	File::open(path.parent().unwrap_or(Path::new("/")))?.sync_all()
}

fn digest(package: &[u8]) -> String {
	BASE64.encode(digest::digest(&digest::SHA256, package))
}

/// Has files and directories outlive a loss of power. Each waits for the disk, and many may wait at a time.
fn sync(all: &[PathBuf]) -> std::io::Result<()> {
	const AT_A_TIME: usize = 16;
	std::thread::scope(|scope| {
		let some = all.chunks(all.len().div_ceil(AT_A_TIME).max(1));
		let each = |some: &[PathBuf]| some.iter().try_for_each(|path| File::open(path)?.sync_all());
		let all: Vec<_> = some.map(|some| scope.spawn(move || each(some))).collect();
		all.into_iter().try_for_each(|some| some.join().unwrap_or_else(|_| Err(std::io::Error::other("a thread died"))))
	})
}

/// The same of the entries that lead to a package, from the server's directory on.
fn sync_above(code: &Path) -> std::io::Result<()> {
	sync(&code.ancestors().skip(1).take(3).map(Path::to_owned).collect::<Vec<_>>())
}

/// How many files a package says that it has, in its end record (APPNOTE.TXT, 4.3.16); as many as can be where another
/// record would say that, which so small a package doesn't need.
fn said_files(package: &[u8]) -> Option<usize> {
	const LEN: usize = 22;
	let last = package.len().checked_sub(LEN)?;
	let first = last.saturating_sub(usize::from(u16::MAX));
	let said = |record: &[u8]| {
		let elsewhere = record[8..12].chunks(2).any(|field| field == [0xff; 2])
			|| record[12..20].chunks(4).any(|field| field == [0xff; 4]);
		if elsewhere { usize::MAX } else { usize::from(u16::from_le_bytes([record[10], record[11]])) }
	};
	let records = (first..=last).map(|at| &package[at..at + LEN]).filter(|record| record.starts_with(b"PK\x05\x06"));
	// In the comment of one may be what looks like another.
	records.map(said).max()
}

/// Unpacks it, onto the disk.
fn unpack(package: &[u8], into: &Path) -> Result<()> {
	let bad = |why: &dyn Display| ApiError::invalid(format!("the package is refused: {why}"));
	// Before all of them are read into memory.
	if said_files(package).is_some_and(|count| count > MOST_FILES) {
		return Err(bad(&"it has more than 30,000 files"));
	}
	let clash = |e: std::io::Error| match e.kind() {
		ErrorKind::AlreadyExists | ErrorKind::NotADirectory => bad(&"it has a file and a directory of one name"),
		_ => e.into(),
	};
	let broken = |e: std::io::Error| match e.kind() {
		ErrorKind::StorageFull | ErrorKind::QuotaExceeded | ErrorKind::FileTooLarge => e.into(),
		_ => bad(&e),
	};
	let mut archive = zip::ZipArchive::new(Cursor::new(package)).map_err(|e| bad(&e))?;
	if archive.len() > MOST_FILES {
		return Err(bad(&"it has more than 30,000 files"));
	}
	let (mut left, mut directories, mut made) = (MOST_BYTES, BTreeSet::new(), vec![into.to_owned()]);
	for i in 0..archive.len() {
		let file = archive.by_index(i).map_err(|e| bad(&e))?;
		let Some(name) = file.enclosed_name().filter(|name| !name.as_os_str().is_empty()) else {
			return Err(bad(&"it has a file that lies outside of it"));
		};
		let above = name.ancestors().skip(usize::from(!file.is_dir())).filter(|path| !path.as_os_str().is_empty());
		directories.extend(above.map(Path::to_owned));
		if name.components().count() > MOST_DEEP || directories.len() > MOST_FILES {
			return Err(bad(&"its files lie in too many directories"));
		}
		let mode = file.unix_mode().unwrap_or(0o644);
		if ![0, libc::S_IFREG, libc::S_IFDIR].contains(&(mode & libc::S_IFMT)) {
			return Err(bad(&"it has a link or a device, and may have plain files only"));
		}
		let path = into.join(name);
		if file.is_dir() {
			fs::create_dir_all(path).map_err(clash)?;
			continue;
		}
		if let Some(above) = path.parent() {
			fs::create_dir_all(above).map_err(clash)?;
		}
		let executable = if mode & 0o100 != 0 { 0o755 } else { 0o644 };
		let out = File::options().write(true).create_new(true).mode(executable).open(&path);
		let mut out = out.map_err(|e| match e.kind() {
			ErrorKind::StorageFull | ErrorKind::QuotaExceeded => e.into(),
			_ => bad(&format_args!("{}: {e}", path.display())),
		})?;
		// What it claims to be unpacked is not believed.
		let written = std::io::copy(&mut file.take(left + 1), &mut out).map_err(broken)?;
		left = left.checked_sub(written).ok_or_else(|| bad(&"it unpacks to more than 250 MB"))?;
		made.push(path);
	}
	made.extend(directories.into_iter().map(|path| into.join(path)));
	Ok(sync(&made)?)
}

/// Packs a directory; links are refused.
pub fn pack(directory: &Path) -> std::io::Result<Vec<u8>> {
	let mut archive = zip::ZipWriter::new(Cursor::new(Vec::new()));
	let mut waiting = vec![directory.to_owned()];
	while let Some(here) = waiting.pop() {
		for entry in fs::read_dir(&here)? {
			let entry = entry?;
			let (path, kind) = (entry.path(), entry.file_type()?);
			let name = path.strip_prefix(directory).unwrap_or(&path).to_string_lossy().into_owned();
			// Of npm's, with links to what is run while developing.
			let tools = entry.file_name() == ".bin" && here.ends_with("node_modules");
			if kind.is_dir() && entry.file_name() != "__pycache__" && !tools {
				waiting.push(path);
			} else if kind.is_file() {
				let mode = std::os::unix::fs::PermissionsExt::mode(&entry.metadata()?.permissions());
				let options = zip::write::SimpleFileOptions::default().unix_permissions(mode & 0o777);
				archive.start_file(name, options).map_err(std::io::Error::other)?;
				std::io::copy(&mut File::open(path)?, &mut archive)?;
			} else if !kind.is_dir() {
				return Err(std::io::Error::other(format!("{name} is a link or a device: put a file in its place")));
			}
		}
	}
	Ok(archive.finish().map_err(std::io::Error::other)?.into_inner())
}
