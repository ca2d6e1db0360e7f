//! Python that doesn't become a template by itself: a server, for one. Its generators of random numbers, `random`'s and
//! numpy's, would go on alike in all clones.
//!
//! Before it is stopped the shim's thread takes the interpreter's lock and notes where the words of these generators
//! are (`generators.py`). It keeps the lock, so no thread of Python's draws or imports any more. In a clone the words
//! are filled before any thread runs; then the lock is let go.

use super::super::{api::api, process::name_of_program};
use core::{
	ffi::{CStr, c_char, c_int, c_void},
	ptr::null,
	sync::atomic::{AtomicBool, AtomicI32, AtomicPtr, AtomicUsize, Ordering::SeqCst},
};
use flashfork_core::{
	Errno,
	forkall::{Fit, Unfit, What, call},
};
use flashfork_warm::ReadyAt;
use syscalls::Sysno;

const CODE: &CStr = match CStr::from_bytes_with_nul(concat!(include_str!("generators.py"), "\0").as_bytes()) {
	Ok(text) => text,
	Err(_) => panic!("the text holds a NUL byte"),
};

/// `Py_file_input`: the start symbol of modules.
const MODULE: c_int = 257;

/// Bytes of a Mersenne twister's state: 624 words.
const WORDS: usize = 624 * 4;

/// An object, owned or borrowed as the C API says.
type Object = *mut c_void;

api! {
	Py_IsInitialized: fn() -> c_int;
	Py_CompileString: fn(*const c_char, *const c_char, c_int) -> Object;
	PyBytes_AsString: fn(Object) -> *const c_char;
	PyBytes_Size: fn(Object) -> isize;
	PyDict_GetItemString: fn(Object, *const c_char) -> Object;
	PyDict_New: fn() -> Object;
	PyDict_SetItemString: fn(Object, *const c_char, Object) -> c_int;
	PyErr_Clear: fn();
	PyEval_EvalCode: fn(Object, Object, Object) -> Object;
	PyEval_GetBuiltins: fn() -> Object;
	PyGILState_Ensure: fn() -> c_int;
	PyGILState_Release: fn(c_int);
	PyInterpreterState_Head: fn() -> *mut c_void;
	PyInterpreterState_Next: fn(*mut c_void) -> *mut c_void;
	PyList_GetItem: fn(Object, isize) -> Object;
	PyList_Size: fn(Object) -> isize;
	PyLong_AsSize_t: fn(Object) -> usize;
	PyObject_CallObject: fn(Object, Object) -> Object;
	PyTuple_GetItem: fn(Object, isize) -> Object;
}

/// Where words are; 0 where there are none.
static PLACES: [AtomicUsize; 2] = [const { AtomicUsize::new(0) }; 2];
/// Whether all is prepared, and what `PyGILState_Ensure` gave.
static PREPARED: AtomicBool = AtomicBool::new(false);
static LOCK: AtomicI32 = AtomicI32::new(0);
/// Whether the program had Python when it was started.
static KNOWN: AtomicBool = AtomicBool::new(false);
/// Why clones' can't be renewed; null if they can, or need not.
static WHY_NOT: AtomicPtr<c_char> = AtomicPtr::new(core::ptr::null_mut());

/// Whether this program has Python, and is no template that Python makes of itself: that one renews its own.
pub fn is_here(at: Option<ReadyAt>) -> bool {
	let known = Api::find().is_some();
	let is_python = name_of_program(b"python");
	if is_python && !known {
		WHY_NOT.store(c"it is of a version that is not known".as_ptr().cast_mut(), SeqCst);
	}
	KNOWN.store(known, SeqCst);
	known && (at.is_some() || !is_python)
}

/// Whether it had Python when it was started.
pub fn is_known() -> bool {
	KNOWN.load(SeqCst)
}

