//! JNI, as far as it is used here: the functions of the calling thread, which is attached to the virtual machine.

use jni_sys::{
	JNI_OK, JNI_VERSION_1_6, JNIEnv, JNINativeInterface__1_6, JavaVM, JavaVMAttachArgs, jclass, jfieldID, jint, jlong,
	jmethodID, jobject, jsize, jvalue,
};
use std::{
	ffi::{CStr, c_void},
	ptr::null_mut,
};

/// The calling thread's environment.
pub struct Java {
	vm: *mut JavaVM,
	env: *mut JNIEnv,
}

/// The one virtual machine of this process.
///
/// # Safety
/// `machine` is a handle of `libjvm.so`.
pub unsafe fn virtual_machine(machine: *mut c_void) -> Result<*mut JavaVM, String> {
	type Created = unsafe extern "system" fn(*mut *mut JavaVM, jsize, *mut jsize) -> jint;
	let (mut vm, mut count) = (null_mut(), 0);
	// SAFETY: a symbol of the library, which has this type; locals are written.
	unsafe {
		let created = libc::dlsym(machine, c"JNI_GetCreatedJavaVMs".as_ptr());
		if created.is_null() {
			return Err("it has no JNI".into());
		}
		let created = std::mem::transmute::<*mut c_void, Created>(created);
		if created(&raw mut vm, 1, &raw mut count) != JNI_OK || count < 1 {
			return Err("it is still being started".into());
		}
	}
	Ok(vm)
}

impl Java {
	/// Attaches the calling thread, as one that nobody waits for.
	///
	/// # Safety
	/// `machine` is a handle of `libjvm.so`.
	pub unsafe fn attach(machine: *mut c_void) -> Result<Java, String> {
		let mut env = null_mut();
		let name = c"flashfork".as_ptr().cast_mut();
		let mut arguments = JavaVMAttachArgs { version: JNI_VERSION_1_6, name, group: null_mut() };
		// SAFETY: as the caller says; the arguments and the result are locals.
		unsafe {
			let vm = virtual_machine(machine)?;
			let arguments = (&raw mut arguments).cast();
			if ((**vm).v1_4.AttachCurrentThreadAsDaemon)(vm, &raw mut env, arguments) != JNI_OK {
				return Err("no thread can be attached to it".into());
			}
			Ok(Java { vm, env: env.cast() })
		}
	}

	/// The calling thread leaves the virtual machine.
	pub fn detach(&self) {
		// SAFETY: it was attached. It ends, whatever comes of this.
		unsafe { ((**self.vm).v1_2.DetachCurrentThread)(self.vm) };
	}

	/// Of a native method.
	///
	/// # Safety
	/// Valid in the calling thread.
	pub unsafe fn of(env: *mut JNIEnv) -> Java {
		Java { vm: null_mut(), env }
	}

	fn functions(&self) -> &JNINativeInterface__1_6 {
		// SAFETY: valid for the calling thread, which is the one that was attached, or runs a native method.
		unsafe { &(**self.env).v1_6 }
	}

	/// What a call has given, unless it has thrown.
	fn checked<T>(&self, value: T, what: impl FnOnce() -> String) -> Result<T, String> {
		// SAFETY: no arguments.
		let thrown = unsafe { (self.functions().ExceptionCheck)(self.env) };
		if thrown {
			// SAFETY: no arguments.
			unsafe { (self.functions().ExceptionClear)(self.env) };
			return Err(what());
		}
		Ok(value)
	}

	/// A class by its name, as `java/lang/Thread`, which is loaded if it wasn't.
	pub fn class(&self, name: &CStr) -> Result<jclass, String> {
		// SAFETY: a string.
		let class = unsafe { (self.functions().FindClass)(self.env, name.as_ptr()) };
		self.checked(class, || format!("it has no class {}", shown(name)))
	}

	/// A field of its instances. The class must be initialised, or will be.
	pub fn field(&self, class: jclass, name: &CStr, kind: &CStr) -> Result<jfieldID, String> {
		// SAFETY: a class and two strings.
		let field = unsafe { (self.functions().GetFieldID)(self.env, class, name.as_ptr(), kind.as_ptr()) };
		self.checked(field, || format!("it has no field {}", shown(name)))
	}

