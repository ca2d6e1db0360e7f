//! JVMTI, the interface of Java virtual machines for tools (JVM Tool Interface, version 17 and later): the functions
//! used here, by their numbers in its table.

use crate::java::virtual_machine;
use jni_sys::{JNI_OK, jclass, jint, jlong, jmethodID, jobject};
use std::{
	ffi::{CStr, c_char, c_uchar, c_void},
	ptr::{null, null_mut},
};

/// An environment of the interface, for the thread that has made it.
pub struct Tool(*mut c_void);

/// `jthread`: a `java.lang.Thread`.
pub type Thread = jobject;

/// `jvmtiError`; 0 is none.
type Status = jint;

/// `JVMTI_VERSION_11`: what every virtual machine gives that is new enough.
const VERSION: jint = 0x300B_0000;

/// Bits of `jvmtiCapabilities`.
const CAN_TAG_OBJECTS: usize = 0;
const CAN_GET_BYTECODES: usize = 3;
const CAN_SUSPEND: usize = 20;
const CAN_SUPPORT_VIRTUAL_THREADS: usize = 44;

const THREAD_START: jint = 52;

/// Of a suspension: the thread has been suspended before, or has ended.
pub const WAS_SUSPENDED: Status = 14;
pub const HAS_ENDED: Status = 15;

/// `jvmtiFrameInfo`.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct Frame {
	/// What runs.
	pub method: jmethodID,
	/// The instruction's place in it; negative in native methods.
	location: jlong,
}

/// Frames looked at of a thread: from a generator up there are far fewer.
const FRAMES: usize = 4096;

/// Called for each object: tag of its class, size, its own tag, length, and what was given.
pub type EachObject = extern "system" fn(jlong, jlong, *mut jlong, jint, *mut c_void) -> jint;
/// Called in each thread that starts.
pub type EachStart = extern "system" fn(*mut c_void, *mut c_void, Thread);

/// Defines functions of the table: those of `jvmtiEnv` that have these numbers.
macro_rules! functions {
	($($name:ident = $number:literal ($($argument:ident: $kind:ty),*);)*) => {
		impl Tool {
			$(
				unsafe fn $name(&self, $($argument: $kind),*) -> Result<(), String> {
					type Function = unsafe extern "system" fn(*mut c_void, $($kind),*) -> Status;
					// SAFETY: the function of this number has this type.
					let function = unsafe { std::mem::transmute::<*const c_void, Function>(self.function($number)) };
					// SAFETY: as the caller says.
					check(stringify!($name), unsafe { function(self.0, $($argument),*) })
				}
			)*
		}
	};
}

functions! {
	get_all_threads = 4 (count: *mut jint, threads: *mut *mut Thread);
	get_current_thread = 18 (thread: *mut Thread);
	deallocate = 47 (memory: *mut c_uchar);
	get_class_signature = 48 (class: jclass, signature: *mut *mut c_char, generic: *mut *mut c_char);
	get_class_status = 49 (class: jclass, status: *mut jint);
	get_class_methods = 52 (class: jclass, count: *mut jint, methods: *mut *mut jmethodID);
	get_method_name = 64 (
		method: jmethodID, name: *mut *mut c_char, signature: *mut *mut c_char, generic: *mut *mut c_char
	);
	get_bytecodes = 75 (method: jmethodID, count: *mut jint, bytes: *mut *mut c_uchar);
	get_loaded_classes = 78 (count: *mut jint, classes: *mut *mut jclass);
	get_version_number = 88 (version: *mut jint);
	suspend_thread_list = 92 (count: jint, threads: *const Thread, results: *mut Status);
	resume_thread_list = 93 (count: jint, threads: *const Thread, results: *mut Status);
	get_stack_trace = 104 (thread: Thread, start: jint, most: jint, frames: *mut Frame, count: *mut jint);
	set_tag = 107 (object: jobject, tag: jlong);
	get_objects_with_tags = 114 (
		count: jint, tags: *const jlong, found: *mut jint, objects: *mut *mut jobject, their_tags: *mut *mut jlong
	);
	iterate_through_heap = 116 (filter: jint, class: jclass, callbacks: *const [*const c_void; 16], data: *const c_void);
	suspend_all_virtual_threads = 118 (except: jint, list: *const Thread);
	resume_all_virtual_threads = 119 (except: jint, list: *const Thread);
	set_event_callbacks = 122 (callbacks: *const [*const c_void; 38], size: jint);
	dispose_environment = 127 ();
	get_potential_capabilities = 140 (capabilities: *mut [u8; 16]);
	add_capabilities = 142 (capabilities: *const [u8; 16]);
}

fn check(what: &str, status: Status) -> Result<(), String> {
	/// Its end has begun.
	const WRONG_PHASE: Status = 112;
	match status {
		0 => Ok(()),
		WRONG_PHASE => Err("it is about to end".into()),
		_ => Err(format!("its {what} gives error {status}")),
	}
}

