"""What a clone writes goes to files that its parent has too: a clone that crashed can't hand over what it wrote."""

from __future__ import annotations

import os
import sys
import tempfile
from typing import Any, List, Tuple

import pytest

#: A clone that has written more than this, in bytes, is ended: what a test writes is kept until its end.
MOST = 256 << 20
#: What is shown of one text, in characters: more is cut in its middle.
SHOWN = 16 << 20


class Output:
	"""Three files: what was captured of standard output and standard error, and what went past the capture."""

	def __init__(self, config: pytest.Config):
		capture = _capture(config)
		self._files: List[Any] = []
		#: What the parent had captured before the clone was made.
		self._before: Tuple[str, str] = ("", "")
		if capture is None:
			return
		self._files = [tempfile.TemporaryFile(buffering=0) for _ in range(3)]
		self._before = tuple(capture.read_global_capture())

	def redirect(self, config: pytest.Config) -> None:
		"""In the clone: from now on its output goes to the files. With ``-s`` it goes where the parent's goes."""
		capture = _capture(config)
		if capture is None:
			return
		active = capture._global_capturing.is_started()
		capture.stop_global_capturing()
		past = self._files[2].fileno()
		with open(os.devnull, "rb") as nothing:
			os.dup2(nothing.fileno(), 0)
		os.dup2(past, 1)
		os.dup2(past, 2)
		_redirect_faulthandler(config, past)
		capture.start_global_capturing()
		for number, file in ((1, self._files[0]), (2, self._files[1])):
			half = (capture._global_capturing.out, capture._global_capturing.err)[number - 1]
			if hasattr(half, "targetfd"):  # it captures the descriptor
				os.dup2(file.fileno(), half.tmpfile.fileno())
				os.dup2(file.fileno(), number)
		if active:
			sys.stdout.write(self._before[0])
			sys.stderr.write(self._before[1])
		else:
			capture.suspend_global_capture()

	def too_much(self) -> bool:
		"""Whether the clone has written more than a test may."""
		return any(os.fstat(file.fileno()).st_size > MOST for file in self._files)

	def captured(self) -> "List[Tuple[str, str]]":
		"""What the clone wrote since its last report, each with the name of its stream."""
		return [(name, self._text(n)) for n, name in enumerate(("stdout", "stderr")) if n < len(self._files)]

	def past_capture(self) -> str:
		"""What the clone wrote past the capture since this was asked for last: for the terminal."""
		if not self._files:
			return ""
		text = self._text(2)
		os.ftruncate(self._files[2].fileno(), 0)
		os.lseek(self._files[2].fileno(), 0, os.SEEK_SET)
		return text

	def close(self) -> None:
		for file in self._files:
			file.close()

	def _text(self, number: int) -> str:
		file = self._files[number].fileno()
		size = os.fstat(file).st_size
		if size <= SHOWN:
			return os.pread(file, size, 0).decode(errors="replace")
		half = SHOWN // 2
		parts = (os.pread(file, half, 0), os.pread(file, half, size - half))
		return _cut(size - SHOWN).join(part.decode(errors="replace") for part in parts)


def shortened(text: str) -> str:
	"""The text without its middle if it is very long."""
	if len(text) <= SHOWN:
		return text
	return text[: SHOWN // 2] + _cut(len(text) - SHOWN) + text[-SHOWN // 2 :]


def _cut(count: int) -> str:
	return f"\n[... {count} more left out by flashfork ...]\n"


def _capture(config: pytest.Config) -> Any:
	capture: Any = config.pluginmanager.getplugin("capturemanager")
	if capture is None or not capture.is_globally_capturing() or capture._global_capturing is None:
		return None
	return capture


def _redirect_faulthandler(config: pytest.Config, past: int) -> None:
	"""Tracebacks of fatal errors go to a descriptor of their own."""
	try:
		from _pytest.faulthandler import fault_handler_stderr_fd_key
	except ImportError:
		return
	descriptor = config.stash.get(fault_handler_stderr_fd_key, None)
	if descriptor is not None:
		os.dup2(past, descriptor)
