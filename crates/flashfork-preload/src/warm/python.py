# What the shim does in Python at the ready point of a template, and in its clones. One namespace of its own, seen by no program.
# `given` and `variables` are lists of bytes that the shim sets, `ignored` a set of signals as a number; it reads `main` and what to run,
# `source`, `module` or `script`, and what the template is made of. Its built-in names are a copy: programs may replace those of their own.
import sys

# What is there before any program's code.
_BARE = set(sys.modules)

import os, io, gc, _io, _signal, _weakref, atexit

_SELF = globals()
# What the end needs, whatever the program makes of the modules.
_collect, _objects, run_exits, threads_now = gc.collect, gc.get_objects, atexit._run_exitfuncs, sys._current_frames
get_trace, get_profile = sys.gettrace, sys.getprofile
# Of -c; older ones do as the text says.
ignores_cookie = sys.version_info >= (3, 10)
_FRESH = {k: v for k, v in sys.modules["__main__"].__dict__.items() if not k.startswith("__file") and k != "__loader__"}
# What an end takes from `sys` before anything else (sys_deletes in pylifecycle.c).
_GONE_FIRST = ("path argv ps1 ps2 last_type last_value last_traceback last_exc path_hooks path_importer_cache meta_path"
			   " __interactivehook__").split()
# Where the interpreter's own start has looked for modules, and for which.
_path_at_start, _early = list(sys.path), [name for name in sys.modules if "." not in name]
_STREAMS = ((0, "stdin", "r"), (1, "stdout", "w"), (2, "stderr", "w"))


def _say(*what):
	for name in ("source", "module", "script"):
		_SELF.pop(name, None)
	_SELF.update(what)


def _main(argv, path0, file=None, loader=None):
	"""A __main__ that nobody has used, for a program with these arguments."""
	module = type(sys)("__main__")
	names = module.__dict__
	names.update((k, {} if k == "__annotations__" else v) for k, v in _FRESH.items())
	if file is not None:
		names.update(__file__=file, __cached__=None)
	names["__loader__"] = loader or sys.modules["_frozen_importlib"].BuiltinImporter
	# A clone has them from the ready point, even if there are none: to look is to go through all names of all modules.
	holders = _SELF.get("_mains")
	for holder, name in _holders_of_main() if holders is None else holders:
		holder[name] = module
	sys.modules["__main__"] = module
	_SELF["main"] = names
	sys.argv[:] = argv
	if not getattr(sys.flags, "safe_path", sys.flags.isolated) and path0 is not None:
		sys.path.insert(0, path0)
		_SELF["_path0"] = path0
		_warn_of_shadows(path0)


def _holders_of_main():
	"""Where modules have kept __main__ since they were imported (`__mp_main__` of multiprocessing, rlcompleter, dill): as a list of dictionaries and keys."""
	main = sys.modules["__main__"]
	holders = [(sys.modules, name) for name, module in sys.modules.items() if module is main and name != "__main__"]
	for module in list(sys.modules.values()):
		names = getattr(module, "__dict__", None)
		if module is not main and isinstance(names, dict):
			holders += ((names, name) for name, value in list(names.items()) if value is main)
	return holders


def _warn_of_shadows(directory):
	"""A module beside the program is not imported where the template has one of its name."""
	try:
		entries = os.listdir(directory or ".") if _SELF.get("_names") else ()
	except OSError:
		return
	for entry in sorted(entries):
		name = entry.partition(".")[0]
		if name not in _names:
			continue
		path = os.path.join(directory, entry)
		if entry == name:
			files = (os.path.join(path, "__init__" + suffix) for suffix in _suffixes)
			path = next(filter(os.path.isfile, files), None)
		elif entry[len(name):] not in _suffixes:
			continue
		warmed = getattr(sys.modules.get(name), "__file__", None)
		try:
			if path is None or warmed is None or os.path.samefile(os.path.dirname(path) or ".", os.path.dirname(warmed)):
				continue
		except OSError:
			continue
		_warn(f"flashfork: {path} is not what `import {name}` gives: the template has {warmed} already; rename it, or warm without {name}\n")


