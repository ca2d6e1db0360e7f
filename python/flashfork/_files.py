"""The standard streams of a child, named as ``subprocess`` has them."""

import os
import subprocess
from typing import IO, Any, Union

#: A file or descriptor; None (that of this process), subprocess.DEVNULL, subprocess.PIPE or subprocess.STDOUT.
File = Union[None, int, IO[Any]]


class Files:
	"""Descriptors for a child: those made here are closed at the end, and the other ends of pipes kept unless taken."""

	def __init__(self) -> None:
		#: By the child's number of the descriptor: this process's end of the pipe.
		self.ours: dict[int, int] = {}
		self._theirs: list[int] = []

	def descriptor(self, file: File, number: int) -> int:
		"""The descriptor that shall be the child's of that number; -1 if there is none."""
		if file is None or file == subprocess.STDOUT:
			return number if _is_open(number) else -1
		if file == subprocess.DEVNULL:
			self._theirs.append(os.open(os.devnull, os.O_RDWR | os.O_CLOEXEC))
			return self._theirs[-1]
		if file == subprocess.PIPE:
			ends = os.pipe2(os.O_CLOEXEC)
			self._theirs.append(ends[number != 0])
			self.ours[number] = ends[number == 0]
			return self._theirs[-1]
		return file if isinstance(file, int) else file.fileno()

	def __enter__(self) -> "Files":
		return self

	def __exit__(self, *_: object) -> None:
		for descriptor in [*self._theirs, *self.ours.values()]:
			os.close(descriptor)


def _is_open(descriptor: int) -> bool:
	try:
		os.fstat(descriptor)
	except OSError:
		return False
	return True
