//! Keeps a model in a file, and refuses it on another host.

use super::CostModel;
use crate::{HostId, never_seal::Reason};
use serde::{Deserialize, Serialize};
use std::{
	io::{self, Write},
	path::{Path, PathBuf},
};

/// Why there is no cost model.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CostError {
	/// The file can't be read or written.
	#[error("can't {what} the cost model {}: {source}", path.display())]
	File {
		/// What was being done.
		what: &'static str,
		/// Which file.
		path: PathBuf,
		/// The error.
		source: io::Error,
	},
	/// The file holds something else.
	#[error("{} is not a cost model of this version ({why}); calibrate again", path.display())]
	Format {
		/// Which file.
		path: PathBuf,
		/// What doesn't fit.
		why: String,
	},
	/// The file holds the model of another host, or this one has changed.
	#[error("the cost model {} was measured on another host ({then}; this is {now}); calibrate again", path.display())]
	OtherHost {
		/// Which file.
		path: PathBuf,
		/// The host it was measured on.
		then: Box<HostId>,
		/// This host.
		now: Box<HostId>,
	},
	/// Measuring failed.
	#[error("can't calibrate the cost model: {0}")]
	Child(String),
	/// There was nothing to measure: the engine refused the memory it was tried on.
	#[error("can't calibrate the cost model, a seal is refused here: {0}")]
	Refused(Reason),
}

/// The form of the file; a change of its meaning changes the word.
const SCHEMA: &str = "flashfork.cost/2";

#[derive(Serialize, Deserialize)]
struct File<T> {
	schema: String,
	model: T,
}

impl CostModel {
	/// Reads a model that [`CostModel::save`] wrote on this host.
	///
	/// Errors: the file is missing or unreadable, is of another version, or comes from a host with another kernel, CPU
	/// model or mode of huge pages.
	pub fn load(path: impl AsRef<Path>) -> Result<CostModel, CostError> {
		load_for(path.as_ref(), HostId::read())
	}

	/// Writes the model to a file, whole or not at all. The directory must exist.
	pub fn save(&self, path: impl AsRef<Path>) -> Result<(), CostError> {
		let path = path.as_ref();
		let write = || {
			let dir = match path.parent() {
				Some(dir) if !dir.as_os_str().is_empty() => dir,
				_ => Path::new("."),
			};
			let mut file = tempfile::NamedTempFile::new_in(dir)?;
			let content = File { schema: SCHEMA.to_owned(), model: self };
			serde_json::to_writer_pretty(&mut file, &content)?;
			file.write_all(b"\n")?;
			file.persist(path).map_err(|e| e.error).map(drop)
		};
		write().map_err(|source| CostError::File { what: "write", path: path.to_owned(), source })
	}
}

fn load_for(path: &Path, now: HostId) -> Result<CostModel, CostError> {
	let file = |source| CostError::File { what: "read", path: path.to_owned(), source };
	let format = |why: String| CostError::Format { path: path.to_owned(), why };
	let text = std::fs::read(path).map_err(file)?;
	let content: File<serde_json::Value> = serde_json::from_slice(&text).map_err(|e| format(e.to_string()))?;
	if content.schema != SCHEMA {
		return Err(format(format!("its schema is {}, not {SCHEMA}", content.schema)));
	}
	let model: CostModel = serde_json::from_value(content.model).map_err(|e| format(e.to_string()))?;
	if model.host != now {
		return Err(CostError::OtherHost { path: path.to_owned(), then: Box::new(model.host), now: Box::new(now) });
	}
	Ok(model)
}

#[cfg(test)]
mod tests {
	use super::{super::tests::model, *};

	#[test]
	fn what_was_saved_is_loaded() {
		let dir = tempfile::tempdir().unwrap();
		let path = dir.path().join("cost-model.json");
		let m = CostModel { host: HostId::read(), ..model() };
		m.save(&path).unwrap();
		assert_eq!(CostModel::load(&path).unwrap(), m);
		let again = CostModel { calibration_seconds: 0.25, ..m };
		again.save(&path).unwrap();
		assert_eq!(CostModel::load(&path).unwrap(), again, "an older model is replaced");
		assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 1, "no other file is left");
	}

	#[test]
	fn the_model_of_another_host_is_refused() {
		let dir = tempfile::tempdir().unwrap();
		let path = dir.path().join("m.json");
		let m = model();
		m.save(&path).unwrap();
		assert!(load_for(&path, m.host.clone()).is_ok());
		for now in [
			HostId { kernel: "6.12".into(), ..m.host.clone() },
			HostId { cpu: "y".into(), ..m.host.clone() },
			HostId { thp: "never".into(), ..m.host.clone() },
			HostId { shmem_thp: "deny".into(), ..m.host.clone() },
		] {
			let e = load_for(&path, now).unwrap_err();
			assert!(matches!(e, CostError::OtherHost { .. }));
			assert!(e.to_string().ends_with("calibrate again"), "{e}");
		}
	}

	#[test]
	fn what_is_no_model_is_refused() {
		let dir = tempfile::tempdir().unwrap();
		let path = dir.path().join("m.json");
		assert!(matches!(CostModel::load(&path), Err(CostError::File { what: "read", .. })));
		for text in
			["", "{}", r#"{"schema":"flashfork.cost/0","model":{}}"#, r#"{"schema":"flashfork.cost/2","model":{}}"#]
		{
			std::fs::write(&path, text).unwrap();
			assert!(matches!(CostModel::load(&path), Err(CostError::Format { .. })), "{text}");
		}
		assert!(matches!(model().save(dir.path().join("no/dir")), Err(CostError::File { what: "write", .. })));
	}
}