def _warn(line):
	try:
		sys.stderr.write(line)
	except (AttributeError, OSError, ValueError):
		# Nobody wants to know.
		pass


def _note_modules():
	"""Those that the warm-up has imported and a script could have beside it: built-in and frozen ones come first in Python, too."""
	import _imp
	external = sys.modules["_frozen_importlib_external"]
	others = _BARE.union(sys.builtin_module_names)
	names = {name for name in sys.modules if "." not in name and name not in others and not _imp.is_frozen(name)}
	suffixes = external.SOURCE_SUFFIXES + external.BYTECODE_SUFFIXES + _imp.extension_suffixes()
	_SELF.update(_modules=set(sys.modules), _names=names, _suffixes=suffixes)
	_made_of()


# Directories and names of modules that were looked up there in vain; files as they were when they were found, before they were read.
_vain, _found = {}, {}


def _watch_imports():
	"""From here on it is noted where modules are looked up, until the program is ready."""
	finder = sys.modules["_frozen_importlib_external"].FileFinder
	own = find = finder.find_spec

	def find_spec(self, fullname, target=None):
		spec = find(self, fullname, target)
		key = (self.path, fullname.rpartition(".")[2])
		if spec is None or spec.loader is None:
			_vain[key] = None
		else:
			_vain.pop(key, None)
			try:
				_found.setdefault(spec.origin, _kept(os.stat(spec.origin)))
			except (OSError, TypeError, ValueError):
				pass
		return spec

	def stop():
		# The program may have put another in its place, which may call this one.
		if finder.__dict__.get("find_spec") is find_spec:
			finder.find_spec = own

	finder.find_spec = find_spec
	_SELF["_stop_watching"] = stop


# Files that were opened to be read, as they were then, None for those that were not there; those that were opened to be written; directories.
_read, _written, _listed = {}, set(), set()


def opened(path, mode, flags):
	"""A file is about to be opened."""
	if type(path) is int or _is_import(sys._getframe(1)):
		return
	path = os.path.abspath(os.fsdecode(path))
	if flags & (os.O_ACCMODE | os.O_CREAT):
		_written.add(path)
	elif path not in _read:
		try:
			_read[path] = _kept(os.stat(path))
		except OSError:
			_read[path] = None


def listed(path):
	"""A directory is about to be read."""
	if type(path) is not int and not _is_import(sys._getframe(1)):
		_listed.add(os.path.abspath(os.fsdecode("." if path is None else path)))


def _is_import(frame):
	"""Whether it is the import of a module, of which more is known."""
	return frame.f_code.co_filename.startswith("<frozen importlib._bootstrap")


def _is_noted(path):
	"""Not what is the system's, or compiled from what is noted."""
	return "\0" not in path and "/__pycache__/" not in path and not path.startswith(("/proc/", "/sys/", "/dev/"))


def _kept(state):
	return state.st_dev, state.st_ino, state.st_size, state.st_mtime_ns


