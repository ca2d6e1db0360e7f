"""Seals and forks of this process."""

import ctypes
import gc
import os
import sys
import time
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import Any, Union

from . import _library
from ._library import failed, library_or_warn

_Path = Union[str, bytes, "os.PathLike[str]", "os.PathLike[bytes]"]


@dataclass(frozen=True)
class Refusal:
	"""Memory that a seal left alone: its addresses, its name in /proc/self/maps, the reason."""

	start: int
	end: int
	name: str
	reason: str
	explanation: str


@dataclass(frozen=True)
class SealReport:
	"""What a seal did. All zeros where this host can't seal."""

	#: Bytes sealed by this call.
	sealed_bytes: int = 0
	#: Of these, bytes on 2 MB pages.
	huge_bytes: int = 0
	#: Of these, bytes that held no page before.
	filled_bytes: int = 0
	#: Seconds that the call took; signals waited meanwhile.
	seconds: float = 0.0
	#: Most extra memory held at any moment, in bytes.
	peak_extra_bytes: int = 0
	#: Number of this seal in the process, from 1; 0 when there was nothing to seal.
	generation: int = 0
	#: How often other threads were stopped.
	pauses: int = 0
	#: Seconds of the longest of these pauses.
	longest_pause_seconds: float = 0.0
	#: What was left alone, and why.
	refusals: tuple[Refusal, ...] = field(default=(), repr=False)


@dataclass(frozen=True)
class Stats:
	"""Forks that :func:`fork` made in this process and in those it comes from."""

	#: Forks of a process that had sealed nothing.
	plain_forks: int = 0
	#: Seconds these took in the parent, summed; what ``os.register_at_fork`` asks for is part of them.
	plain_seconds: float = 0.0
	#: Forks of a process that had sealed memory.
	sealed_forks: int = 0
	#: Seconds these took in the parent, summed.
	sealed_seconds: float = 0.0


_stats = Stats()
_sealed = False
#: Whether it was a seal that had the garbage collector leave objects alone; and how many it leaves alone from the start.
_froze = False
_FROZEN_AT_FIRST = gc.get_freeze_count()


def seal(
	*,
	threads: str = "stop",
	pages: str = "auto",
	freeze: bool = True,
	trust: Iterable[_Path] = (),
	trust_allocator: bool = False,
) -> SealReport:
	"""Seals this process's memory, so that forks don't copy its page tables. Called again, it seals what is new.

    Other threads are stopped for each step of 2 MB, or with ``threads="refuse"`` are a reason not to seal.
    ``pages="small"`` takes 4 KB pages only: slower to seal, slower to read in a clone. ``freeze`` has the garbage collector leave alone
    what exists now (``gc.freeze``): its runs in a clone would write to all of it. ``trust`` names files with system
    calls of their own that you answer for, and ``trust_allocator`` says that no runtime in the process relies on
    MADV_DONTNEED giving zeros (docs/SYSTEM_CALLS.md).

    Raises :class:`Refused`, and nothing has changed, where something in the process forbids it; :class:`Error` if
    memory is short, for example; ValueError for other values of ``threads`` and ``pages``.
    """
	global _sealed, _froze
	chosen_threads = {"refuse": 0, "stop": 1}.get(threads)
	chosen_pages = {"auto": 0, "small": 1}.get(pages)
	if chosen_threads is None:
		raise ValueError(f'threads is "refuse" or "stop", not {threads!r}')
	if chosen_pages is None:
		raise ValueError(f'pages is "auto" or "small", not {pages!r}')
	library = library_or_warn()
	if library is None:
		return SealReport()
	refusals = []

	def each(vma: "ctypes._Pointer[_library.VmaReport]", _: object) -> None:
		this = vma.contents
		if this.reason:
			texts = [text.decode(errors="replace") for text in (this.name, this.reason, this.explanation)]
			refusals.append(Refusal(this.start or 0, this.end or 0, *texts))

	callback = _library.EACH_VMA(each)
	options = _library.SealOptions(
		pages=chosen_pages,
		trust_allocator=int(trust_allocator),
		each_vma=ctypes.cast(callback, ctypes.c_void_p),
		threads=chosen_threads,
		trust=_library.strings(_library.words(trust)),
	)
	report = _library.SealReport()
	if freeze:
		_froze = _froze or gc.get_freeze_count() <= _FROZEN_AT_FIRST
		gc.collect()
		gc.freeze()
	if library.seal(options, report) != 0:
		wrong = failed()
		if not _sealed:
			_thaw()
		raise wrong
	_sealed = _sealed or report.sealed_bytes > 0
	return SealReport(
		sealed_bytes=report.sealed_bytes,
		huge_bytes=report.huge_bytes,
		filled_bytes=report.filled_bytes,
		seconds=report.elapsed_ns / 1e9,
		peak_extra_bytes=report.peak_extra_bytes,
		generation=report.generation,
		pauses=report.pauses,
		longest_pause_seconds=report.longest_pause_ns / 1e9,
		refusals=tuple(refusals),
	)


def unseal() -> int:
	"""Makes all sealed memory anonymous again, and returns how many bytes that were. Needs as much free memory."""
	global _sealed
	library = library_or_warn()
	if library is None:
		return 0
	count = ctypes.c_uint64()
	if library.unseal(count) != 0:
		raise failed()
	_sealed = False
	_thaw()
	return count.value


def _thaw() -> None:
	global _froze
	if _froze:
		_froze = False
		gc.unfreeze()


def exclude(buffer: Any) -> None:
	"""Keeps the pages of a writable buffer out of every seal: for secrets, and for what is written all the time.

    At most 64 buffers. The buffer must stay where it is: don't resize a bytearray that was excluded.
    """
	library = library_or_warn()
	if library is None:
		return
	start, length = address_of(buffer)
	if library.exclude(start, length) != 0:
		raise failed()


def address_of(buffer: Any) -> tuple[int, int]:
	"""The address of a writable buffer's first byte, and its length in bytes."""
	return ctypes.addressof(ctypes.c_char.from_buffer(buffer)), memoryview(buffer).nbytes


def fork(*, reseed: bool = True) -> int:
	"""``os.fork()``, counted; with what ``os.register_at_fork`` asks for. Returns 0 in the clone.

    It seals nothing: call :func:`seal` once the program is warm. With ``reseed`` the clone's global generator of numpy
    begins anew, if numpy is loaded; those of ``random`` and ``ssl`` always do. Generators that a program has made
    itself (``random.Random``, ``numpy.random.default_rng``) go on where they were, in every clone alike.
    """
	global _stats
	if not hasattr(os, "fork"):
		raise NotImplementedError("this system has no fork")
	begin = time.perf_counter()
	pid = os.fork()
	took = time.perf_counter() - begin
	if pid == 0 and reseed:
		_reseed()
	if _sealed:
		_stats = replace(_stats, sealed_forks=_stats.sealed_forks + 1, sealed_seconds=_stats.sealed_seconds + took)
	else:
		_stats = replace(_stats, plain_forks=_stats.plain_forks + 1, plain_seconds=_stats.plain_seconds + took)
	return pid


def _reseed() -> None:
	# Python reseeds `random` itself, OpenSSL sees the new process, and numpy does nothing.
	numpy_random = sys.modules.get("numpy.random")
	if numpy_random is not None:
		numpy_random.seed()


def stats() -> Stats:
	"""How many forks :func:`fork` made, and how long they took."""
	return _stats