impl Tool {
	/// An environment of its own, of the one virtual machine of this process.
	///
	/// # Safety
	/// `machine` is a handle of `libjvm.so`.
	pub unsafe fn of(machine: *mut c_void) -> Result<Tool, String> {
		let mut environment = null_mut();
		// SAFETY: as the caller says; the virtual machine writes a local.
		unsafe {
			let vm = virtual_machine(machine)?;
			if ((**vm).v1_2.GetEnv)(vm, &raw mut environment, VERSION) != JNI_OK {
				return Err("it has no JVMTI".into());
			}
		}
		Ok(Tool(environment))
	}

	fn function(&self, number: usize) -> *const c_void {
		// SAFETY: an environment begins with the address of its table, whose functions are counted from 1.
		unsafe { *(*self.0.cast::<*const *const c_void>()).add(number - 1) }
	}

	/// Java's: 17, for example.
	pub fn version(&self) -> Result<u32, String> {
		let mut version = 0;
		// SAFETY: a local is written.
		unsafe { self.get_version_number(&raw mut version)? };
		Ok(version as u32 >> 16 & 0xfff)
	}

	/// Has what is needed of it. True if it has virtual threads.
	pub fn ask_for_capabilities(&self) -> Result<bool, String> {
		let mut potential = [0u8; 16];
		// SAFETY: a structure of 128 bits, a local.
		unsafe { self.get_potential_capabilities(&raw mut potential)? };
		let has = |bit: usize| potential[bit / 8] >> (bit % 8) & 1 == 1;
		let virtual_threads = has(CAN_SUPPORT_VIRTUAL_THREADS);
		let mut wanted = [0u8; 16];
		for bit in [CAN_TAG_OBJECTS, CAN_GET_BYTECODES, CAN_SUSPEND] {
			if !has(bit) {
				return Err("another agent, a debugger perhaps, has its threads".into());
			}
			wanted[bit / 8] |= 1 << (bit % 8);
		}
		if virtual_threads {
			wanted[CAN_SUPPORT_VIRTUAL_THREADS / 8] |= 1 << (CAN_SUPPORT_VIRTUAL_THREADS % 8);
		}
		// SAFETY: as above.
		unsafe { self.add_capabilities(&raw const wanted)? };
		Ok(virtual_threads)
	}

	/// A list that it has made.
	unsafe fn taken<T: Copy>(&self, list: *mut T, count: jint) -> Result<Vec<T>, String> {
		if list.is_null() {
			return Ok(Vec::new());
		}
		// SAFETY: so many are there, the caller says; they are copied before they are freed.
		unsafe {
			let all = std::slice::from_raw_parts(list, count as usize).to_vec();
			self.deallocate(list.cast())?;
			Ok(all)
		}
	}

	/// A string that it has made.
	unsafe fn taken_text(&self, text: *mut c_char) -> Result<String, String> {
		// SAFETY: a string, the caller says; it is copied before it is freed.
		unsafe {
			let copy = CStr::from_ptr(text).to_string_lossy().into_owned();
			self.deallocate(text.cast())?;
			Ok(copy)
		}
	}

	/// All that live, but for virtual ones and those of the virtual machine's own.
	pub fn threads(&self) -> Result<Vec<Thread>, String> {
		let (mut count, mut all) = (0, null_mut());
		// SAFETY: locals are written.
		unsafe {
			self.get_all_threads(&raw mut count, &raw mut all)?;
			self.taken(all, count)
		}
	}

	/// The calling one.
	pub fn current_thread(&self) -> Result<Thread, String> {
		let mut thread = null_mut();
		// SAFETY: a local is written.
		unsafe { self.get_current_thread(&raw mut thread)? };
		Ok(thread)
	}

	/// Suspends them. What came of each.
	pub fn suspend(&self, threads: &[Thread]) -> Result<Vec<Status>, String> {
		let mut results = vec![0; threads.len()];
		// SAFETY: both lists are as long as said.
		unsafe { self.suspend_thread_list(threads.len() as jint, threads.as_ptr(), results.as_mut_ptr())? };
		Ok(results)
	}

	/// Lets them go on.
	pub fn resume(&self, threads: &[Thread]) -> Result<(), String> {
		let mut results = vec![0; threads.len()];
		// SAFETY: as above.
		unsafe { self.resume_thread_list(threads.len() as jint, threads.as_ptr(), results.as_mut_ptr())? };
		results.into_iter().find(|status| ![0, HAS_ENDED].contains(status)).map_or(Ok(()), |s| check("resumption", s))
	}

	/// Suspends all virtual threads, also those that begin later.
	pub fn suspend_virtual(&self) -> Result<(), String> {
		// SAFETY: no exceptions.
		unsafe { self.suspend_all_virtual_threads(0, null()) }
	}

	/// Lets them go on.
	pub fn resume_virtual(&self) -> Result<(), String> {
		// SAFETY: as above.
		unsafe { self.resume_all_virtual_threads(0, null()) }
	}

