//! What `System.getenv` gives: a copy of the environment that the virtual machine makes once.

use crate::java::Java;
use jni_sys::{jclass, jfieldID, jmethodID, jobject, jvalue};

/// Where it is kept: a `HashMap` of names and values, of classes of its own.
pub struct Environment {
	class: jclass,
	/// Gives names and values, in turn, as they are now.
	asks: jmethodID,
	kept: jobject,
	name: (jclass, jmethodID),
	value: (jclass, jmethodID),
	map: jclass,
	constructor: jmethodID,
	put: jmethodID,
	table: jfieldID,
	size: jfieldID,
	threshold: jfieldID,
}

impl Environment {
	/// Java code may run yet.
	pub fn find(java: &Java) -> Result<Environment, String> {
		let class = java.class(c"java/lang/ProcessEnvironment")?;
		let of_bytes = |name, kind| {
			let class = java.class(name)?;
			Ok::<_, String>((class, java.static_method(class, c"valueOf", kind)?))
		};
		let kept = java.static_field(class, c"theEnvironment", c"Ljava/util/HashMap;")?;
		let map = java.class(c"java/util/HashMap")?;
		Ok(Environment {
			class,
			asks: java.static_method(class, c"environ", c"()[[B")?,
			kept: java.static_object(class, kept),
			name: of_bytes(c"java/lang/ProcessEnvironment$Variable", c"([B)Ljava/lang/ProcessEnvironment$Variable;")?,
			value: of_bytes(c"java/lang/ProcessEnvironment$Value", c"([B)Ljava/lang/ProcessEnvironment$Value;")?,
			map,
			constructor: java.method(map, c"<init>", c"()V")?,
			put: java.method(map, c"put", c"(Ljava/lang/Object;Ljava/lang/Object;)Ljava/lang/Object;")?,
			table: java.field(map, c"table", c"[Ljava/util/HashMap$Node;")?,
			size: java.field(map, c"size", c"I")?,
			threshold: java.field(map, c"threshold", c"I")?,
		})
	}

	/// In a clone, whose environment is its caller's. A thread that goes through the old one goes on with that.
	pub fn renew(&self, java: &Java) -> Result<(), String> {
		// SAFETY: methods of these types, as `find` has asked for them.
		let new = unsafe {
			let all = java.call_static(self.class, self.asks, &[])?;
			let new = java.new_object(self.map, self.constructor, &[])?;
			// Back to front, as the virtual machine does it: of a name that is there twice the first counts.
			for pair in (0..java.len(all) / 2).rev() {
				let of = |index, (class, method)| {
					let bytes = java.element(all, index)?;
					java.call_static(class, method, &[jvalue { l: bytes }])
				};
				let (name, value) = (of(2 * pair, self.name)?, of(2 * pair + 1, self.value)?);
				java.call(new, self.put, &[jvalue { l: name }, jvalue { l: value }])?;
			}
			new
		};
		java.set_object(self.kept, self.table, java.object(new, self.table));
		for field in [self.size, self.threshold] {
			java.set_int(self.kept, field, java.int(new, field));
		}
		Ok(())
	}
}
