//! CPython: ready when the code of its command line has run, most often imports.
//!
//! The interpreter is set up as its own `main` does it, through the C API (3.8 and later), which is looked up in the
//! program. Clones run what their callers name from the top, with no frame below: tracebacks look as ever. `python.py`
//! has what is easier said in Python.

use super::{
	ahead,
	api::api,
	end,
	files::{self, Kind},
	forked::in_handlers,
	process::{name_of_program, threads},
	take_over::environ,
	template::{CLONE, Single},
	variables,
	wait::wait,
};
use core::{
	cell::Cell,
	ffi::{CStr, c_char, c_int, c_long, c_void},
	mem::MaybeUninit,
	ptr::null_mut,
	sync::atomic::{AtomicPtr, Ordering::SeqCst},
};
use flashfork_warm::ReadyAt;

const BOOT: &CStr = match CStr::from_bytes_with_nul(concat!(include_str!("python.py"), "\0").as_bytes()) {
	Ok(text) => text,
	Err(_) => panic!("the text holds a NUL byte"),
};

/// `Py_file_input`: the start symbol of modules.
const MODULE: c_int = 257;

/// `Py_PRINT_RAW`: `str` of an object, not its `repr`.
const RAW: c_int = 1;

/// `PyCF_IGNORE_COOKIE`: the text of `-c` is UTF-8, whatever it says of itself.
const IGNORE_COOKIE: c_int = 0x0800;

/// The exit code of what Ctrl-C has ended, until it is said by a signal.
const INTERRUPTED: c_int = -1;

/// Larger than any version's `PyPreConfig` and `PyConfig`, whose functions know their size.
const CONFIG: usize = 16 << 10;

#[repr(C, align(16))]
struct Config(MaybeUninit<[u8; CONFIG]>);

/// An object, owned or borrowed as the C API says.
type Object = *mut c_void;

#[repr(C)]
#[derive(Clone, Copy)]
struct Status {
	kind: c_int,
	function: *const c_char,
	message: *const c_char,
	code: c_int,
}

/// `Py_AuditHookFunction`.
type Hook = unsafe extern "C" fn(*const c_char, Object, *mut c_void) -> c_int;

// CPython of version 3.8 or later exports all of these.
api! {
	PyPreConfig_InitPythonConfig: fn(*mut Config);
	Py_PreInitializeFromBytesArgs: fn(*mut Config, isize, *mut *mut c_char) -> Status;
	PyConfig_InitPythonConfig: fn(*mut Config);
	PyConfig_SetBytesArgv: fn(*mut Config, isize, *mut *mut c_char) -> Status;
	Py_InitializeFromConfig: fn(*mut Config) -> Status;
	PyConfig_Clear: fn(*mut Config);
	PyStatus_Exception: fn(Status) -> c_int;
	Py_ExitStatusException: fn(Status) -> !;
	Py_CompileString: fn(*const c_char, *const c_char, c_int) -> Object;
	PyEval_EvalCode: fn(Object, Object, Object) -> Object;
	PyEval_GetBuiltins: fn() -> Object;
	PyEval_SetProfile: fn(*mut c_void, Object);
	PyEval_SetTrace: fn(*mut c_void, Object);
	PyDict_Copy: fn(Object) -> Object;
	PyDict_DelItemString: fn(Object, *const c_char) -> c_int;
	PyDict_New: fn() -> Object;
	PyDict_SetItemString: fn(Object, *const c_char, Object) -> c_int;
	PyDict_GetItemString: fn(Object, *const c_char) -> Object;
	PyList_New: fn(isize) -> Object;
	PyList_Append: fn(Object, Object) -> c_int;
	PyList_Size: fn(Object) -> isize;
	PyList_GetItem: fn(Object, isize) -> Object;
	PyTuple_GetItem: fn(Object, isize) -> Object;
	PyBytes_FromString: fn(*const c_char) -> Object;
	PyBytes_AsString: fn(Object) -> *const c_char;
	PyLong_AsLong: fn(Object) -> c_long;
	PyLong_FromUnsignedLongLong: fn(u64) -> Object;
	PyObject_CallObject: fn(Object, Object) -> Object;
	PyObject_GetAttrString: fn(Object, *const c_char) -> Object;
	PyObject_IsInstance: fn(Object, Object) -> c_int;
	PyObject_IsTrue: fn(Object) -> c_int;
	PyObject_Print: fn(Object, *mut libc::FILE, c_int) -> c_int;
	PyFile_WriteObject: fn(Object, Object, c_int) -> c_int;
	PyFile_WriteString: fn(*const c_char, Object) -> c_int;
	PyImport_GetMagicNumber: fn() -> c_long;
	PyImport_GetModuleDict: fn() -> Object;
	PyImport_ImportModule: fn(*const c_char) -> Object;
	PyMarshal_ReadLastObjectFromFile: fn(*mut libc::FILE) -> Object;
	PyMarshal_ReadLongFromFile: fn(*mut libc::FILE) -> c_long;
	PySys_AddAuditHook: fn(Hook, *mut c_void) -> c_int;
	PySys_GetObject: fn(*const c_char) -> Object;
	Py_DecRef: fn(Object);
	Py_FinalizeEx: fn() -> c_int;
	PyErr_Clear: fn();
	PyErr_Occurred: fn() -> Object;
	PyErr_Print: fn();
	PyErr_Restore: fn(Object, Object, Object);
	PyErr_SetString: fn(Object, *const c_char);
	PyErr_WriteUnraisable: fn(Object);
	PyErr_ExceptionMatches: fn(Object) -> c_int;
	PyErr_Fetch: fn(*mut Object, *mut Object, *mut Object);
	PyRun_AnyFileExFlags: fn(*mut libc::FILE, *const c_char, c_int, *mut c_void) -> c_int;
	PyRun_FileExFlags: fn(*mut libc::FILE, *const c_char, c_int, Object, Object, c_int, *mut c_void) -> Object;
	PyRun_StringFlags: fn(*const c_char, c_int, Object, Object, *mut [c_int; 2]) -> Object;
	PyOS_BeforeFork: fn();
	PyOS_AfterFork_Child: fn();
	PyOS_AfterFork_Parent: fn();
}

