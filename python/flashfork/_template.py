"""Templates of other programs, and clones of these."""

import ctypes
import os
import subprocess
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Optional, Union

from . import _library
from ._clone import Clone
from ._errors import StaleTemplate
from ._files import File, Files
from ._library import NATIVE, failed, library, string

_Text = Union[str, bytes, "os.PathLike[str]", "os.PathLike[bytes]"]

#: How often a template is warmed anew for one clone, where it is stale again as soon as that is done.
_MOST_RENEWED = 20

_READY = {"auto": 0, "main": 1, "call": 2}
_STATES = {0: "waiting", 1: "stopped", 2: "silent", 3: "strange"}
_PLACES = {
	1: "main",
	2: "call",
	3: "python",
	4: "perl",
	5: "ruby",
	6: "idle",
	7: "listen",
	8: "line",
	10: "node",
}


@dataclass(frozen=True)
class TemplateInfo:
	"""What a template knows about itself. What only a template knows is 0 for one that doesn't answer."""

	name: str
	#: Its process; 0 where it can't be seen from here.
	pid: int
	#: "waiting" for callers, or why it doesn't answer: "stopped", "silent", or "strange", of another version.
	state: str
	#: Where it waits: "python", "perl", "ruby" or "node" for one that waits for what a clone shall run, "main", "call" …
	ready: str
	#: Bytes of its memory that are sealed; with 0 its clones are plain forks.
	sealed_bytes: int
	clones_made: int
	clones_running: int
	#: Most clones it makes; 0: any number.
	max_clones: int
	#: What the program was made of and has changed since; if it is not 0 there are no clones (:class:`StaleTemplate`).
	changed_files: int
	#: Such files of which a change would not be noticed.
	unwatched_files: int


