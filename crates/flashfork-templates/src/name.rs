//! Names of templates.

use flashfork_warm::{NAME_RULE, is_name};
use std::{fmt, path::Path, str::FromStr};

/// The name of a template: 1 to 64 letters, digits, `.`, `_` and `-`, of which neither `.` nor `-` begins it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Name(String);

/// A text is no name; says what one is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{NAME_RULE}")]
pub struct NameError;

impl Name {
	/// Of a socket in the directory, also one that is no template's yet.
	pub(crate) fn of_socket(file: String) -> Name {
		Name(file)
	}

	/// Its text.
	#[must_use]
	pub fn as_str(&self) -> &str {
		&self.0
	}
}

impl FromStr for Name {
	type Err = NameError;

	fn from_str(text: &str) -> Result<Self, NameError> {
		if is_name(text) { Ok(Name(text.to_owned())) } else { Err(NameError) }
	}
}

impl fmt::Display for Name {
	fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
		f.write_str(&self.0)
	}
}

impl AsRef<Path> for Name {
	fn as_ref(&self) -> &Path {
		Path::new(&self.0)
	}
}
