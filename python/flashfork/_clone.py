"""Clones of a template, while they run and when they have ended."""

import ctypes
import errno
import os
import selectors
import signal
import subprocess
import time
from typing import IO, Any, Optional

from ._library import failed, library


class Clone:
	"""A clone that runs, or has ended. One whose handle is gone, or whose caller's process ends, is killed.

    As a context manager it is waited for at the end.
    """

	def __init__(self, handle: int, args: list[str], pipes: dict[int, int]):
		self._handle: Optional[int] = handle
		self.args = args
		#: Its process, which leads a process group of its own. It is a child of its template.
		self.pid: int = library().clone_pid(handle)
		#: Its exit status, or a negative signal number; None while it runs.
		self.returncode: Optional[int] = None
		#: The other ends of pipes, binary and unbuffered.
		self.stdin: Optional[IO[bytes]] = _opened(pipes.get(0), "wb")
		self.stdout: Optional[IO[bytes]] = _opened(pipes.get(1), "rb")
		self.stderr: Optional[IO[bytes]] = _opened(pipes.get(2), "rb")
		#: What `communicate` has still to write, once it has begun, and what it has read.
		self._unsent: Optional[memoryview] = None
		self._read: dict[Any, list[bytes]] = {}

	def poll(self) -> Optional[int]:
		"""Its return code if it has ended."""
		try:
			return self.wait(0)
		except subprocess.TimeoutExpired:
			return None

	def wait(self, timeout: Optional[float] = None) -> int:
		"""Waits for its end. Raises subprocess.TimeoutExpired, and :class:`Error` if its template was killed."""
		if self.returncode is not None:
			return self.returncode
		end = None if timeout is None else time.monotonic() + timeout
		status = ctypes.c_int()
		while True:
			left = -1 if end is None else max(0, round((end - time.monotonic()) * 1000))
			if library().clone_wait(self._live(), left, status) == 0:
				break
			wrong = failed()
			assert isinstance(wrong, OSError)
			if wrong.errno == errno.ETIMEDOUT and timeout is not None:
				raise subprocess.TimeoutExpired(self.args, timeout)
			if wrong.errno != errno.EINTR:
				raise wrong
		self.returncode = _code(status.value)
		return self.returncode

	def send_signal(self, number: int, *, group: bool = False) -> None:
		"""Sends it a signal; to its whole process group, as a terminal would, with ``group``. None that ended gets it."""
		if library().clone_signal(self._live(), number, int(group)) != 0:
			raise failed()

	def terminate(self) -> None:
		"""Sends SIGTERM."""
		self.send_signal(signal.SIGTERM)

	def kill(self, *, group: bool = False) -> None:
		"""Sends SIGKILL."""
		self.send_signal(signal.SIGKILL, group=group)

	def communicate(self, input: Optional[bytes] = None, timeout: Optional[float] = None) -> "tuple[Any, Any]":
		"""Writes ``input``, reads both outputs to their ends, waits; as ``subprocess.Popen.communicate``, in bytes.

        After a time-out it may be called again, without input: what was read and what is left to write are not lost.
        """
		end = None if timeout is None else time.monotonic() + timeout
		if self._unsent is None:
			self._unsent = memoryview(input or b"")
		elif input:
			raise ValueError("cannot send input after starting communication")
		outputs = (self.stdout, self.stderr)
		with selectors.DefaultSelector() as selector:
			if self.stdin and not self._unsent:
				self.stdin.close()
			elif self.stdin and not self.stdin.closed:
				os.set_blocking(self.stdin.fileno(), False)
				selector.register(self.stdin, selectors.EVENT_WRITE)
			for pipe in outputs:
				if pipe:
					self._read.setdefault(pipe, [])
					if not pipe.closed:
						selector.register(pipe, selectors.EVENT_READ)
			parts = [None if pipe is None else self._read[pipe] for pipe in outputs]
			while selector.get_map():
				ready = selector.select(None if end is None else max(0.0, end - time.monotonic()))
				if end is not None and time.monotonic() >= end:
					texts = [None if part is None else b"".join(part) for part in parts]
					assert timeout is not None
					raise subprocess.TimeoutExpired(self.args, timeout, texts[0], texts[1])
				for key, _ in ready:
					if key.fileobj is self.stdin:
						try:
							self._unsent = self._unsent[os.write(key.fd, self._unsent) :]
						except BrokenPipeError:
							self._unsent = self._unsent[:0]
						if self._unsent:
							continue
					else:
						data = os.read(key.fd, 65536)
						if data:
							self._read[key.fileobj].append(data)
							continue
					selector.unregister(key.fileobj)
					key.fileobj.close()  # type: ignore[union-attr]
		self.wait(None if end is None else max(0.0, end - time.monotonic()))
		return tuple(None if part is None else b"".join(part) for part in parts)  # type: ignore[return-value]

	def close(self) -> None:
		"""Lets go of it: one that still runs is killed, with its process group."""
		for pipe in (self.stdin, self.stdout, self.stderr):
			if pipe:
				pipe.close()
		handle, self._handle = self._handle, None
		if handle:
			library().clone_free(handle)

	def _live(self) -> int:
		if self._handle is None:
			raise ValueError("this clone was closed")
		return self._handle

	def __enter__(self) -> "Clone":
		return self

	def __exit__(self, kind: object, *_: object) -> None:
		try:
			if kind is None:
				self.wait()
		finally:
			self.close()

	def __del__(self) -> None:
		if getattr(self, "_handle", None):
			self.close()

	def __repr__(self) -> str:
		return f"<flashfork.Clone {self.args} of process {self.pid}, {self.returncode}>"


def _opened(descriptor: Optional[int], mode: str) -> Any:
	return None if descriptor is None else open(descriptor, mode, buffering=0)


def _code(status: int) -> int:
	"""A status of wait(2) as ``subprocess`` has it."""
	return -os.WTERMSIG(status) if os.WIFSIGNALED(status) else os.WEXITSTATUS(status)
