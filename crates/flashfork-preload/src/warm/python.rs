//! CPython: ready when the code of its command line has run, most often imports.
//!
//! The interpreter is set up as its own `main` does it, through the C API (3.8 and later), which is looked up in the
//! program. Clones run what their callers name from the top, with no frame below: tracebacks look as ever. `python.py`
//! has what is easier said in Python.

use super::entry::name_of_program;
use super::prepare::threads;
use super::take_over::environ;
use super::{CLONE, Single, ahead, end, files, in_handlers, wait};
use core::ffi::{CStr, c_char, c_int, c_long, c_void};
use core::mem::{MaybeUninit, transmute_copy};
use core::ptr::null_mut;
use flashfork_warm::ReadyAt;

const BOOT: &CStr = match CStr::from_bytes_with_nul(concat!(include_str!("python.py"), "\0").as_bytes()) {
    Ok(text) => text,
    Err(_) => panic!("the text holds a NUL byte"),
};

/// `Py_file_input` and `Py_eval_input`: the start symbols of modules and of expressions.
const MODULE: c_int = 257;
const EXPRESSION: c_int = 258;

/// Larger than any version's `PyPreConfig` and `PyConfig`, whose functions know their size.
const CONFIG: usize = 16 << 10;

#[repr(C, align(16))]
struct Config(MaybeUninit<[u8; CONFIG]>);

/// An object, owned or borrowed as the C API says.
type Object = *mut c_void;

/// `PyStatus`.
#[repr(C)]
#[derive(Clone, Copy)]
struct Status {
    kind: c_int,
    function: *const c_char,
    message: *const c_char,
    code: c_int,
}

/// Declares a table of functions, found by name in the program.
macro_rules! api {
    ($($name:ident: fn($($arg:ty),*) $(-> $result:ty)?;)*) => {
        #[allow(non_snake_case)]
        struct Api { $($name: unsafe extern "C" fn($($arg),*) $(-> $result)?,)* }

        impl Api {
            /// `None` if the program is no CPython of version 3.8 or later that exports its API.
            fn find() -> Option<Api> {
                Some(Api { $($name: {
                    // SAFETY: a look-up; a function of CPython's has the type its documentation gives.
                    unsafe {
                        let found = libc::dlsym(libc::RTLD_DEFAULT, concat!(stringify!($name), "\0").as_ptr().cast());
                        if found.is_null() {
                            return None;
                        }
                        transmute_copy(&found)
                    }
                },)* })
            }
        }
    };
}

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
    PyDict_New: fn() -> Object;
    PyDict_SetItemString: fn(Object, *const c_char, Object) -> c_int;
    PyDict_GetItemString: fn(Object, *const c_char) -> Object;
    PyList_New: fn(isize) -> Object;
    PyList_Append: fn(Object, Object) -> c_int;
    PyList_Size: fn(Object) -> isize;
    PyList_GetItem: fn(Object, isize) -> Object;
    PyBytes_FromString: fn(*const c_char) -> Object;
    PyBytes_AsString: fn(Object) -> *const c_char;
    PyLong_AsLong: fn(Object) -> c_long;
    PyLong_FromUnsignedLongLong: fn(u64) -> Object;
    Py_DecRef: fn(Object);
    Py_FinalizeEx: fn() -> c_int;
    PyErr_Print: fn();
    PyErr_ExceptionMatches: fn(Object) -> c_int;
    PyErr_Fetch: fn(*mut Object, *mut Object, *mut Object);
    PyErr_NormalizeException: fn(*mut Object, *mut Object, *mut Object);
    PyRun_AnyFileExFlags: fn(*mut libc::FILE, *const c_char, c_int, *mut c_void) -> c_int;
    PyOS_BeforeFork: fn();
    PyOS_AfterFork_Child: fn();
    PyOS_AfterFork_Parent: fn();
}

