//! What a template was made by, so that it can be made anew: the template keeps it, in a memfd.

use crate::{
	error::Error,
	name::Name,
	start::Strings,
	warm::{Moment, Ready, Warm},
};
use rustix::{
	fs::{FlockOperation, MemfdFlags, Mode, OFlags, flock, memfd_create},
	io::Errno,
	process::{Resource, getrlimit},
};
use std::{
	ffi::{OsStr, OsString},
	fs::File,
	io::{Read, Write},
	num::NonZeroU64,
	os::{
		fd::{AsRawFd, OwnedFd},
		unix::ffi::{OsStrExt, OsStringExt},
	},
	path::PathBuf,
	time::Duration,
};

/// A warm-up, in its own words.
#[derive(Clone, Debug, PartialEq)]
pub struct Recipe {
	pub command: Vec<OsString>,
	pub shim: PathBuf,
	pub directory: PathBuf,
	pub ready: Ready,
	pub threads: Option<Moment>,
	pub max_clones: Option<NonZeroU64>,
	pub renews: bool,
	pub environment: Strings,
}

impl Recipe {
	/// Of a warm-up that is about to start, in this process's working directory.
	pub fn of(warm: &Warm<'_>) -> Result<Recipe, Error> {
		let here = || std::env::current_dir().map_err(Error::Directory);
		Ok(Recipe {
			command: warm.command.clone(),
			shim: warm.shim.clone(),
			directory: warm.directory.clone().map_or_else(here, Ok)?,
			ready: warm.ready,
			threads: warm.threads.clone(),
			max_clones: warm.max_clones,
			renews: warm.renews,
			environment: warm.environment.clone(),
		})
	}

	/// Texts one behind the other, each with a NUL, which none of them has.
	fn bytes(&self) -> Vec<u8> {
		let ready = match self.ready {
			Ready::Auto => "auto",
			Ready::Main => "main",
			Ready::Call => "call",
			Ready::Runtime => "runtime",
		};
		let moment = self.threads.as_ref().map(Moment::word).unwrap_or_default();
		let max = self.max_clones.map_or(0, NonZeroU64::get).to_string();
		let (renews, words) = (u8::from(self.renews).to_string(), self.command.len().to_string());
		let head = [ready, &moment, &max, &renews, &words].map(OsString::from).into_iter();
		let paths = [&self.shim, &self.directory].map(|path| path.clone().into_os_string());
		let all = paths.into_iter().chain(head).chain(self.command.iter().chain(&self.environment.0).cloned());
		all.flat_map(|text| text.into_vec().into_iter().chain([0])).collect()
	}

	fn read(bytes: &[u8]) -> Option<Recipe> {
		let mut texts = bytes.strip_suffix(&[0])?.split(|b| *b == 0).map(OsStr::from_bytes);
		let (shim, directory) = (PathBuf::from(texts.next()?), PathBuf::from(texts.next()?));
		let ready = match texts.next()?.to_str()? {
			"auto" => Ready::Auto,
			"main" => Ready::Main,
			"call" => Ready::Call,
			"runtime" => Ready::Runtime,
			_ => return None,
		};
		let threads = match texts.next()?.to_str()? {
			"" => None,
			word => Some(Moment::of(word)?),
		};
		let mut number = || texts.next()?.to_str()?.parse::<u64>().ok();
		let (max, renews, words) = (number()?, number()?, number()?);
		let command: Vec<_> = texts.by_ref().take(usize::try_from(words).ok()?).map(OsStr::to_owned).collect();
		let environment = Strings(texts.map(OsStr::to_owned).collect());
		let (max_clones, renews) = (NonZeroU64::new(max), renews != 0);
		(!command.is_empty()).then_some(Recipe {
			command,
			shim,
			directory,
			ready,
			threads,
			max_clones,
			renews,
			environment,
		})
	}

	/// For the template to keep. It is empty where a limit on the size of files, which goes for memfds too, leaves no
	/// room.
	pub fn file(&self) -> Result<File, Error> {
		let made = memfd_create(c"flashfork-recipe", MemfdFlags::CLOEXEC);
		let mut file = File::from(made.map_err(|e| Error::Start(e.into()))?);
		let bytes = self.bytes();
		if getrlimit(Resource::Fsize).current.is_none_or(|limit| bytes.len() as u64 <= limit) {
			file.write_all(&bytes).map_err(Error::Start)?;
		}
		Ok(file)
	}
}

/// A template's, if it has one, and the lock of whoever makes it anew, which ends with him.
#[derive(Debug)]
pub struct Kept {
	pub recipe: Option<Recipe>,
	file: File,
}

impl Kept {
	pub fn of(descriptor: &OwnedFd) -> std::io::Result<Kept> {
		// Opened anew: a lock belongs to what was opened, which all callers would share otherwise.
		let path = format!("/proc/self/fd/{}", descriptor.as_raw_fd());
		let file = rustix::fs::open(path, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())?;
		let (mut file, mut bytes) = (File::from(file), Vec::new());
		file.read_to_end(&mut bytes)?;
		Ok(Kept { recipe: Recipe::read(&bytes), file })
	}

	/// Whether this is that of the same template.
	pub fn is(&self, other: &Kept) -> bool {
		let file = |kept: &Kept| rustix::fs::fstat(&kept.file).map(|stat| (stat.st_dev, stat.st_ino)).ok();
		file(self).is_some_and(|own| file(other) == Some(own))
	}

	/// False: somebody else makes it anew.
	pub fn lock(&self, name: &Name) -> Result<bool, Error> {
		match flock(&self.file, FlockOperation::NonBlockingLockExclusive) {
			Ok(()) => Ok(true),
			Err(Errno::WOULDBLOCK | Errno::INTR) => Ok(false),
			Err(e) => Err(Error::Connect { name: name.clone(), source: e.into() }),
		}
	}
}

impl Moment {
	fn of(word: &str) -> Option<Moment> {
		Some(match word.split_once(':').map_or((word, None), |(kind, rest)| (kind, Some(rest))) {
			("itself", None) => Moment::Itself,
			("listen", None) => Moment::Listen(None),
			("listen", Some(port)) => Moment::Listen(Some(port.parse().ok()?)),
			("idle", Some(span)) => Moment::Idle(Duration::try_from_secs_f64(span.parse().ok()?).ok()?),
			("line", Some(pattern)) => Moment::Line(pattern.into()),
			_ => return None,
		})
	}
}

#[cfg(test)]
mod tests;