unsafe extern "C" {
	static mut stdin: *mut libc::FILE;
	static mut stdout: *mut libc::FILE;
	static mut stderr: *mut libc::FILE;
}

/// Whether this program is a Python that can be warmed.
pub fn is_here() -> bool {
	name_of_program(b"python") && Api::find().is_some()
}

/// In place of the interpreter's own main. Ends the process in clones.
pub unsafe extern "C" fn main(argc: c_int, argv: *mut *mut c_char, _: *mut *mut c_char) -> c_int {
	let Some(api) = Api::find() else { return 1 };
	// SAFETY: the C API as documented, in the program's one thread, which holds the interpreter's lock throughout.
	unsafe {
		let words = core::slice::from_raw_parts(argv, argc as usize);
		let Options { count: options, skips_line, reads_variables } = options(words);
		variables::note(if reads_variables { flashfork_warm::variables::PYTHON } else { &[] });
		let python = Python { globals: api.start(&words[..options]), api, status: Cell::new(0) };
		READS.watch(&raw const python);
		python.set_list(c"given", &words[options..]);
		python.set_number(c"skips_line", u64::from(skips_line));
		if !python.call(c"warm") || !python.run() || !python.call(c"ready") {
			READS.stop();
			python.leave(true);
		}
		READS.stop();
		let all_threads = super::threads::is_ready_at(None);
		if all_threads {
			python.call(c"forget");
			super::threads::ready();
			python.set_number(c"all_threads", 1);
		} else {
			python.note_files();
		}
		while !all_threads && wait(ReadyAt::Python) {
			in_handlers(|| (python.api.PyOS_BeforeFork)());
			if crate::forks::fork() == 0 {
				(python.api.PyOS_AfterFork_Child)();
				break;
			}
			in_handlers(|| (python.api.PyOS_AfterFork_Parent)());
		}
		if ahead::is_ahead() {
			ahead::wait_for_caller(python.rehearse());
		}
		// None where a handler of forks has forked, and its child comes here: nobody has called that.
		let Some(given) = CLONE.get().as_ref() else { libc::_exit(0) };
		python.set_list(c"given", given.arguments);
		python.set_list(c"variables", given.variables);
		python.set_number(c"ignored", given.ignored);
		if python.call(c"begin") {
			python.run();
		}
		python.leave(false)
	}
}