def _made_of():
	"""What the modules were made of: their files or archives, what was looked up in vain, and directories of packages, whose modules programs list."""
	_SELF.pop("_stop_watching")()
	names, listings = set(), set()
	for module in list(sys.modules.values()):
		about = getattr(module, "__dict__", {})
		name, path = about.get("__file__"), about.get("__path__")
		if type(path) is list:
			listings.update(entry for entry in path if type(entry) is str)
		if type(name) is str and "\0" not in name:
			name = os.path.abspath(name)
			# In an archive there is more of a name.
			while name != "/" and not os.path.exists(name):
				name = os.path.dirname(name)
			if os.path.isfile(name):
				names.add(name)
	# Those of the interpreter's own start were looked up before: each in all directories before its own.
	early = [entry for entry in _path_at_start if type(entry) is str]
	for name in [*_early, "sitecustomize", "usercustomize"]:
		spec = getattr(sys.modules.get(name), "__spec__", None)
		origin = getattr(spec, "origin", None)
		if name in sys.modules and not (type(origin) is str and origin[:1] == "/"):
			continue
		for entry in early:
			if origin is not None and origin.startswith(os.path.join(entry, "")):
				break
			_vain[entry, name] = None
	missing = {entry for entry in [*early, *sys.path] if type(entry) is str and entry and not os.path.exists(entry)}
	# What came and went was the warm-up's own.
	names.update(path for path, state in _read.items() if state and _is_noted(path) and os.path.isfile(path))
	missing.update(path for path, state in _read.items() if not state and _is_noted(path) and not os.path.exists(path))
	# Of those where modules are looked for, much of which is none, all names are of no concern: `importlib.metadata` reads them.
	on_path = {os.path.abspath(entry) for entry in [*early, *_SELF.pop("_path_when_ready")] if type(entry) is str}
	directories = {path for path in _listed - listings - on_path if _is_noted(path + "/") and os.path.isdir(path)}
	no_modules = {os.path.join(directory, name) for directory, name in _vain if name and "/" not in name}
	_SELF.update(suffixes=[os.fsencode(suffix) for suffix in _suffixes])
	kinds = {"files": names, "missing": missing, "no_modules": no_modules, "listings": listings, "directories": directories}
	for kind, all in kinds.items():
		_SELF[kind] = [os.fsencode(os.path.abspath(name)) for name in sorted(all) if "\0" not in name]


def compare():
	"""Of files that are watched now: those that are not what the program has read."""
	written = []
	read = [(path, state) for path, state in _read.items() if state and path not in _written]
	for name, before in [*_found.items(), *read]:
		try:
			same = _kept(os.stat(name)) == before
		except OSError:
			same = False
		if not same:
			written.append(os.fsencode(os.path.abspath(name)))
	_SELF["written"] = written


def forget():
	for name in ("files", "missing", "listings", "directories", "suffixes", "no_modules", "written"):
		_SELF.pop(name, None)
	for all in (_vain, _found, _read, _written, _listed):
		all.clear()


def _whole(path):
	"""A path from the root, or as it is where no name leads to the working directory any more."""
	try:
		if path in ("", ".") and sys.version_info >= (3, 11):
			return os.getcwd()
		return path if os.path.isabs(path) else os.path.join(os.getcwd(), path)
	except OSError:
		return path


def _run_as_main(name, alter):
	_say(("module", (name, alter)))


def _script(path, argv):
	name = os.fsdecode(sys.orig_argv[0] if hasattr(sys, "orig_argv") else sys.executable)
	if sys.version_info >= (3, 9):
		path = _whole(path)
	if os.path.isdir(path):
		_main(argv, path)
		return _run_as_main("__main__", False)
	try:
		fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
	except OSError as e:
		_warn(f"{name}: can't open file {path!r}: [Errno {e.errno}] {e.strerror}\n")
		raise SystemExit(2)
	# A pipe is read once, and by the interpreter.
	state = os.fstat(fd)
	if "_stop_watching" in _SELF:
		_found[os.path.abspath(path)] = _kept(state)
	regular = state.st_mode & 0o170000 == 0o100000
	if regular and b"PK\5\6" in os.pread(fd, 65557, max(0, state.st_size - 65557)):
		import zipimport
		try:
			zipimport.zipimporter(path)
		except ImportError:
			pass
		else:
			os.close(fd)
			_main(argv, path)
			return _run_as_main("__main__", False)
	external = sys.modules["_frozen_importlib_external"]
	try:
		path0 = os.path.dirname(os.path.realpath(path))
	except OSError:
		path0 = os.path.dirname(path)
	compiled = path.endswith(".pyc") or regular and os.pread(fd, 2, 0) == external.MAGIC_NUMBER[:2]
	loader = external.SourcelessFileLoader if compiled else external.SourceFileLoader
	_main(argv, path0, path, loader("__main__", path))
	_say(("script", (fd, os.fsencode(path), compiled)))