	/// A static field.
	pub fn static_field(&self, class: jclass, name: &CStr, kind: &CStr) -> Result<jfieldID, String> {
		// SAFETY: as above.
		let field = unsafe { (self.functions().GetStaticFieldID)(self.env, class, name.as_ptr(), kind.as_ptr()) };
		self.checked(field, || format!("it has no field {}", shown(name)))
	}

	/// A method.
	pub fn method(&self, class: jclass, name: &CStr, kind: &CStr) -> Result<jmethodID, String> {
		// SAFETY: as above.
		let method = unsafe { (self.functions().GetMethodID)(self.env, class, name.as_ptr(), kind.as_ptr()) };
		self.checked(method, || format!("it has no method {}", shown(name)))
	}

	/// A static method.
	pub fn static_method(&self, class: jclass, name: &CStr, kind: &CStr) -> Result<jmethodID, String> {
		// SAFETY: as above.
		let method = unsafe { (self.functions().GetStaticMethodID)(self.env, class, name.as_ptr(), kind.as_ptr()) };
		self.checked(method, || format!("it has no method {}", shown(name)))
	}

	/// Whether instances of one class are of the other.
	pub fn is_a(&self, class: jclass, other: jclass) -> bool {
		// SAFETY: two classes.
		unsafe { (self.functions().IsAssignableFrom)(self.env, class, other) }
	}

	/// Whether two references are to the same object.
	pub fn is_same(&self, one: jobject, other: jobject) -> bool {
		// SAFETY: two references.
		unsafe { (self.functions().IsSameObject)(self.env, one, other) }
	}

	/// Lets go of a reference.
	pub fn forget(&self, object: jobject) {
		// SAFETY: a reference of this thread's, which is used no more.
		unsafe { (self.functions().DeleteLocalRef)(self.env, object) };
	}

	/// A field's value: an object, or null.
	pub fn object(&self, of: jobject, field: jfieldID) -> jobject {
		// SAFETY: a field of its class, which holds objects.
		unsafe { (self.functions().GetObjectField)(self.env, of, field) }
	}

	/// A static field's value.
	pub fn static_object(&self, class: jclass, field: jfieldID) -> jobject {
		// SAFETY: as above.
		unsafe { (self.functions().GetStaticObjectField)(self.env, class, field) }
	}

	/// Gives a field an object.
	pub fn set_object(&self, of: jobject, field: jfieldID, value: jobject) {
		// SAFETY: as above; the value is of the field's type.
		unsafe { (self.functions().SetObjectField)(self.env, of, field, value) };
	}

	/// A field's value: an `int`.
	pub fn int(&self, of: jobject, field: jfieldID) -> jint {
		// SAFETY: a field of its class, which is an int.
		unsafe { (self.functions().GetIntField)(self.env, of, field) }
	}

	/// Gives a field an `int`.
	pub fn set_int(&self, of: jobject, field: jfieldID, value: jint) {
		// SAFETY: as above.
		unsafe { (self.functions().SetIntField)(self.env, of, field, value) };
	}

	/// Gives a field a `long`, final ones too.
	pub fn set_long(&self, of: jobject, field: jfieldID, value: jlong) {
		// SAFETY: a field of its class, which is a long.
		unsafe { (self.functions().SetLongField)(self.env, of, field, value) };
	}

	/// Length of an array.
	pub fn len(&self, array: jobject) -> jsize {
		// SAFETY: an array.
		unsafe { (self.functions().GetArrayLength)(self.env, array) }
	}

	/// An element of an array of objects.
	pub fn element(&self, array: jobject, index: jsize) -> Result<jobject, String> {
		// SAFETY: an array of objects.
		let element = unsafe { (self.functions().GetObjectArrayElement)(self.env, array, index) };
		self.checked(element, || "an array is shorter than it was".into())
	}

