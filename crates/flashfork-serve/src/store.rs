//! Functions on disk: `functions/OWNER/NAME` is a configuration, which names a directory `code/…` beside it.

use crate::error::{ApiError, Result};
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{Cursor, Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

/// Most bytes of a function's files, unpacked, and most files: those of AWS, and enough.
const MOST_BYTES: u64 = 250 << 20;
const MOST_FILES: usize = 30_000;

/// What a function is, in AWS's words; secrets are ours.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub struct Config {
    pub function_name: String,
    #[serde(default = "handler")]
    pub handler: String,
    /// Seconds that a call may take.
    #[serde(default = "timeout")]
    pub timeout: u64,
    /// Megabytes that a process of a call may have beside what the template has.
    #[serde(default = "memory")]
    pub memory_size: u64,
    #[serde(default)]
    pub environment: Environment,
    /// Variables that calls have, and the template doesn't.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub secrets: BTreeMap<String, String>,
    /// Of the package: SHA-256, hexadecimal.
    #[serde(default)]
    pub code_sha256: String,
}

/// AWS's shape of an environment.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub struct Environment {
    #[serde(default)]
    pub variables: BTreeMap<String, String>,
}

fn handler() -> String {
    "lambda_function.lambda_handler".into()
}
fn timeout() -> u64 {
    3
}
fn memory() -> u64 {
    512
}

impl Config {
    /// As whoever asks may see it.
    pub fn shown(&self, owner: &str) -> serde_json::Value {
        let mut shown = serde_json::to_value(self).unwrap_or_default();
        shown["Secrets"] = self.secrets.keys().cloned().collect();
        shown["FunctionArn"] = self.arn(owner).into();
        shown["Version"] = "$LATEST".into();
        shown["State"] = "Active".into();
        shown
    }

    pub fn arn(&self, owner: &str) -> String {
        format!("arn:aws:lambda:local:{owner}:function:{}", self.function_name)
    }

    fn check(&self) -> Result<()> {
        if !(1..=900).contains(&self.timeout) || !(16..=1 << 20).contains(&self.memory_size) {
            return Err(ApiError::invalid("Timeout is 1 to 900 seconds, MemorySize 16 megabytes to a terabyte"));
        }
        if self.handler.starts_with('-') || self.handler.contains('\0') || self.handler.len() > 256 {
            return Err(ApiError::invalid("Handler is MODULE.FUNCTION"));
        }
        let all = || self.environment.variables.iter().chain(&self.secrets);
        let plain = |name: &str| {
            !name.is_empty() && name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_') && !name.starts_with("LD_")
        };
        if !all().all(|(name, value)| plain(name) && !value.contains('\0')) {
            return Err(ApiError::invalid("names of variables are letters, digits and '_', and don't begin with LD_"));
        }
        Ok(())
    }
}

/// The function that a request names, also by its ARN or with `:$LATEST`.
pub fn name(asked: &str) -> Result<&str> {
    let name = asked.strip_suffix(":$LATEST").unwrap_or(asked);
    let name = match name.rsplit_once(":function:") {
        Some((before, name)) if before.starts_with("arn:aws:lambda:") => name,
        _ => name,
    };
    let plain = |b: u8| b.is_ascii_alphanumeric() || b == b'_' || b == b'-';
    if (1..=64).contains(&name.len()) && name.bytes().all(plain) && !name.starts_with('-') {
        Ok(name)
    } else {
        Err(ApiError::invalid("the name of a function is 1 to 64 letters, digits, '_' and '-'"))
    }
}

/// The server's directory, as far as functions are in it.
pub struct Store {
    pub state: PathBuf,
}

impl Store {
    fn owner(&self, owner: &str) -> PathBuf {
        self.state.join("functions").join(owner)
    }

    /// Where the files of a function's package are.
    pub fn code(&self, owner: &str, config: &Config) -> PathBuf {
        self.owner(owner).join("code").join(format!("{}-{}", config.function_name, config.code_sha256))
    }

    /// Unpacks it, and adds to the configuration what the package is.
    pub fn unpack(&self, owner: &str, mut config: Config, package: &[u8]) -> Result<Config> {
        config.code_sha256 = hex(&Sha256::digest(package));
        config.check()?;
        name(&config.function_name)?;
        let code = self.code(owner, &config);
        if !code.is_dir() {
            let new = code.with_extension("new");
            let _ = fs::remove_dir_all(&new);
            fs::create_dir_all(&new)?;
            if let Err(e) = unpack(package, &new) {
                let _ = fs::remove_dir_all(&new);
                return Err(e);
            }
            fs::rename(&new, &code)?;
        }
        Ok(config)
    }