def _interactive():
	"""Standard input; to a terminal the interpreter says what it is, and lets lines be edited (pymain_header and what follows in main.c)."""
	_say()
	if not os.isatty(0):
		return
	if not sys.flags.quiet:
		_warn(f"Python {sys.version} on {sys.platform}\n")
		if not sys.flags.no_site:
			_warn('Type "help", "copyright", "credits" or "license" for more information.\n')
	if not sys.flags.isolated:
		try:
			import readline
		except ImportError:
			pass
		hook = getattr(sys, "__interactivehook__", None)
		if hook is not None:
			_step(hook)


def _prepare():
	"""What `python3 ARGUMENTS` would run."""
	words = given
	if not words:
		_main([""], "")
		return _interactive()
	first = words[0]
	rest = [os.fsdecode(word) for word in words[1:]]
	if first == b"-":
		_main(["-", *rest], "")
		return _interactive()
	if first[:1] != b"-":
		return _script(os.fsdecode(first), [os.fsdecode(first), *rest])
	kind, value = first[1:2], first[2:]
	if kind not in (b"c", b"m") or not value and len(words) < 2:
		sys.stderr.write(f"flashfork: {os.fsdecode(first)}: a clone of Python takes a script, -c CODE, -m MODULE or -; options are the template's\n")
		raise SystemExit(2)
	if not value:
		value = words[1]
		rest = rest[1:]
	if kind == b"c":
		_main(["-c", *rest], "")
		return _say(("source", value + b"\n"))
	try:
		here = os.getcwd()
	except OSError:
		here = None
	_main(["-m", *rest], here)
	_run_as_main(os.fsdecode(value), True)


def warm():
	words = given
	# The shim has left options before -c and -m in their word: -Ic is none here, it is the interpreter's.
	if words and words[0][:1] == b"-" and len(words[0]) > 2 and words[0][1:2] not in (b"c", b"m"):
		sys.stderr.write("flashfork: write -c and -m as words of their own\n")
		raise SystemExit(2)
	if sys.flags.inspect or skips_line:
		sys.stderr.write("flashfork: clones can't do what -i, PYTHONINSPECT and -x of Python ask for: start it without them\n")
		raise SystemExit(2)
	_watch_imports()
	if words:
		return _prepare()
	_main([""], "")
	_say(("source", b"\n"))


def ready():
	"""The warm-up is over: nothing of it is printed again, nor looked at by the collector."""
	for _, name, _ in _STREAMS:
		stream = getattr(sys, name)
		if stream is not None and name != "stdin":
			stream.flush()
	path0 = _SELF.pop("_path0", None)
	_SELF["_path_when_ready"] = list(sys.path)
	if path0 is not None and path0 in sys.path:
		sys.path.remove(path0)
	_SELF["_warmed"] = sys.modules["__main__"]
	_SELF["_mains"] = _holders_of_main()
	_note_modules()
	# Also what the program has frozen itself.
	gc.unfreeze()
	# What is frozen is not among the collector's objects any more, and clones may write to it. What is in it now was written here.
	_flush_held()
	_SELF["_files"] = [_weakref.ref(thing) for thing in gc.get_objects() if issubclass(type(thing), _io._IOBase)]
	# A collection also empties the lists of free objects: those lie all over memory, and each clone would write to what it takes from there.
	gc.collect()
	gc.freeze()


