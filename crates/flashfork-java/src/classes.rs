//! The classes of a virtual machine in which no Java code runs.

use crate::{java::Java, tool::Tool};
use jni_sys::jclass;

/// All of them, by their names, as `java/lang/Thread`.
pub struct Classes(Vec<(String, jclass)>);

impl Classes {
	/// Those that are there now.
	pub fn loaded(tool: &Tool) -> Result<Classes, String> {
		let named = |class| Ok((tool.name(class)?, class));
		Ok(Classes(tool.classes()?.into_iter().map(named).collect::<Result<_, String>>()?))
	}

	/// All.
	pub fn all(&self) -> impl Iterator<Item = (&str, jclass)> {
		self.0.iter().map(|(name, class)| (&**name, *class))
	}

	/// The one of this name.
	pub fn named(&self, name: &str) -> Option<jclass> {
		self.all().find(|(own, _)| *own == name).map(|(_, class)| class)
	}

	/// The one of this name, if it has values: what is initialised in a clone is new there.
	pub fn initialised(&self, tool: &Tool, name: &str) -> Result<Option<jclass>, String> {
		let Some(class) = self.named(name) else { return Ok(None) };
		Ok(tool.is_initialised(class)?.then_some(class))
	}

	/// Lets go of the references.
	pub fn forget(self, java: &Java) {
		self.0.into_iter().for_each(|(_, class)| java.forget(class));
	}
}