class Template:
	"""A program that was started once, is warm, and waits for clones to be asked for.

        numpy = Template.warm("numpy", [sys.executable, "-c", "import numpy"])
        numpy.run(["job.py", "7"], check=True)

    Names are those of ``flashfork ls``: what one has warmed the other can clone. A template outlives this process; as a
    context manager it is removed at the end.
    """

	def __init__(self, name: str):
		"""The template of that name; whether there is one is seen when it is used."""
		self.name = name

	@classmethod
	def warm(
		cls,
		name: str,
		argv: Sequence[_Text],
		*,
		env: Optional[Mapping[str, str]] = None,
		ready: str = "auto",
		max_clones: int = 0,
		watch: bool = False,
		stdout: File = subprocess.DEVNULL,
		stderr: File = None,
		timeout: Optional[float] = None,
	) -> "Template":
		"""Starts a program in the background and waits until it is warm.

        ``ready`` is "auto" (an interpreter has run what it was given; before ``main`` in other programs), "main", or
        "call" (where the program calls ``flashfork_ready``). ``env`` is its environment, this process's if None.
        ``stdout`` and ``stderr`` are for what it prints while it is warmed. The template goes after ``max_clones``
        clones, and the warm-up is given up after ``timeout`` seconds. With ``watch`` clones find it warmed anew when its
        program has changed, as with ``fresh`` of :meth:`start`, or when their environment has other values of variables
        that are read at a program's start.

        Raises :class:`Error`, with nothing left running: the name is taken (EEXIST), no such program (ENOENT), it ended
        before it was ready (ECHILD), ``timeout`` (ETIMEDOUT); :class:`Refused` if it can't be a template.
        """
		chosen = _READY.get(ready)
		if chosen is None:
			raise ValueError(f'ready is "auto", "main" or "call", not {ready!r}')
		argv = _library.words(argv)
		if not argv:
			raise ValueError("argv names no program")
		if max_clones < 0:
			raise ValueError(f"max_clones is 0 for any number, or more, not {max_clones}")
		with Files() as files:
			output = (ctypes.c_int * 2)(files.descriptor(stdout, 1), files.descriptor(stderr, 2))
			options = _library.WarmOptions(
				shim=os.fsencode(NATIVE / "libflashfork_preload.so"),
				envp=_environment(env),
				ready=chosen,
				max_clones=max_clones,
				watch=watch,
				output=output,
				timeout_ms=0 if timeout is None else max(1, round(timeout * 1000)),
			)
			arguments = _library.strings(argv)
			if library().template_warm(_runtime(), string(name), arguments, options, None) != 0:
				raise failed()
		return cls(name)

	@classmethod
	def all(cls) -> list[TemplateInfo]:
		"""Every template there is, in order of their names, those included that don't answer."""
		found: list[TemplateInfo] = []

		def each(name: bytes, facts: Any, _: object) -> None:
			found.append(_info(os.fsdecode(name), facts.contents))

		if library().template_list(_runtime(), _library.EACH_TEMPLATE(each), None) != 0:
			raise failed()
		return found

	def info(self) -> TemplateInfo:
		"""What it knows about itself. Raises :class:`Error`: there is none (ENOENT), or it doesn't answer."""
		facts = _library.TemplateFacts()
		if library().template_info(_runtime(), string(self.name), facts) != 0:
			raise failed()
		return _info(self.name, facts)

	def remove(self) -> int:
		"""Frees the name, and returns how many clones run on; the template ends with the last."""
		running = ctypes.c_uint64()
		if library().template_remove(_runtime(), string(self.name), running) != 0:
			raise failed()
		return running.value

	def __enter__(self) -> "Template":
		return self

	def __exit__(self, *_: object) -> None:
		self.remove()

	def __repr__(self) -> str:
		return f"<flashfork.Template {self.name}>"

	def start(
		self,
		args: Iterable[_Text] = (),
		*,
		fresh: bool = False,
		env: Optional[Mapping[str, str]] = None,
		cwd: Optional[_Text] = None,
		stdin: File = None,
		stdout: File = None,
		stderr: File = None,
	) -> "Clone":
		"""Starts a clone, with ``args`` behind those that the template was started with; as ``subprocess.Popen``.

        Raises :class:`Error` if there is no such template or directory, or it doesn't answer; :class:`StaleTemplate` if
        its program would be another one now. With ``fresh`` it is warmed anew then, by its own command line, directory,
        environment and options, and the old one stays if that fails; one with threads that listens on ports of TCP has
        let go of them, and makes no clones any more.
        """
		args = _library.words(args)
		with Files() as files:
			descriptors = (ctypes.c_int * 3)(
				files.descriptor(stdin, 0), files.descriptor(stdout, 1), files.descriptor(stderr, 2)
			)
			if stderr == subprocess.STDOUT:
				descriptors[2] = descriptors[1]
			name = string(self.name)
			given = (
				_library.strings(list(args)),
				_environment(env),
				None if cwd is None else string(cwd),
				descriptors,
			)
			for _ in range(_MOST_RENEWED):
				handle = library().template_clone(_runtime(), name, *given)
				if handle:
					break
				wrong = failed()
				if not (fresh and isinstance(wrong, StaleTemplate)):
					raise wrong
				output = (ctypes.c_int * 2)(descriptors[2], descriptors[2])
				options = _library.WarmOptions(output=output if descriptors[2] >= 0 else None)
				if library().template_renew(_runtime(), name, options) != 0:
					raise failed()
			else:
				raise wrong
			clone = Clone(handle, [self.name, *map(os.fsdecode, args)], files.ours)
			files.ours = {}
		return clone

	def run(
		self,
		args: Iterable[_Text] = (),
		*,
		fresh: bool = False,
		input: Union[None, str, bytes] = None,
		capture_output: bool = False,
		text: bool = False,
		check: bool = False,
		timeout: Optional[float] = None,
		env: Optional[Mapping[str, str]] = None,
		cwd: Optional[_Text] = None,
		stdin: File = None,
		stdout: File = None,
		stderr: File = None,
	) -> "subprocess.CompletedProcess[Any]":
		"""Runs a clone to its end; arguments, result and exceptions are those of ``subprocess.run``, and ``fresh`` is
        that of :meth:`start`."""
		if input is not None:
			if stdin is not None:
				raise ValueError("stdin and input may not both be used")
			stdin = subprocess.PIPE
		if capture_output:
			if stdout is not None or stderr is not None:
				raise ValueError("stdout and stderr may not be used with capture_output")
			stdout = stderr = subprocess.PIPE
		args = _library.words(args)
		if isinstance(input, str) and not text:
			raise TypeError("input is text: give text=True, too")
		with self.start(args, fresh=fresh, env=env, cwd=cwd, stdin=stdin, stdout=stdout, stderr=stderr) as clone:
			data = input.encode() if isinstance(input, str) else input
			try:
				out, err = clone.communicate(data, timeout)
			except subprocess.TimeoutExpired:
				clone.kill(group=True)
				clone.wait()
				raise
			status = clone.wait()
		if text:
			out, err = (None if each is None else each.decode().replace("\r\n", "\n") for each in (out, err))
		if check and status != 0:
			raise subprocess.CalledProcessError(status, clone.args, out, err)
		return subprocess.CompletedProcess(clone.args, status, out, err)


def _runtime() -> Optional[bytes]:
	return os.environb.get(b"XDG_RUNTIME_DIR")


def _environment(env: Optional[Mapping[str, str]]) -> Any:
	if env is None:
		pairs = list(os.environb.items())
	else:
		pairs = [(os.fsencode(name), os.fsencode(value)) for name, value in env.items()]
		if any(b"=" in name for name, _ in pairs):
			raise ValueError("illegal environment variable name")
	return _library.strings([name + b"=" + value for name, value in pairs])


def _info(name: str, facts: Any) -> TemplateInfo:
	return TemplateInfo(
		name=name,
		pid=facts.pid,
		state=_STATES.get(facts.state, "strange"),
		ready=_PLACES.get(facts.ready, ""),
		sealed_bytes=facts.sealed_bytes,
		clones_made=facts.clones_made,
		clones_running=facts.clones_running,
		max_clones=facts.max_clones,
		changed_files=facts.changed_files,
		unwatched_files=facts.unwatched_files,
	)