	/// Writes all bytes of an array of them.
	pub fn set_bytes(&self, array: jobject, bytes: &[u8]) -> Result<(), String> {
		// SAFETY: an array of bytes; what is beyond its end is not written.
		unsafe {
			(self.functions().SetByteArrayRegion)(self.env, array, 0, bytes.len() as jsize, bytes.as_ptr().cast());
		}
		self.checked((), || "an array is shorter than it was".into())
	}

	/// A new array of these bytes.
	pub fn bytes(&self, bytes: &[u8]) -> Result<jobject, String> {
		// SAFETY: takes a number.
		let array = unsafe { (self.functions().NewByteArray)(self.env, bytes.len() as jsize) };
		let array = self.checked(array, || "it is out of memory".into())?;
		self.set_bytes(array, bytes)?;
		Ok(array)
	}

	/// A new array of objects of a class: all null.
	pub fn objects(&self, class: jclass, count: usize) -> Result<jobject, String> {
		// SAFETY: a class and a number.
		let array = unsafe { (self.functions().NewObjectArray)(self.env, count as jsize, class, null_mut()) };
		self.checked(array, || "it is out of memory".into())
	}

	/// Writes an element of an array of objects.
	pub fn set_element(&self, array: jobject, index: usize, value: jobject) -> Result<(), String> {
		// SAFETY: an array of objects of the value's class.
		unsafe { (self.functions().SetObjectArrayElement)(self.env, array, index as jsize, value) };
		self.checked((), || "an array is shorter than it was".into())
	}

	/// A new string.
	pub fn text(&self, text: &CStr) -> Result<jobject, String> {
		// SAFETY: a string.
		let string = unsafe { (self.functions().NewStringUTF)(self.env, text.as_ptr()) };
		self.checked(string, || "it is out of memory".into())
	}

	/// A new object.
	///
	/// # Safety
	/// The arguments are of the constructor's types.
	pub unsafe fn new_object(
		&self,
		class: jclass,
		constructor: jmethodID,
		arguments: &[jvalue],
	) -> Result<jobject, String> {
		// SAFETY: as the caller says.
		let object = unsafe { (self.functions().NewObjectA)(self.env, class, constructor, arguments.as_ptr()) };
		self.checked(object, || "a constructor has thrown".into())
	}

	/// Calls a method that gives an object.
	///
	/// # Safety
	/// The arguments are of the method's types.
	pub unsafe fn call(&self, of: jobject, method: jmethodID, arguments: &[jvalue]) -> Result<jobject, String> {
		// SAFETY: as the caller says.
		let object = unsafe { (self.functions().CallObjectMethodA)(self.env, of, method, arguments.as_ptr()) };
		self.checked(object, || "a method has thrown".into())
	}

	/// Calls a method that gives true or false.
	///
	/// # Safety
	/// As [`Java::call`].
	pub unsafe fn call_bool(&self, of: jobject, method: jmethodID, arguments: &[jvalue]) -> Result<bool, String> {
		// SAFETY: as the caller says.
		let value = unsafe { (self.functions().CallBooleanMethodA)(self.env, of, method, arguments.as_ptr()) };
		self.checked(value, || "a method has thrown".into())
	}

	/// Calls a static method that gives an object.
	///
	/// # Safety
	/// As [`Java::call`].
	pub unsafe fn call_static(
		&self,
		class: jclass,
		method: jmethodID,
		arguments: &[jvalue],
	) -> Result<jobject, String> {
		// SAFETY: as the caller says.
		let object = unsafe { (self.functions().CallStaticObjectMethodA)(self.env, class, method, arguments.as_ptr()) };
		self.checked(object, || "a method has thrown".into())
	}

	/// Calls a static method that takes and gives a `long`.
	///
	/// # Safety
	/// As [`Java::call`].
	pub unsafe fn call_static_long(&self, class: jclass, method: jmethodID, argument: jlong) -> Result<jlong, String> {
		let arguments = [jvalue { j: argument }];
		// SAFETY: as the caller says.
		let value = unsafe { (self.functions().CallStaticLongMethodA)(self.env, class, method, arguments.as_ptr()) };
		self.checked(value, || "a method has thrown".into())
	}
}

/// A name in words for people.
fn shown(name: &CStr) -> String {
	name.to_string_lossy().replace('/', ".")
}
