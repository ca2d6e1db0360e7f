//! Variables read when a program starts, so that a clone's own count for nothing.

use core::ffi::CStr;

/// By CPython.
pub const PYTHON: &[&CStr] = &[
	c"PYTHONPATH",
	c"PYTHONHOME",
	c"PYTHONOPTIMIZE",
	c"PYTHONWARNINGS",
	c"PYTHONIOENCODING",
	c"PYTHONUTF8",
	c"PYTHONHASHSEED",
	c"PYTHONDEVMODE",
	c"PYTHONSAFEPATH",
	c"PYTHONNOUSERSITE",
	c"PYTHONUSERBASE",
	c"PYTHONDONTWRITEBYTECODE",
	c"PYTHONPYCACHEPREFIX",
	c"PYTHONINTMAXSTRDIGITS",
	c"PYTHONUNBUFFERED",
	c"PYTHONFAULTHANDLER",
	c"PYTHONTRACEMALLOC",
	c"PYTHONNODEBUGRANGES",
	c"PYTHONWARNDEFAULTENCODING",
	c"PYTHONINSPECT",
];
/// By Perl.
pub const PERL: &[&CStr] = &[c"PERL5LIB", c"PERLLIB", c"PERL5OPT", c"PERL_UNICODE", c"PERLIO", c"PERL_HASH_SEED"];
/// By Ruby.
pub const RUBY: &[&CStr] = &[c"RUBYLIB", c"RUBYOPT", c"RUBY_THREAD_VM_STACK_SIZE"];
/// By Node and Java.
pub const RUNTIMES: &[&CStr] = &[
	c"NODE_OPTIONS",
	c"NODE_PATH",
	c"NODE_NO_WARNINGS",
	c"NODE_PENDING_DEPRECATION",
	c"CLASSPATH",
	c"JAVA_TOOL_OPTIONS",
	c"JDK_JAVA_OPTIONS",
	c"_JAVA_OPTIONS",
];
/// By the dynamic linker and OpenMP, and by programs that start a Python of an environment.
pub const LOADER: &[&CStr] = &[c"LD_LIBRARY_PATH", c"OMP_NUM_THREADS", c"VIRTUAL_ENV"];
/// By all of these: of the locale.
pub const LOCALE: &[&CStr] = &[c"LC_ALL", c"LC_CTYPE", c"LANG"];
/// Those that count in a template which its callers make anew.
pub const ALL: [&[&CStr]; 6] = [PYTHON, PERL, RUBY, RUNTIMES, LOADER, LOCALE];