/// What is read while it is warmed, as audit hooks see it (PEP 578): one can't be taken away again, and does nothing
/// from the ready point on.
struct Reads(AtomicPtr<c_void>);

static READS: Reads = Reads(AtomicPtr::new(null_mut()));

impl Reads {
	unsafe fn watch(&self, python: *const Python) {
		self.0.store(python.cast_mut().cast(), SeqCst);
		// SAFETY: the C API, with the interpreter's lock; the hook looks whether there is anything to do.
		unsafe {
			let api = &(*python).api;
			if (api.PySys_AddAuditHook)(Self::hook, null_mut()) != 0 {
				(api.PyErr_Clear)();
			}
		}
	}

	fn stop(&self) {
		self.0.store(null_mut(), SeqCst);
	}

	unsafe extern "C" fn hook(event: *const c_char, arguments: Object, _: *mut c_void) -> c_int {
		let python = READS.0.load(SeqCst).cast_const().cast::<Python>();
		if python.is_null() {
			return 0;
		}
		// SAFETY: a name, and a tuple of arguments; `main` doesn't return before `stop`. What is called here opens and
		// lists nothing.
		unsafe {
			let function = match CStr::from_ptr(event).to_bytes() {
				b"open" => c"opened",
				b"os.listdir" | b"os.scandir" => c"listed",
				_ => return 0,
			};
			let api = &(*python).api;
			let done = (api.PyObject_CallObject)((*python).get(function), arguments);
			if done.is_null() {
				(api.PyErr_Clear)();
			} else {
				(api.Py_DecRef)(done);
			}
		}
		0
	}
}

struct Options {
	/// How many words they are, with its name: what is behind them says what to run.
	count: usize,
	/// Whether `-x` is among them.
	skips_line: bool,
	/// Whether neither `-E` nor `-I` is.
	reads_variables: bool,
}

unsafe fn options(words: &[*mut c_char]) -> Options {
	let mut found = Options { count: 0, skips_line: false, reads_variables: true };
	let mut at = 1;
	while at < words.len() {
		// SAFETY: an argument of main's.
		let word = unsafe { CStr::from_ptr(words[at]) }.to_bytes();
		if word.len() < 2 || word[0] != b'-' {
			break;
		}
		// `-c` and `-m` say what to run, wherever they stand among options of one letter.
		let told = word.iter().position(|b| b"cmWX".contains(b)).filter(|_| word[1] != b'-');
		let letters = if word[1] == b'-' { &[][..] } else { &word[1..told.unwrap_or(word.len())] };
		found.skips_line |= letters.contains(&b'x');
		found.reads_variables &= !letters.contains(&b'E') && !letters.contains(&b'I');
		match told {
			Some(i) if b"cm".contains(&word[i]) => break,
			// The value is the next word, if it isn't in this one.
			Some(i) if i + 1 == word.len() => at += 2,
			_ if word == b"--check-hash-based-pycs" => at += 2,
			_ => at += 1,
		}
	}
	found.count = at.min(words.len());
	found
}

impl Api {
	/// Starts the interpreter with these options; the names of `python.py`.
	unsafe fn start(&self, words: &[*mut c_char]) -> Object {
		// SAFETY: the structures are larger than the library's; the words are a table of strings.
		unsafe {
			// With nothing to run it would take itself for interactive.
			let mut all = [null_mut::<c_char>(); 64];
			let count = words.len().min(all.len() - 3);
			all[..count].copy_from_slice(&words[..count]);
			all[count] = c"-c".as_ptr().cast_mut();
			all[count + 1] = c"".as_ptr().cast_mut();
			let (len, argv) = (count as isize + 2, all.as_mut_ptr());
			let check = |status: Status| {
				if (self.PyStatus_Exception)(status) != 0 {
					(self.Py_ExitStatusException)(status);
				}
			};
			let mut config = Config(MaybeUninit::zeroed());
			(self.PyPreConfig_InitPythonConfig)(&raw mut config);
			check((self.Py_PreInitializeFromBytesArgs)(&raw mut config, len, argv));
			config.0 = MaybeUninit::zeroed();
			(self.PyConfig_InitPythonConfig)(&raw mut config);
			check((self.PyConfig_SetBytesArgv)(&raw mut config, len, argv));
			check((self.Py_InitializeFromConfig)(&raw mut config));
			(self.PyConfig_Clear)(&raw mut config);
			let globals = (self.PyDict_New)();
			let builtins = (self.PyDict_Copy)((self.PyEval_GetBuiltins)());
			(self.PyDict_SetItemString)(globals, c"__builtins__".as_ptr(), builtins);
			let code = (self.Py_CompileString)(BOOT.as_ptr(), c"<flashfork>".as_ptr(), MODULE);
			if code.is_null() || (self.PyEval_EvalCode)(code, globals, globals).is_null() {
				(self.PyErr_Print)();
				libc::exit(1);
			}
			globals
		}
	}
}

