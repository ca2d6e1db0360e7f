//! The working directory, as the virtual machine has noted it: `user.dir`, and what relative names are made absolute
//! with.

use crate::java::Java;
use jni_sys::{jclass, jfieldID, jmethodID, jobject, jvalue};
use std::os::unix::ffi::OsStrExt;

/// Where it is noted.
pub struct Directory {
	text: Text,
	system: jclass,
	set: jmethodID,
	key: jobject,
	/// Of `java.io.File`: an object, and its field.
	file: (jobject, jfieldID),
	/// Of `java.nio.file`.
	path: (jobject, jfieldID),
}

/// How names of files become strings.
struct Text {
	class: jclass,
	constructor: jmethodID,
	charset: jobject,
}

impl Text {
	fn of(&self, java: &Java, bytes: jobject) -> Result<jobject, String> {
		// SAFETY: the constructor takes an array of bytes and a string.
		unsafe { java.new_object(self.class, self.constructor, &[jvalue { l: bytes }, jvalue { l: self.charset }]) }
	}
}

impl Directory {
	/// Java code may run yet. `None` if the program has chosen another for itself, as it would in each clone.
	pub fn find(java: &Java) -> Result<Option<Directory>, String> {
		let system = java.class(c"java/lang/System")?;
		let get = java.static_method(system, c"getProperty", c"(Ljava/lang/String;)Ljava/lang/String;")?;
		let kind = c"(Ljava/lang/String;Ljava/lang/String;)Ljava/lang/String;";
		let set = java.static_method(system, c"setProperty", kind)?;
		let key = java.text(c"user.dir")?;
		// SAFETY: the method takes a string.
		let property = |key| unsafe { java.call_static(system, get, &[jvalue { l: key }]) };
		let charset = property(java.text(c"sun.jnu.encoding")?)?;
		let class = java.class(c"java/lang/String")?;
		let constructor = java.method(class, c"<init>", c"([BLjava/lang/String;)V")?;
		let text = Text { class, constructor, charset };
		let equals = java.method(class, c"equals", c"(Ljava/lang/Object;)Z")?;
		let (noted, own) = (property(key)?, text.of(java, java.bytes(&now()?)?)?);
		// SAFETY: the method takes an object.
		if noted.is_null() || !unsafe { java.call_bool(noted, equals, &[jvalue { l: own }])? } {
			return Ok(None);
		}
		let class = java.class(c"java/io/File")?;
		let kind = c"Ljava/io/FileSystem;";
		// Renamed in Java 21.
		let of = java.static_field(class, c"FS", kind).or_else(|_| java.static_field(class, c"fs", kind))?;
		let field = java.field(java.class(c"java/io/UnixFileSystem")?, c"userDir", c"Ljava/lang/String;")?;
		let file = (java.static_object(class, of), field);
		let class = java.class(c"sun/nio/fs/DefaultFileSystemProvider")?;
		let method = java.static_method(class, c"theFileSystem", c"()Ljava/nio/file/FileSystem;")?;
		let field = java.field(java.class(c"sun/nio/fs/UnixFileSystem")?, c"defaultDirectory", c"[B")?;
		// SAFETY: the method takes nothing.
		let path = (unsafe { java.call_static(class, method, &[])? }, field);
		Ok(Some(Directory { text, system, set, key, file, path }))
	}

	/// In a clone, which is in its caller's.
	pub fn renew(&self, java: &Java) -> Result<(), String> {
		let bytes = java.bytes(&now()?)?;
		let text = self.text.of(java, bytes)?;
		java.set_object(self.file.0, self.file.1, text);
		java.set_object(self.path.0, self.path.1, bytes);
		// SAFETY: the method takes two strings.
		unsafe { java.call_static(self.system, self.set, &[jvalue { l: self.key }, jvalue { l: text }])? };
		Ok(())
	}
}

/// The process's.
fn now() -> Result<Vec<u8>, String> {
	let directory = std::env::current_dir().map_err(|e| format!("its working directory: {e}"))?;
	Ok(directory.as_os_str().as_bytes().to_vec())
}