def _stream(fd, name, mode):
	"""As the interpreter makes it at its start (create_stdio in pylifecycle.c)."""
	try:
		os.fstat(fd)
	except OSError:
		return None
	before = getattr(sys, f"__{name}__")
	encoding, errors = (before.encoding, before.errors) if before is not None else ("utf-8", "strict")
	through = before is not None and before.write_through
	unbuffered = through and mode == "w"
	binary = open(fd, mode + "b", 0 if unbuffered else -1, closefd=False)
	raw = binary if unbuffered else binary.raw
	raw.name = f"<{name}>"
	line = not unbuffered and (name == "stderr" or raw.isatty())
	text = io.TextIOWrapper(binary, encoding, errors, "\n", line_buffering=line, write_through=through)
	text.mode = mode
	return text


def _refresh_random():
	# `random` does so in its own handler of forks, if this is one.
	random = sys.modules.get("random")
	if random is not None and _SELF.get("all_threads"):
		random.seed()
	numpy = sys.modules.get("numpy.random")
	if numpy is not None:
		numpy.seed()


def _refresh_key():
	"""By which the processes of one program know each other: that of the template is known to all its clones."""
	process = sys.modules.get("multiprocessing.process")
	if process is not None:
		settings = process.current_process()._config
		# One of another length is not the one that multiprocessing has made.
		if len(settings.get("authkey") or b"") == 32:
			settings["authkey"] = process.AuthenticationString(os.urandom(32))


def _refresh_signals():
	"""What the caller ignores is ignored already, but Python remembers what it found at its start; handlers of the warm-up stay."""
	for signal in range(1, 65):
		if ignored >> signal - 1 & 1:
			try:
				handler = _signal.getsignal(signal)
				if handler in (_signal.SIG_DFL, _signal.default_int_handler):
					handler = _signal.SIG_IGN
				if handler is not None:
					_signal.signal(signal, handler)
			except (OSError, ValueError):
				# One that nobody can ignore, or of the C library's own.
				pass


def _coerce_locale(names):
	"""Where a program's environment asks for the C locale, CPython has it and what it starts use C.UTF-8 (PEP 538)."""
	asked = next(filter(None, (names.get(name) for name in (b"LC_ALL", b"LC_CTYPE", b"LANG"))), b"C")
	kept = names.get(b"LC_ALL") or not sys.flags.ignore_environment and names.get(b"PYTHONCOERCECLOCALE") == b"0"
	if asked not in (b"C", b"POSIX"):
		return
	if not kept:
		os.environ["LC_CTYPE"] = "C.UTF-8"
		sys.modules["posix"].environ[b"LC_CTYPE"] = b"C.UTF-8"
	elif not sys.flags.utf8_mode:
		# It would have UTF-8, whatever is set (PEP 540): the template's encoding stays.
		import _locale
		real, before = _locale.setlocale, _locale.setlocale(_locale.LC_CTYPE)

		def setlocale(category, locale=None):
			told = real(category, locale)
			if locale == "":
				real(_locale.LC_CTYPE, before)
			return told
		_locale.setlocale = setlocale
		if "locale" in sys.modules:
			sys.modules["locale"]._setlocale = setlocale


def _refresh():
	"""Variables and standard streams as this process has them now."""
	names = {}
	for string in variables:
		key, equals, value = string.partition(b"=")
		if equals:
			names.setdefault(key, value)
	zone = os.environ.get("TZ")
	for environ in (os.environ._data, sys.modules["posix"].environ):
		environ.clear()
		environ.update(names)
	_coerce_locale(names)
	if os.environ.get("TZ") != zone:
		import time
		time.tzset()
	for fd, name, mode in _STREAMS:
		stream = _stream(fd, name, mode)
		setattr(sys, name, stream)
		setattr(sys, f"__{name}__", stream)


def rehearse():
	"""A clone made ahead does what it will do for its caller, with a program that does nothing: so it has written to its memory before."""
	_refresh_random()
	_SELF["_before"] = [(words, words[:]) for words in (sys.argv, sys.path, getattr(sys, "orig_argv", []))]
	_refresh()
	given[:] = [os.fsencode(os.devnull)]
	_prepare()