	/// What a thread runs, from the innermost method on. Nothing of one that has ended, or has not begun.
	pub fn stack(&self, thread: Thread) -> Vec<Frame> {
		let mut frames = vec![Frame { method: null_mut(), location: 0 }; FRAMES];
		let mut count = 0;
		// SAFETY: there is room for as many as said.
		let told = unsafe { self.get_stack_trace(thread, 0, FRAMES as jint, frames.as_mut_ptr(), &raw mut count) };
		frames.truncate(told.map_or(0, |()| count as usize));
		frames
	}

	/// The instruction at which a frame is (Java Virtual Machine Specification, chapter 7); none in native methods.
	pub fn instruction(&self, frame: &Frame) -> Option<u8> {
		let (mut count, mut bytes) = (0, null_mut());
		// SAFETY: locals are written.
		let code = unsafe {
			self.get_bytecodes(frame.method, &raw mut count, &raw mut bytes).and_then(|()| self.taken(bytes, count))
		};
		code.ok()?.get(usize::try_from(frame.location).ok()?).copied()
	}

	/// All classes that there are.
	pub fn classes(&self) -> Result<Vec<jclass>, String> {
		let (mut count, mut all) = (0, null_mut());
		// SAFETY: locals are written.
		unsafe {
			self.get_loaded_classes(&raw mut count, &raw mut all)?;
			self.taken(all, count)
		}
	}

	/// A class's name, as `java/lang/Thread`; empty for arrays.
	pub fn name(&self, class: jclass) -> Result<String, String> {
		let mut signature = null_mut();
		// SAFETY: a local is written: a string.
		let text = unsafe {
			self.get_class_signature(class, &raw mut signature, null_mut())?;
			self.taken_text(signature)?
		};
		Ok(text.strip_prefix('L').and_then(|rest| rest.strip_suffix(';')).unwrap_or_default().to_owned())
	}

	/// A method's name: `<clinit>` initialises its class.
	pub fn method_name(&self, method: jmethodID) -> Result<String, String> {
		let mut name = null_mut();
		// SAFETY: as above.
		unsafe {
			self.get_method_name(method, &raw mut name, null_mut(), null_mut())?;
			self.taken_text(name)
		}
	}

	/// Whether it has static fields with values: its initialisation is at its end.
	pub fn is_initialised(&self, class: jclass) -> Result<bool, String> {
		const INITIALIZED: jint = 4;
		let mut status = 0;
		// SAFETY: a local is written.
		unsafe { self.get_class_status(class, &raw mut status)? };
		Ok(status & INITIALIZED != 0)
	}

	/// A class's methods; none of one that can't have run.
	pub fn methods(&self, class: jclass) -> Vec<jmethodID> {
		let (mut count, mut all) = (0, null_mut());
		// SAFETY: locals are written.
		let told = unsafe {
			self.get_class_methods(class, &raw mut count, &raw mut all).and_then(|()| self.taken(all, count))
		};
		told.unwrap_or_default()
	}

	/// Gives an object a number, or takes it away with 0.
	pub fn tag(&self, object: jobject, tag: jlong) -> Result<(), String> {
		// SAFETY: an object, by its type.
		unsafe { self.set_tag(object, tag) }
	}

	/// The objects with one of these numbers, and which.
	pub fn tagged(&self, tags: &[jlong]) -> Result<Vec<(jobject, jlong)>, String> {
		let (mut count, mut objects, mut their_tags) = (0, null_mut(), null_mut());
		// SAFETY: the list is as long as said; locals are written.
		unsafe {
			let all = (tags.len() as jint, tags.as_ptr());
			self.get_objects_with_tags(all.0, all.1, &raw mut count, &raw mut objects, &raw mut their_tags)?;
			Ok(self.taken(objects, count)?.into_iter().zip(self.taken(their_tags, count)?).collect())
		}
	}

	/// Calls `each` for every object whose class has a tag.
	pub fn walk(&self, each: EachObject) -> Result<(), String> {
		const CLASS_UNTAGGED: jint = 0x20;
		let mut callbacks = [null(); 16];
		callbacks[0] = each as *const c_void;
		// SAFETY: the first callback is for an iteration; the others are none.
		unsafe { self.iterate_through_heap(CLASS_UNTAGGED, null_mut(), &raw const callbacks, null()) }
	}

	/// Has `each` called in every thread that starts from now on.
	pub fn on_start(&self, each: EachStart) -> Result<(), String> {
		type Function = unsafe extern "C" fn(*mut c_void, jint, jint, Thread, ...) -> Status;
		const ENABLE: jint = 1;
		// Events are counted from 50.
		let mut callbacks = [null(); 38];
		callbacks[THREAD_START as usize - 50] = each as *const c_void;
		// SAFETY: the callback has the type of that event's; function 2 has this type.
		unsafe {
			self.set_event_callbacks(&raw const callbacks, size_of_val(&callbacks) as jint)?;
			let function = std::mem::transmute::<*const c_void, Function>(self.function(2));
			check("set_event_notification_mode", function(self.0, ENABLE, THREAD_START, null_mut()))
		}
	}

	/// Lets go of it.
	pub fn dispose(&self) -> Result<(), String> {
		// SAFETY: no arguments.
		unsafe { self.dispose_environment() }
	}
}