/// With which exit code a program of Python's ends; none where C code ends the process.
static STATUS: Single<Option<c_int>> = Single::new(None);

/// The dynamic linker's own handler, which `exit` runs last.
pub static LOADER_FINI: Single<*mut c_void> = Single::new(null_mut());

/// In the place of [`LOADER_FINI`], which goes through the destructors of all libraries,
/// hundreds after some imports, and touches memory of each: longer than all else of a clone's life. What libraries have
/// registered with `atexit` has run; a destructor would free what is freed in the next moment.
pub extern "C" fn end_of_libraries() {
	// SAFETY: flushes what C code has printed, then ends the process; or calls what the loader gave, which is nothing
	// or a function.
	unsafe {
		if let Some(status) = *STATUS.get()
			&& !crate::sandbox::entered()
		{
			// Another thread may hold a stream's lock for ever, by a read from it: `exit` itself flushes next, as it
			// does in any program, and ends the process.
			if threads() > 1 {
				return;
			}
			libc::fflush(null_mut());
			end::_exit(status);
		}
		let real = *LOADER_FINI.get();
		if !real.is_null() {
			core::mem::transmute::<*mut c_void, extern "C" fn()>(real)();
		}
	}
}

struct Python {
	api: Api,
	/// The names of `python.py`.
	globals: Object,
	status: Cell<c_int>,
}

/// An object that CPython exports: `PyExc_…` are variables that hold one.
unsafe fn exported(name: &CStr) -> Object {
	// SAFETY: a look-up.
	unsafe { libc::dlsym(libc::RTLD_DEFAULT, name.as_ptr()) }
}

unsafe fn exception(name: &CStr) -> Object {
	// SAFETY: every CPython has the exceptions asked for.
	unsafe { *exported(name).cast::<Object>() }
}

impl Python {
	unsafe fn set_list(&self, name: &CStr, strings: &[*mut c_char]) {
		// SAFETY: the C API; strings end with a NUL.
		unsafe {
			let list = (self.api.PyList_New)(0);
			for string in strings {
				let bytes = (self.api.PyBytes_FromString)(*string);
				(self.api.PyList_Append)(list, bytes);
				(self.api.Py_DecRef)(bytes);
			}
			(self.api.PyDict_SetItemString)(self.globals, name.as_ptr(), list);
			(self.api.Py_DecRef)(list);
		}
	}

	unsafe fn note_files(&self) {
		// SAFETY: the C API; one thread.
		unsafe {
			self.each(c"suffixes", |name| files::note_suffix(name));
			for (list, kind) in [
				(c"files", Kind::File),
				(c"missing", Kind::Missing),
				(c"no_modules", Kind::Module),
				(c"listings", Kind::Listing),
				(c"directories", Kind::Names),
			] {
				self.each(list, |name| files::note(kind, name));
			}
			// From here on changes are noticed; before, the program may have read something else.
			if self.call(c"compare") {
				self.each(c"written", |name| files::mark(name));
			}
			self.call(c"forget");
		}
	}

	unsafe fn each(&self, list: &CStr, with: impl Fn(&CStr)) {
		// SAFETY: the C API; a list of strings, each with its NUL.
		unsafe {
			let list = self.get(list);
			for i in 0..(self.api.PyList_Size)(list) {
				let name = (self.api.PyBytes_AsString)((self.api.PyList_GetItem)(list, i));
				with(CStr::from_ptr(name));
			}
		}
	}

	unsafe fn set_number(&self, name: &CStr, number: u64) {
		// SAFETY: the C API.
		unsafe {
			let number = (self.api.PyLong_FromUnsignedLongLong)(number);
			(self.api.PyDict_SetItemString)(self.globals, name.as_ptr(), number);
			(self.api.Py_DecRef)(number);
		}
	}

