"""Memory that goes back to how it was in microseconds."""

import ctypes
import weakref
from typing import Any, Optional

from ._library import failed, library


class Region:
	"""Memory that goes back to how it was, as often as wanted: a writable buffer of bytes, zeros at first.

        region = flashfork.Region(64 << 20)
        array = numpy.frombuffer(region, dtype=numpy.float64)
        array[:] = start()
        region.seal()                # this is the state to go back to; copies nothing
        work_on(array)
        region.rollback()

    ``size`` is rounded up to 2 MB. ``pages="auto"`` takes all memory at once, ``"small"`` as it is touched. A region
    lives as long as anything that uses its buffer. Only what lies in it goes back, so don't keep objects of Python in
    it. Until it is sealed, clones of the process don't have it: they end by SIGSEGV if they touch it. Once it is
    sealed, each clone has a copy of its own.
    """

	def __new__(cls, size: int, *, pages: str = "auto") -> "Region":
		chosen = {"auto": 0, "small": 1}.get(pages)
		if chosen is None:
			raise ValueError(f'pages is "auto" or "small", not {pages!r}')
		if size <= 0:
			raise ValueError(f"a region has at least one byte, not {size}")
		functions = library()
		handle = functions.region_create(size, chosen)
		if not handle:
			raise failed()
		# An array of ctypes has the buffer protocol in every version of Python, and buffers keep it alive.
		array = ctypes.c_ubyte * functions.region_length(handle)
		kind = type(cls.__name__, (cls, array), {"__module__": cls.__module__, "__init__": _nothing})
		region: Any = kind.from_address(functions.region_address(handle))  # type: ignore[attr-defined]
		region._handle = handle
		weakref.finalize(region, functions.region_free, handle).atexit = False
		return region  # type: ignore[no-any-return]

	_handle: int

	def seal(self) -> None:
		"""Makes what the region holds now the state to go back to. Nothing else may use it meanwhile.

        Raises :class:`Error`, the region unsealed and its bytes as they were: it is sealed already, or a device or
        unfinished I/O writes into it.
        """
		if library().region_seal(self._handle) != 0:
			raise failed()

	def rollback(self, start: Optional[int] = None, stop: Optional[int] = None) -> None:
		"""Undoes every write since the seal, in this process; between two bytes only, whole pages of 4096, if given.

        Nothing else may use the region meanwhile. Raises :class:`Error`: it isn't sealed yet, the bytes aren't whole
        pages of it, or a part of it was unmapped; the rest is rolled back then.
        """
		if start is None and stop is None:
			done = library().region_rollback(self._handle)
		else:
			first, last, _ = slice(start, stop).indices(library().region_length(self._handle))
			done = library().region_rollback_range(self._handle, first, max(last - first, 0))
		if done != 0:
			raise failed()

	def __repr__(self) -> str:
		return f"<flashfork.Region of {library().region_length(self._handle)} bytes>"


def _nothing(*_: Any, **__: Any) -> None:
	"""What is made from an address needs no more."""
