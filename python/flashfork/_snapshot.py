"""Snapshots of this process, and the way back to them."""

import ctypes
import errno
from collections.abc import Iterable
from typing import Any

from . import _library
from ._errors import error
from ._library import failed, library
from ._process import address_of


def snapshot(
	*,
	descriptors: Iterable[Any] = (),
	keep: Iterable[Any] = (),
	close_new: bool = False,
	trust_allocator: bool = False,
) -> int:
	"""Takes a snapshot of this process, in the place of the one there may be, and returns 0.

    ``restore(n)`` makes this call return n, as often as wanted, with all objects as they were. What doesn't go back:
    descriptors, other processes, what others saw. The process must have one thread.

    ``descriptors`` (numbers, or what has ``fileno()``; at most 64) have their file offset put back. ``keep`` names
    writable buffers, at most 60, that stay as they are at a restore: a ``multiprocessing.RawArray`` or an ``mmap``
    that counts rounds, for example. With ``close_new`` a restore closes descriptors that were opened since. Flush
    files before: what a buffer holds then is written again after each restore.

    Raises :class:`Refused`, nothing taken, if something in the process can't be put back, and :class:`Error`.
    """
	functions = library()
	numbers = [each if isinstance(each, int) else each.fileno() for each in descriptors]
	if any(ctypes.c_int(number).value != number for number in numbers):
		raise error(errno.EBADF, f"no descriptors: {numbers}")
	ranges = [_library.Range(start, start + length) for start, length in map(address_of, keep)]
	options = _library.SnapshotOptions(
		descriptors=(ctypes.c_int * len(numbers))(*numbers),
		descriptor_count=len(numbers),
		keep=(_library.Range * len(ranges))(*ranges),
		keep_count=len(ranges),
		close_new=int(close_new),
		trust_allocator=int(trust_allocator),
	)
	value: int = functions.snapshot(options)
	if value < 0:
		raise failed()
	return value


def restore(value: int = 1) -> None:
	"""Goes back to the snapshot: :func:`snapshot` returns ``value``, at least 1, and this call doesn't return.

    Raises :class:`Error`, and nothing has changed: there is no snapshot; this is a clone of the process that took it,
    or another thread; something that can't be undone has come since.
    """
	library().restore(value)
	raise failed()


def discard() -> None:
	"""Forgets the snapshot, if there is one, and gives its memory back."""
	if library().snapshot_discard() != 0:
		raise failed()