	/// Calls a function of `python.py`; false when it has raised something, and the exit code is set.
	unsafe fn call(&self, function: &CStr) -> bool {
		// SAFETY: the C API.
		unsafe {
			let result = (self.api.PyObject_CallObject)(self.get(function), null_mut());
			if result.is_null() {
				self.caught();
				return false;
			}
			(self.api.Py_DecRef)(result);
			true
		}
	}

	/// What comes after the fork, with a program that does nothing, in a clone with no caller yet. Should it fail, the
	/// clone ends, and one that was not rehearsed takes its place.
	unsafe fn rehearse(&self) -> bool {
		// SAFETY: the C API; the environment of this process, which a null ends.
		unsafe {
			let mut count = 0;
			while !environ.is_null() && !(*environ.add(count)).is_null() {
				count += 1;
			}
			let variables: &[*mut c_char] = if count == 0 { &[] } else { core::slice::from_raw_parts(environ, count) };
			self.set_list(c"variables", variables);
			self.set_list(c"given", &[]);
			let good = self.call(c"rehearse") && self.run() && self.call(c"rehearsed");
			self.call(c"restore");
			self.status.set(0);
			good
		}
	}

	unsafe fn get(&self, name: &CStr) -> Object {
		// SAFETY: the C API; a borrowed reference.
		unsafe { (self.api.PyDict_GetItemString)(self.globals, name.as_ptr()) }
	}

	/// Runs what `warm` or `begin` has prepared; false when it ended in an exception. No frame is below, and what can't
	/// be compiled is told without a traceback.
	unsafe fn run(&self) -> bool {
		// SAFETY: the C API.
		unsafe {
			let [main, source, module, script] = [c"main", c"source", c"module", c"script"].map(|name| self.get(name));
			let result = if !source.is_null() {
				let text = (self.api.PyBytes_AsString)(source);
				// `PyCompilerFlags`, which the compiler writes to. The version is of no concern here.
				let ignored = (self.api.PyObject_IsTrue)(self.get(c"ignores_cookie")) != 0;
				let mut flags = [if ignored { IGNORE_COOKIE } else { 0 }, c_int::MAX];
				(self.api.PyRun_StringFlags)(text, MODULE, main, main, &raw mut flags)
			} else if !module.is_null() {
				let runpy = (self.api.PyImport_ImportModule)(c"runpy".as_ptr());
				self.method(runpy, c"_run_module_as_main", module)
			} else if !script.is_null() {
				self.script(script, main)
			} else if (self.api.PyRun_AnyFileExFlags)(stdin, c"<stdin>".as_ptr(), 0, null_mut()) != 0 {
				// From standard input, on a terminal interactively. The exit code is as of any error.
				self.status.set(1);
				return false;
			} else {
				return true;
			};
			let exits = result.is_null() && (self.api.PyErr_ExceptionMatches)(exception(c"PyExc_SystemExit")) != 0;
			if result.is_null() {
				self.caught();
			}
			// A script that has ended otherwise than by an exit has no file any more. That of the warm-up is watched.
			if !script.is_null() && !exits && CLONE.get().is_some() {
				for name in [c"__file__", c"__cached__"] {
					(self.api.PyDict_DelItemString)(main, name.as_ptr());
					(self.api.PyErr_Clear)();
				}
			}
			!result.is_null()
		}
	}

	/// Runs a script as `_PyRun_SimpleFile` does (pythonrun.c), which deals with its exceptions itself: an open
	/// descriptor, the name, and whether it is compiled already.
	unsafe fn script(&self, script: Object, main: Object) -> Object {
		// SAFETY: the C API; the tuple keeps the name.
		unsafe {
			let item = |i| (self.api.PyTuple_GetItem)(script, i);
			let file = libc::fdopen((self.api.PyLong_AsLong)(item(0)) as c_int, c"rb".as_ptr());
			let result = if (self.api.PyObject_IsTrue)(item(2)) != 0 {
				let code = self.compiled(file);
				libc::fclose(file);
				if code.is_null() { code } else { (self.api.PyEval_EvalCode)(code, main, main) }
			} else {
				let name = (self.api.PyBytes_AsString)(item(1));
				(self.api.PyRun_FileExFlags)(file, name, MODULE, main, main, 1, null_mut())
			};
			// Standard streams are flushed before an exception is told, and what comes of that is not.
			let (mut kind, mut value, mut traceback) = (null_mut(), null_mut(), null_mut());
			(self.api.PyErr_Fetch)(&raw mut kind, &raw mut value, &raw mut traceback);
			for name in [c"stderr", c"stdout"] {
				let stream = (self.api.PySys_GetObject)(name.as_ptr());
				(self.api.Py_DecRef)(self.method(stream, c"flush", null_mut()));
				(self.api.PyErr_Clear)();
			}
			(self.api.PyErr_Restore)(kind, value, traceback);
			result
		}
	}