unsafe extern "C" {
    static mut stdin: *mut libc::FILE;
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
        let options = options(words);
        let python = Python { globals: api.start(&words[..options]), api };
        python.set_list(c"given", &words[options.min(words.len())..]);
        if !python.call(c"warm()") || !python.run() || !python.call(c"ready()") {
            python.leave(true);
        }
        python.note_files();
        while wait(ReadyAt::Python) {
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
        if python.call(c"begin()") {
            python.run();
        }
        python.leave(false)
    }
}

/// How many words are the interpreter's name and options: what is behind them says what to run.
unsafe fn options(words: &[*mut c_char]) -> usize {
    let mut at = 1;
    while at < words.len() {
        // SAFETY: an argument of main's.
        let word = unsafe { CStr::from_ptr(words[at]) }.to_bytes();
        if word.len() < 2 || word[0] != b'-' {
            break;
        }
        // `-c` and `-m` say what to run, wherever they stand among options of one letter.
        let told = word.iter().position(|b| b"cmWX".contains(b)).filter(|_| word[1] != b'-');
        match told {
            Some(i) if b"cm".contains(&word[i]) => break,
            // The value is the next word, if it isn't in this one.
            Some(i) if i + 1 == word.len() => at += 2,
            _ if word == b"--check-hash-based-pycs" => at += 2,
            _ => at += 1,
        }
    }
    at.min(words.len())
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
            (self.PyDict_SetItemString)(globals, c"__builtins__".as_ptr(), (self.PyEval_GetBuiltins)());
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
        // Another thread may hold a stream's lock for ever, by a read from it; and a sandbox need not allow what would
        // be called here.
        if let Some(status) = *STATUS.get()
            && !crate::sandbox::entered()
            && threads() == 1
        {
            libc::fflush(null_mut());
            end::tell(status);
            libc::_exit(status);
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
}

impl Python {
    /// Sets a name of `python.py` to a list of strings.
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

    /// What the warm-up was made of.
    unsafe fn note_files(&self) {
        // SAFETY: the C API; a list of strings, each with its NUL.
        unsafe {
            let list = self.get(c"files");
            for i in 0..(self.api.PyList_Size)(list) {
                let name = (self.api.PyBytes_AsString)((self.api.PyList_GetItem)(list, i));
                files::note(CStr::from_ptr(name));
            }
        }
    }

    /// Sets a name of `python.py` to a number.
    unsafe fn set_number(&self, name: &CStr, number: u64) {
        // SAFETY: the C API.
        unsafe {
            let number = (self.api.PyLong_FromUnsignedLongLong)(number);
            (self.api.PyDict_SetItemString)(self.globals, name.as_ptr(), number);
            (self.api.Py_DecRef)(number);
        }
    }

    /// Evaluates an expression of `python.py`; false when it has set `status`, or failed.
    unsafe fn call(&self, expression: &CStr) -> bool {
        // SAFETY: the C API.
        unsafe {
            let code = (self.api.Py_CompileString)(expression.as_ptr(), c"<flashfork>".as_ptr(), EXPRESSION);
            let result = (self.api.PyEval_EvalCode)(code, self.globals, self.globals);
            (self.api.Py_DecRef)(code);
            if result.is_null() {
                self.caught();
                return false;
            }
            (self.api.Py_DecRef)(result);
            true
        }
    }

    /// What comes after the fork, with a program that does nothing, in a clone that has no caller yet. Should it fail,
    /// the clone ends, and one that was not rehearsed takes its place.
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
            let good = self.call(c"rehearse()") && self.run() && self.call(c"rehearsed()");
            self.call(c"restore()");
            good
        }
    }

    unsafe fn get(&self, name: &CStr) -> Object {
        // SAFETY: the C API; a borrowed reference.
        unsafe { (self.api.PyDict_GetItemString)(self.globals, name.as_ptr()) }
    }

    /// Runs what `warm` or `begin` has prepared; false when it ended in an exception.
    unsafe fn run(&self) -> bool {
        // SAFETY: the C API.
        unsafe {
            let (source, file) = (self.get(c"source"), self.get(c"file"));
            let code = self.get(c"code");
            if !source.is_null() {
                // Compiled here, so that a syntax error is shown without a traceback.
                let text = (self.api.PyBytes_AsString)(source);
                let code = (self.api.Py_CompileString)(text, (self.api.PyBytes_AsString)(file), MODULE);
                return self.evaluate(code);
            }
            if !code.is_null() {
                return self.evaluate(code);
            }
            // From standard input, on a terminal interactively. The exit code is as of any error.
            if (self.api.PyRun_AnyFileExFlags)(stdin, c"<stdin>".as_ptr(), 0, null_mut()) != 0 {
                self.set_status(c"1");
                return false;
            }
            true
        }
    }

    unsafe fn evaluate(&self, code: Object) -> bool {
        // SAFETY: the C API.
        unsafe {
            let main = self.get(c"main");
            if code.is_null() || (self.api.PyEval_EvalCode)(code, main, main).is_null() {
                self.caught();
                return false;
            }
            true
        }
    }

    /// Deals with the exception that is set, as the interpreter's main does: `status` has the exit code then.
    unsafe fn caught(&self) {
        // SAFETY: the C API; exceptions are variables that hold objects.
        unsafe {
            let exception = |name: &CStr| *libc::dlsym(libc::RTLD_DEFAULT, name.as_ptr()).cast::<Object>();
            if (self.api.PyErr_ExceptionMatches)(exception(c"PyExc_SystemExit")) != 0 {
                let (mut kind, mut value, mut traceback) = (null_mut(), null_mut(), null_mut());
                (self.api.PyErr_Fetch)(&raw mut kind, &raw mut value, &raw mut traceback);
                (self.api.PyErr_NormalizeException)(&raw mut kind, &raw mut value, &raw mut traceback);
                (self.api.PyDict_SetItemString)(self.globals, c"caught".as_ptr(), value);
                self.call(c"exit_code()");
                // A traceback holds the program's names, and so its files.
                [kind, value, traceback].into_iter().for_each(|object| (self.api.Py_DecRef)(object));
                return;
            }
            let interrupted = (self.api.PyErr_ExceptionMatches)(exception(c"PyExc_KeyboardInterrupt")) != 0;
            (self.api.PyErr_Print)();
            self.set_status(if interrupted { c"-1" } else { c"1" });
        }
    }

    unsafe fn set_status(&self, number: &CStr) {
        // SAFETY: the C API.
        unsafe {
            let code = (self.api.Py_CompileString)(number.as_ptr(), c"<flashfork>".as_ptr(), EXPRESSION);
            let value = (self.api.PyEval_EvalCode)(code, self.globals, self.globals);
            (self.api.PyDict_SetItemString)(self.globals, c"status".as_ptr(), value);
        }
    }

    /// Ends the process as the interpreter's main does, but without taking apart what was warmed. `plainly`: the
    /// interpreter does all that itself. So it does beside other threads of its own, which may be in the middle of
    /// whatever they hold.
    unsafe fn leave(&self, plainly: bool) -> ! {
        // SAFETY: the C API, then the end of the process.
        unsafe {
            let plainly = plainly || {
                self.call(c"finish()");
                !self.call(c"threads()") || (self.api.PyLong_AsLong)(self.get(c"others")) != 0
            };
            if !plainly {
                self.call(c"dismantle()");
            }
            let mut status = (self.api.PyLong_AsLong)(self.get(c"status"));
            if plainly {
                self.call(c"abandon()");
                if (self.api.Py_FinalizeEx)() < 0 {
                    status = 120;
                }
            }
            if status == -1 {
                // So that a shell sees an interrupted program.
                libc::signal(libc::SIGINT, libc::SIG_DFL);
                libc::kill(libc::getpid(), libc::SIGINT);
            }
            let status = status as c_int & 0xff;
            *STATUS.get() = (!plainly).then_some(status);
            libc::exit(status)
        }
    }
}
