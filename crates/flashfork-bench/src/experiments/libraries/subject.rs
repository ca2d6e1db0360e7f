//! The worker of `bench libraries`: a program with libraries, which is forked.

use std::{
	ffi::{CStr, CString, c_long, c_void},
	os::unix::ffi::OsStrExt,
};

use crate::{
	prelude::*,
	subjects::engine::{self, Pages},
};

/// Bytes of memory besides that are sealed, so that a seal has something to do either way.
const BESIDES: usize = 4 << 20;

/// What becomes of the libraries' data.
#[derive(Clone, Copy, PartialEq, Eq, Serialize, Deserialize, strum::AsRefStr, strum::VariantArray)]
#[strum(serialize_all = "lowercase")]
pub enum Way {
	/// Nothing, and nothing else is sealed.
	#[strum(serialize = "fork")]
	Plain,
	/// It is left out of a seal.
	#[strum(serialize = "left out")]
	SealedWithout,
	Sealed,
}

/// What a clone does.
#[derive(Clone, Copy, PartialEq, Eq, Serialize, Deserialize, strum::AsRefStr, strum::VariantArray)]
pub enum Task {
	#[strum(serialize = "ends")]
	End,
	/// It calls into every library first.
	#[strum(serialize = "uses each")]
	Use,
}

#[derive(Clone, Serialize, Deserialize)]
pub struct Spec {
	pub way: Way,
	pub libraries: Vec<PathBuf>,
	pub cpu: usize,
}

#[derive(Clone, Serialize, Deserialize)]
pub struct Ready {
	/// Bytes sealed.
	pub sealed: u64,
	/// Mappings of the process.
	pub mappings: usize,
}

/// `count` clones, after one that isn't counted.
#[derive(Clone, Serialize, Deserialize)]
pub struct Ask {
	pub task: Task,
	pub count: usize,
}

/// What is timed of a clone, in microseconds.
#[derive(Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Phase {
	Fork,
	/// From before it until the clone is reaped.
	Cycle,
}

/// Adds to a library's data, and says what was there.
type Use = unsafe extern "C" fn(c_long) -> c_long;

/// The program.
pub struct LibrariesSubject {
	method: Method,
	functions: Vec<Use>,
	_besides: Vec<u8>,
}

impl Subject for LibrariesSubject {
	const NAME: &'static str = "libraries";
	type Spec = Spec;
	type Ready = Ready;
	type Ask = Ask;
	type Reply = Visit<Phase>;

	fn prepare(spec: Spec) -> Result<(Self, Ready)> {
		pin::pin(spec.cpu)?;
		let functions = spec.libraries.iter().map(|path| load(path)).collect::<Result<Vec<_>, _>>()?;
		let besides = vec![1; BESIDES];
		if spec.way == Way::SealedWithout {
			functions.iter().try_for_each(|function| leave_out(*function))?;
		}
		let (method, sealed) = match spec.way {
			Way::Plain => (Method::Fork4k, 0),
			_ => (Method::Seal, engine::seal(Pages::Auto, 0)?.bytes),
		};
		let maps = std::fs::read_to_string("/proc/self/maps");
		let mappings = maps.or_cant("read the list of mappings")?.lines().count();
		Ok((Self { method, functions, _besides: besides }, Ready { sealed, mappings }))
	}

	fn answer(&mut self, ask: Ask) -> Result<Visit<Phase>> {
		self.clone_once(ask.task)?;
		let all: Vec<_> = (0..ask.count).map(|_| self.clone_once(ask.task)).collect::<Result<_>>()?;
		Ok(by_measure(all.into_iter().flatten()))
	}
}

impl LibrariesSubject {
	fn clone_once(&self, task: Task) -> Result<[(Phase, f64); 2]> {
		// SAFETY: the worker has one thread; the libraries are loaded, and nobody else runs in the clone.
		let cloned = unsafe {
			engine::in_clone(self.method, || match task {
				Task::End => 0,
				Task::Use => i32::from(!self.functions.iter().all(|function| function(1) == 1)),
			})
		}?;
		cloned.check(|| "using libraries".to_owned(), &[(1, "their data isn't its parent's")])?;
		Ok([(Phase::Fork, us(cloned.call)), (Phase::Cycle, us(cloned.whole))])
	}
}

/// Loads a library; gives its function.
fn load(path: &Path) -> Result<Use> {
	let failed = || unable!("{} can't be loaded", path.display());
	let name = CString::new(path.as_os_str().as_bytes()).map_err(|_| failed())?;
	// SAFETY: a library made for this, whose constructor fills its data; the function has this type in its source.
	unsafe {
		let handle = libc::dlopen(name.as_ptr(), libc::RTLD_NOW);
		if handle.is_null() {
			return Err(failed());
		}
		let function = libc::dlsym(handle, c"use_library".as_ptr());
		if function.is_null() {
			return Err(failed());
		}
		Ok(std::mem::transmute::<*mut c_void, Use>(function))
	}
}

/// Keeps the data of the library that has this function out of every seal.
fn leave_out(function: Use) -> Result {
	// SAFETY: the loader fills the structure, for which zeros are a value; the name lives as long as the library.
	let name = unsafe {
		let mut info: libc::Dl_info = std::mem::zeroed();
		if libc::dladdr(function as *const c_void, &raw mut info) == 0 {
			return Err(unable!("a library that was loaded is not to be found"));
		}
		CStr::from_ptr(info.dli_fname).to_string_lossy().into_owned()
	};
	let maps = std::fs::read_to_string("/proc/self/maps");
	let maps = maps.or_cant("read the list of mappings")?;
	let own: Vec<&str> = maps.lines().filter(|line| line.ends_with(&name)).collect();
	let address = |text: Option<&str>| text.and_then(|text| usize::from_str_radix(text, 16).ok());
	// Relocated pages and data lie behind the code.
	let code = own.iter().rposition(|line| line.contains(" r-xp ")).unwrap_or(0);
	let (first, last) = (own.get(code + 1), own.last());
	let start = address(first.and_then(|line| line.split('-').next()));
	let end = address(last.and_then(|line| line.split(['-', ' ']).nth(1)));
	let (Some(start), Some(end)) = (start, end) else {
		return Err(unable!("{name} is not mapped as libraries are"));
	};
	flashfork::exclude(start as *const u8, end - start).map_err(BenchError::unable)
}