	/// The code in a `.pyc` file (`run_pyc_file` in pythonrun.c).
	unsafe fn compiled(&self, file: *mut libc::FILE) -> Object {
		// SAFETY: the C API.
		unsafe {
			let fail = |text: &CStr| (self.api.PyErr_SetString)(exception(c"PyExc_RuntimeError"), text.as_ptr());
			let failed = || !(self.api.PyErr_Occurred)().is_null();
			if (self.api.PyMarshal_ReadLongFromFile)(file) != (self.api.PyImport_GetMagicNumber)() {
				if !failed() {
					fail(c"Bad magic number in .pyc file");
				}
				return null_mut();
			}
			// The rest of the header.
			for _ in 0..3 {
				(self.api.PyMarshal_ReadLongFromFile)(file);
			}
			if failed() {
				return null_mut();
			}
			let code = (self.api.PyMarshal_ReadLastObjectFromFile)(file);
			if !self.is_a(code, exported(c"PyCode_Type")) {
				fail(c"Bad code object in .pyc file");
				return null_mut();
			}
			code
		}
	}

	/// Calls a method with a tuple of arguments, or with none; null where one of these is, or with an exception.
	unsafe fn method(&self, object: Object, name: &CStr, arguments: Object) -> Object {
		// SAFETY: the C API.
		unsafe {
			if object.is_null() {
				return object;
			}
			let method = (self.api.PyObject_GetAttrString)(object, name.as_ptr());
			if method.is_null() {
				return method;
			}
			let result = (self.api.PyObject_CallObject)(method, arguments);
			(self.api.Py_DecRef)(method);
			result
		}
	}

	unsafe fn is_a(&self, object: Object, class: Object) -> bool {
		// SAFETY: the C API.
		unsafe { !object.is_null() && (self.api.PyObject_IsInstance)(object, class) > 0 }
	}

	/// Deals with the exception that is set, as the interpreter's main does: the exit code is set then.
	unsafe fn caught(&self) {
		// SAFETY: the C API.
		unsafe {
			if (self.api.PyErr_ExceptionMatches)(exception(c"PyExc_SystemExit")) != 0 {
				self.status.set(self.exit_code());
				return;
			}
			let interrupted = (self.api.PyErr_ExceptionMatches)(exception(c"PyExc_KeyboardInterrupt")) != 0;
			(self.api.PyErr_Print)();
			self.status.set(if interrupted { INTERRUPTED } else { 1 });
		}
	}

	/// The exit code that the SystemExit asks for which is set (`handle_system_exit` in pythonrun.c); says what is no
	/// number. In C as there, because the program may have changed what Python code would use, or trace it.
	unsafe fn exit_code(&self) -> c_int {
		// SAFETY: the C API.
		unsafe {
			libc::fflush(stdout);
			let (mut kind, mut value, mut traceback) = (null_mut(), null_mut(), null_mut());
			(self.api.PyErr_Fetch)(&raw mut kind, &raw mut value, &raw mut traceback);
			// Up to 3.11 it may be what the exception will be made of: `sys.exit((3,))` says so.
			let mut code = null_mut();
			if self.is_a(value, exception(c"PyExc_BaseException")) {
				code = (self.api.PyObject_GetAttrString)(value, c"code".as_ptr());
				(self.api.PyErr_Clear)();
			}
			let said = if code.is_null() { value } else { code };
			let none = exported(c"_Py_NoneStruct");
			let status = if said.is_null() || said == none {
				0
			} else if self.is_a(said, exported(c"PyLong_Type")) {
				// What is no C long is -1.
				(self.api.PyLong_AsLong)(said) as c_int & 0xff
			} else {
				let stream = (self.api.PySys_GetObject)(c"stderr".as_ptr());
				if stream.is_null() || stream == none {
					(self.api.PyObject_Print)(said, stderr, RAW);
				} else {
					(self.api.PyFile_WriteObject)(said, stream, RAW);
				}
				(self.api.PyErr_Clear)();
				if (self.api.PyFile_WriteString)(c"\n".as_ptr(), stream) != 0 {
					libc::fputs(c"\n".as_ptr(), stderr);
				}
				1
			};
			(self.api.PyErr_Clear)();
			// A traceback holds the program's names, and so its files.
			[code, kind, value, traceback].into_iter().for_each(|object| (self.api.Py_DecRef)(object));
			status
		}
	}