    /// From now on the function is this one.
    pub fn put(&self, owner: &str, config: &Config) -> Result<()> {
        let text = serde_json::to_vec(config).map_err(|e| ApiError::service(e.to_string()))?;
        Ok(write(&self.owner(owner).join(&config.function_name), &text)?)
    }

    /// Forgets it.
    pub fn remove(&self, owner: &str, name: &str) -> Result<()> {
        Ok(fs::remove_file(self.owner(owner).join(name))?)
    }

    /// Removes packages of this function's but these.
    pub fn tidy(&self, owner: &str, name: &str, keep: &[&Config]) {
        let keep: Vec<_> = keep.iter().map(|config| self.code(owner, config)).collect();
        let entries = fs::read_dir(self.owner(owner).join("code")).into_iter().flatten().flatten();
        for path in entries.map(|entry| entry.path()) {
            let of = path.file_name().and_then(|file| file.to_str()?.rsplit_once('-').map(|(of, _)| of.to_owned()));
            if of.as_deref() == Some(name) && !keep.contains(&path) {
                let _ = fs::remove_dir_all(path);
            }
        }
    }

    /// All that there are, with their owners.
    pub fn all(&self) -> Result<Vec<(String, Config)>> {
        let mut all = Vec::new();
        let functions = self.state.join("functions");
        fs::create_dir_all(&functions)?;
        for owner in fs::read_dir(functions)?.flatten() {
            for file in fs::read_dir(owner.path())?.flatten().filter(|file| file.path().is_file()) {
                let (owner, path) = (owner.file_name().to_string_lossy().into_owned(), file.path());
                match serde_json::from_slice(&fs::read(&path)?) {
                    Ok(config) => all.push((owner, config)),
                    Err(e) => tracing::error!("{} is left out: {e}", path.display()),
                }
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

/// Lower case.
pub fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|b| format!("{b:02x}")).collect()
}

fn unpack(package: &[u8], into: &Path) -> Result<()> {
    let bad = |why: &str| ApiError::invalid(format!("the package is refused: {why}"));
    let mut archive = zip::ZipArchive::new(Cursor::new(package)).map_err(|e| bad(&e.to_string()))?;
    if archive.len() > MOST_FILES {
        return Err(bad("it has more than 30,000 files"));
    }
    let mut left = MOST_BYTES;
    for i in 0..archive.len() {
        let file = archive.by_index(i).map_err(|e| bad(&e.to_string()))?;
        let Some(name) = file.enclosed_name().filter(|name| !name.as_os_str().is_empty()) else {
            return Err(bad("it has a file that lies outside of it"));
        };
        let mode = file.unix_mode().unwrap_or(0o644);
        if ![0, libc::S_IFREG, libc::S_IFDIR].contains(&(mode & libc::S_IFMT)) {
            return Err(bad("it has a link or a device, and may have plain files only"));
        }
        let path = into.join(name);
        if file.is_dir() {
            fs::create_dir_all(path)?;
            continue;
        }
        if let Some(above) = path.parent() {
            fs::create_dir_all(above)?;
        }
        let executable = if mode & 0o100 != 0 { 0o755 } else { 0o644 };
        let out = File::options().write(true).create_new(true).mode(executable).open(&path);
        let mut out = out.map_err(|e| bad(&format!("{}: {e}", path.display())))?;
        // What it claims to be unpacked is not believed.
        let written = std::io::copy(&mut file.take(left + 1), &mut out).map_err(|e| bad(&e.to_string()))?;
        left = left.checked_sub(written).ok_or_else(|| bad("it unpacks to more than 250 MB"))?;
    }
    Ok(())
}

/// Packs a directory; links are refused.
pub fn pack(directory: &Path) -> std::io::Result<Vec<u8>> {
    let mut archive = zip::ZipWriter::new(Cursor::new(Vec::new()));
    let mut waiting = vec![directory.to_owned()];
    while let Some(here) = waiting.pop() {
        for entry in fs::read_dir(here)? {
            let entry = entry?;
            let (path, kind) = (entry.path(), entry.file_type()?);
            let name = path.strip_prefix(directory).unwrap_or(&path).to_string_lossy().into_owned();
            if kind.is_dir() && entry.file_name() != "__pycache__" {
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