def rehearsed():
	sys.stdout.write("\n")
	# Modules that handlers of forks have imported stay, as in any fork.
	_empty(sys.modules["__main__"])
	_collect()
	_flush_held()


def restore():
	for words, before in _SELF.pop("_before", ()):
		words[:] = before
	_SELF["_seeded"] = True


def _refresh_thread():
	"""The number of the main thread, which it has kept from the template."""
	threading = sys.modules.get("threading")
	if hasattr(threading, "get_native_id"):
		threading.main_thread()._set_native_id()


def begin():
	"""A clone becomes its caller's program."""
	_step(_refresh_thread)
	_refresh_signals()
	_refresh()
	if not _SELF.get("_seeded"):
		_refresh_random()
	_refresh_key()
	if hasattr(sys, "orig_argv"):
		sys.orig_argv[-2:] = [os.fsdecode(word) for word in given]
	_prepare()


def _ignored(where, e):
	if getattr(sys, "stderr", None) is not None:
		sys.stderr.write(f"Exception ignored in: {where!r}\n{type(e).__name__}: {e}\n")


def _step(do):
	"""One that raises doesn't keep the next from being done; neither does Ctrl-C."""
	try:
		do()
	except BaseException as e:
		_ignored(do, e)


def threads():
	"""Python's own, those that nobody waits for included."""
	_SELF["others"] = len(threads_now()) - 1


def abandon():
	"""The interpreter takes itself apart: nothing is to be kept here."""
	_say()
	for name in ("main", "_mains", "_warmed", "_before"):
		_SELF.pop(name, None)


def dismantle():
	"""The rest of it, but for what was warmed: that ends with the process."""
	_step(_let_go)
	_step(_collect)
	_step(_flush_held)


def _new_names():
	"""Of the modules that the program has imported, in their order, its own first."""
	warmed = _SELF.get("_modules", set())
	names = []
	for name in reversed(sys.modules):
		if name in warmed:
			break
		names.append(name)
	# To look at a name is to write to it, and warmed ones lie all over memory. They come first, unless some were taken out.
	if len(names) != len(sys.modules) - len(warmed):
		names = [name for name in reversed(sys.modules) if name not in warmed]
	return ["__main__", *reversed(names)]


def _let_go():
	"""What the program holds ends in the order of an ordinary end (finalize_modules in pylifecycle.c): whatever nothing but itself
    holds any more, its names still there; then what is left of modules, emptied one after the other."""
	for name in _GONE_FIRST:
		if hasattr(sys, name):
			setattr(sys, name, None)
	for _, name, _ in _STREAMS:
		setattr(sys, name, getattr(sys, f"__{name}__", None))
	_SELF.pop("main", None)
	for holder, name in _SELF.pop("_mains", ()):
		holder[name] = None
	held = []
	for name in _new_names():
		if sys.modules.get(name) is _SELF.get("_warmed"):
			continue
		module = sys.modules.pop(name, None)
		if isinstance(module, type(sys)):
			held.append(_weakref.ref(module))
		del module
	_collect()
	for module in reversed(held):
		_empty(module())


def _empty(module):
	names = getattr(module, "__dict__", None)
	if not isinstance(names, dict):
		return
	for hidden in (True, False):
		for name in list(names):
			if name != "__builtins__" and (name[:1] == "_" and name[:2] != "__") is hidden:
				names[name] = None


def _flush_held():
	"""Files that something still holds; nobody hears of it when that fails."""
	standard = [getattr(sys, f"__{name}__", None) for _, name, _ in _STREAMS]
	for thing in [*standard, *_objects(), *(file() for file in _SELF.get("_files", ()))]:
		if issubclass(type(thing), _io._IOBase):
			try:
				if not thing.closed and thing.writable():
					type(thing).flush(thing)
			except Exception:
				pass