	/// The end of the interpreter (`Py_FinalizeEx` in pylifecycle.c), as far as others have a say in it. With no frame
	/// below, as there, because tracebacks and trace functions show it.
	unsafe fn finish(&self) {
		// SAFETY: the C API.
		unsafe {
			let threading = (self.api.PyDict_GetItemString)((self.api.PyImport_GetModuleDict)(), c"threading".as_ptr());
			if !threading.is_null() && self.method(threading, c"_shutdown", null_mut()).is_null() {
				(self.api.PyErr_WriteUnraisable)(threading);
			}
			(self.api.PyObject_CallObject)(self.get(c"run_exits"), null_mut());
			(self.api.PyErr_Clear)();
			for name in [c"stdout", c"stderr"] {
				let stream = (self.api.PySys_GetObject)(name.as_ptr());
				if stream.is_null() || stream == exported(c"_Py_NoneStruct") || self.is_closed(stream) {
					continue;
				}
				if self.method(stream, c"flush", null_mut()).is_null() {
					if name == c"stdout" {
						(self.api.PyErr_WriteUnraisable)(stream);
					}
					(self.api.PyErr_Clear)();
					self.unwritten();
				}
			}
		}
	}

	unsafe fn is_closed(&self, stream: Object) -> bool {
		// SAFETY: the C API.
		unsafe {
			let closed = (self.api.PyObject_GetAttrString)(stream, c"closed".as_ptr());
			let is_closed = !closed.is_null() && (self.api.PyObject_IsTrue)(closed) > 0;
			(self.api.PyErr_Clear)();
			(self.api.Py_DecRef)(closed);
			is_closed
		}
	}

	/// The exit code when output is lost.
	fn unwritten(&self) {
		if self.status.get() != INTERRUPTED {
			self.status.set(120);
		}
	}

	/// From here on no function of the program's is told what `python.py` does. Such a function lives on, and what it
	/// holds, as in an end of the interpreter's own.
	unsafe fn stop_tracing(&self) {
		// SAFETY: the C API; the references are kept.
		unsafe {
			let none = exported(c"_Py_NoneStruct");
			if (self.api.PyObject_CallObject)(self.get(c"get_trace"), null_mut()) != none {
				(self.api.PyEval_SetTrace)(null_mut(), null_mut());
			}
			if (self.api.PyObject_CallObject)(self.get(c"get_profile"), null_mut()) != none {
				(self.api.PyEval_SetProfile)(null_mut(), null_mut());
			}
		}
	}

	/// Ends the process as the interpreter's main does, but without taking apart what was warmed. `plainly`: the
	/// interpreter does all that itself. So it does beside other threads of its own, which may be in the middle of
	/// whatever they hold.
	unsafe fn leave(&self, plainly: bool) -> ! {
		// SAFETY: the C API, then the end of the process.
		unsafe {
			let plainly = plainly || {
				self.finish();
				self.stop_tracing();
				!self.call(c"threads") || (self.api.PyLong_AsLong)(self.get(c"others")) != 0
			};
			if plainly {
				self.call(c"abandon");
				if (self.api.Py_FinalizeEx)() < 0 {
					self.unwritten();
				}
			} else {
				self.call(c"dismantle");
			}
			let status = self.status.get();
			if status == INTERRUPTED {
				// So that a shell sees an interrupted program.
				libc::signal(libc::SIGINT, libc::SIG_DFL);
				libc::kill(libc::getpid(), libc::SIGINT);
			}
			let status = status & 0xff;
			*STATUS.get() = (!plainly).then_some(status);
			libc::exit(status)
		}
	}
}
