"""Before a fork: large memory is sealed, and what a clone won't have is told."""

from __future__ import annotations

import sys
import threading
from typing import Callable, List

from .. import Error, seal, unsupported

#: Less anonymous memory than this, in bytes, is copied about as fast as it would be sealed.
_LARGE = 256 << 20
_refused = False


def prepare(tell: Callable[[str], None], advice: str) -> None:
	"""Seals what there is, if it is much, and tells of threads."""
	global _refused
	names = _threads()
	if names:
		them = "a thread" if len(names) == 1 else f"{len(names)} threads"
		tell(f"clones don't have {them} of the process they are made of ({', '.join(names[:5])}): {advice}.")
	if _refused or unsupported or _anonymous() < _LARGE:
		return
	try:
		seal(threads="stop")
	except Error as wrong:
		_refused = True
		tell(f"memory isn't sealed, and clones are plain forks: {wrong.strerror or wrong}")


def _threads() -> List[str]:
	"""Python's threads, and gRPC's, which it starts without Python's knowledge."""
	names = [
		each.name
		for each in threading.enumerate()
		if each is not threading.main_thread() and not each.name.startswith("pytest_timeout ")
	]
	if "grpc" in sys.modules:
		names += _native_threads("grpc", "event_engine")
	return names


def _native_threads(*prefixes: str) -> List[str]:
	import os

	found = []
	try:
		for task in os.listdir("/proc/self/task"):
			with open(f"/proc/self/task/{task}/comm") as file:
				name = file.read().strip()
			if name.startswith(prefixes):
				found.append(name)
	except OSError:  # a thread that has just ended, or another system
		pass
	return found


def _anonymous() -> int:
	try:
		with open("/proc/self/status") as file:
			for line in file:
				if line.startswith("RssAnon:"):
					return int(line.split()[1]) << 10
	except OSError:  # another system
		pass
	return 0