/// In the program, in a thread of the shim's own, before it is stopped.
pub fn prepare() {
	let Some(api) = Api::find() else { return };
	// SAFETY: the C API as documented, from a thread that the interpreter doesn't know. Where there is no interpreter
	// yet, modules of one are imported in clones.
	let why_not = unsafe {
		if (api.Py_IsInitialized)() == 0 {
			null()
		} else {
			LOCK.store((api.PyGILState_Ensure)(), SeqCst);
			let why_not = if (api.PyInterpreterState_Next)((api.PyInterpreterState_Head)()).is_null() {
				api.note()
			} else {
				c"it has more than one interpreter".as_ptr()
			};
			PREPARED.store(why_not.is_null(), SeqCst);
			why_not
		}
	};
	WHY_NOT.store(why_not.cast_mut(), SeqCst);
}

impl Api {
	/// With the interpreter's lock. Null: done; else why not, in words that stay.
	unsafe fn note(&self) -> *const c_char {
		// SAFETY: the C API; the names are kept for good, and what they hold.
		unsafe {
			let names = (self.PyDict_New)();
			(self.PyDict_SetItemString)(names, c"__builtins__".as_ptr(), (self.PyEval_GetBuiltins)());
			let code = (self.Py_CompileString)(CODE.as_ptr(), c"<flashfork>".as_ptr(), MODULE);
			let done = !code.is_null() && !(self.PyEval_EvalCode)(code, names, names).is_null();
			if !done || !self.places(names) || !self.last(names) {
				(self.PyErr_Clear)();
				let why = (self.PyDict_GetItemString)(names, c"why".as_ptr());
				return if why.is_null() { c"its code can't be run".as_ptr() } else { (self.PyBytes_AsString)(why) };
			}
			null()
		}
	}

	/// Notes where words are; whether those that are known lie where they should.
	unsafe fn places(&self, names: Object) -> bool {
		// SAFETY: the C API. The objects at these addresses are as large as their types say, and numpy's are numpy's.
		unsafe {
			let of = |list, i| (self.PyList_GetItem)(list, i as isize);
			let places = (self.PyDict_GetItemString)(names, c"places".as_ptr());
			let known = (self.PyDict_GetItemString)(names, c"known".as_ptr());
			let count = (self.PyList_Size)(places) as usize;
			count <= PLACES.len()
				&& PLACES.iter().enumerate().take(count).all(|(i, place)| {
					let at = (self.PyLong_AsSize_t)((self.PyTuple_GetItem)(of(known, i), 0));
					let words = (self.PyTuple_GetItem)(of(known, i), 1);
					let as_they_are = (self.PyBytes_Size)(words) == WORDS as isize
						&& libc::memcmp(at as *const c_void, (self.PyBytes_AsString)(words).cast(), WORDS) == 0;
					place.store((self.PyLong_AsSize_t)(of(places, i)), SeqCst);
					as_they_are
				})
		}
	}

	/// What is done when nothing else runs any more: functions of C's, which let nobody else have the lock afterwards.
	unsafe fn last(&self, names: Object) -> bool {
		// SAFETY: the C API.
		unsafe {
			let last = (self.PyDict_GetItemString)(names, c"last".as_ptr());
			(0..(self.PyList_Size)(last)).all(|i| {
				let function = (self.PyList_GetItem)(last, i);
				!(self.PyObject_CallObject)(function, core::ptr::null_mut()).is_null()
			})
		}
	}
}

/// What came of [`prepare`], for the maker.
pub fn outcome() -> Fit {
	let why_not = WHY_NOT.load(SeqCst);
	if why_not.is_null() {
		return Ok(());
	}
	// SAFETY: a string that stays.
	Err(Unfit::named(What::Python, 0, unsafe { CStr::from_ptr(why_not) }.to_bytes()))
}

/// In a clone, before any thread of it runs: other random numbers.
pub fn renew() -> Result<(), Errno> {
	for place in PLACES.iter().map(|place| place.load(SeqCst)).filter(|at| *at != 0) {
		let mut filled = 0;
		while filled < WORDS {
			// SAFETY: the words of a generator that nobody frees: the threads that could stand still.
			filled += unsafe { call(Sysno::getrandom, [place + filled, WORDS - filled, 0]) }?;
		}
	}
	Ok(())
}

/// In a clone, when all threads run: Python's go on.
pub fn let_go() {
	if PREPARED.load(SeqCst)
		&& let Some(api) = Api::find()
	{
		// SAFETY: the C API, in the thread with the lock.
		unsafe { (api.PyGILState_Release)(LOCK.load(SeqCst)) }
	}
}
