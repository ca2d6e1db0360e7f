"""The C library, by ctypes: its structures and functions are those of flashfork.h."""

import ctypes
import errno
import os
import platform
import sys
import warnings
from ctypes import CFUNCTYPE, POINTER, Structure, c_char_p, c_int, c_int64, c_size_t, c_uint32, c_uint64, c_void_p
from pathlib import Path
from typing import Any, Optional

from ._errors import PlainForks, error

#: Where the command, the shim and the library lie.
NATIVE = Path(__file__).parent / "native"


class SealOptions(Structure):
	_fields_ = [
		("pages", c_uint32),
		("trust_allocator", c_uint32),
		("each_vma", c_void_p),
		("each_vma_data", c_void_p),
		("threads", c_uint64),
		("trust", POINTER(c_char_p)),
		("reserved", c_uint64 * 2),
	]


class SealReport(Structure):
	_fields_ = [
		("sealed_bytes", c_uint64),
		("huge_bytes", c_uint64),
		("filled_bytes", c_uint64),
		("elapsed_ns", c_uint64),
		("peak_extra_bytes", c_uint64),
		("generation", c_uint32),
		("write_sealed", c_uint32),
		("pauses", c_uint64),
		("longest_pause_ns", c_uint64),
		("reserved", c_uint64 * 2),
	]


class VmaReport(Structure):
	_fields_ = [
		("start", c_void_p),
		("end", c_void_p),
		("name", c_char_p),
		("sealed_bytes", c_uint64),
		("kept_bytes", c_uint64),
		("reason", c_char_p),
		("explanation", c_char_p),
	]


class Range(Structure):
	_fields_ = [("start", c_void_p), ("end", c_void_p)]


class SnapshotOptions(Structure):
	_fields_ = [
		("descriptors", POINTER(c_int)),
		("descriptor_count", c_size_t),
		("keep", POINTER(Range)),
		("keep_count", c_size_t),
		("close_new", c_uint32),
		("trust_allocator", c_uint32),
		("reserved", c_uint64 * 4),
	]


class WarmOptions(Structure):
	_fields_ = [
		("shim", c_char_p),
		("envp", POINTER(c_char_p)),
		("ready", c_uint64),
		("max_clones", c_uint64),
		("output", POINTER(c_int)),
		("cancel", POINTER(c_int)),
		("timeout_ms", c_uint64),
		("watch", c_uint64),
		("reserved", c_uint64 * 1),
	]


class TemplateFacts(Structure):
	_fields_ = [
		("pid", c_uint64),
		("state", c_uint32),
		("ready", c_uint32),
		("sealed_bytes", c_uint64),
		("clones_made", c_uint64),
		("clones_running", c_uint64),
		("max_clones", c_uint64),
		("changed_files", c_uint64),
		("unwatched_files", c_uint64),
		("reserved", c_uint64 * 2),
	]


EACH_VMA = CFUNCTYPE(None, POINTER(VmaReport), c_void_p)
EACH_TEMPLATE = CFUNCTYPE(None, c_char_p, POINTER(TemplateFacts), c_void_p)
_STRINGS = POINTER(c_char_p)

# Name: result, arguments, whether other threads of Python may run meanwhile. They must not while this process's memory is
# moved or put back.
_FUNCTIONS: dict[str, tuple[Any, list[Any], bool]] = {
	"flashfork_seal": (c_int, [POINTER(SealOptions), POINTER(SealReport)], False),
	"flashfork_unseal": (c_int, [POINTER(c_uint64)], False),
	"flashfork_exclude": (c_int, [c_void_p, c_size_t], False),
	"flashfork_last_error": (c_char_p, [], False),
	"flashfork_region_create": (c_void_p, [c_size_t, c_uint32], False),
	"flashfork_region_address": (c_void_p, [c_void_p], False),
	"flashfork_region_length": (c_size_t, [c_void_p], False),
	"flashfork_region_seal": (c_int, [c_void_p], False),
	"flashfork_region_rollback": (c_int, [c_void_p], False),
	"flashfork_region_rollback_range": (c_int, [c_void_p, c_size_t, c_size_t], False),
	"flashfork_region_free": (None, [c_void_p], False),
	"flashfork_snapshot": (c_int, [POINTER(SnapshotOptions)], False),
	"flashfork_restore": (c_int, [c_int], False),
	"flashfork_snapshot_discard": (c_int, [], False),
	"flashfork_template_warm": (
		c_int,
		[c_char_p, c_char_p, _STRINGS, POINTER(WarmOptions), POINTER(TemplateFacts)],
		True,
	),
	"flashfork_template_renew": (c_int, [c_char_p, c_char_p, POINTER(WarmOptions)], True),
	"flashfork_template_info": (c_int, [c_char_p, c_char_p, POINTER(TemplateFacts)], True),
	"flashfork_template_list": (c_int, [c_char_p, EACH_TEMPLATE, c_void_p], True),
	"flashfork_template_remove": (c_int, [c_char_p, c_char_p, POINTER(c_uint64)], True),
	"flashfork_template_clone": (
		c_void_p,
		[c_char_p, c_char_p, _STRINGS, _STRINGS, c_char_p, POINTER(c_int)],
		True,
	),
	"flashfork_clone_pid": (c_int, [c_void_p], False),
	"flashfork_clone_descriptor": (c_int, [c_void_p], False),
	"flashfork_clone_wait": (c_int, [c_void_p, c_int64, POINTER(c_int)], True),
	"flashfork_clone_signal": (c_int, [c_void_p, c_int, c_int], True),
	"flashfork_clone_free": (None, [c_void_p], True),
}


def _whole(kind: Any) -> Any:
	"""A type of arguments that takes the numbers of ``kind`` only: ctypes cuts others down without a word."""

	def from_param(_: Any, value: Any) -> Any:
		if isinstance(value, int) and kind(value).value != value:
			raise OverflowError(f"{value} is no number that the library takes here")
		return kind.from_param(value)

	return type(kind.__name__, (kind,), {"from_param": classmethod(from_param)})


class _Library:
	"""The library's functions, each by its name without ``flashfork_``."""

	def __init__(self, path: Path):
		alone, beside = ctypes.PyDLL(str(path), use_errno=True), ctypes.CDLL(str(path), use_errno=True)
		for name, (result, arguments, others_run) in _FUNCTIONS.items():
			function = getattr(beside if others_run else alone, name)
			numbers = (c_int, c_int64, c_size_t)
			function.restype = result
			function.argtypes = [_whole(kind) if kind in numbers else kind for kind in arguments]
			setattr(self, name.removeprefix("flashfork_"), function)

	def __getattr__(self, name: str) -> Any:  # for those who check types: ctypes has none
		raise AttributeError(name)


def _load() -> "tuple[Optional[_Library], Optional[str]]":
	system = f"{platform.system()} on {platform.machine()}"
	if system != "Linux on x86_64" or sys.maxsize < 2**32:
		return None, f"flashfork works on 64-bit Linux on x86-64; this is {system}. Forks are plain ones"
	path = NATIVE / "libflashfork.so"
	try:
		return _Library(path), None
	except OSError as wrong:
		return None, f"{wrong}. Forks are plain ones; a wheel of flashfork has the library in it"


_library, unsupported = _load()
_warned = False


def library() -> Any:
	"""The library. Raises :class:`Refused` where there is none."""
	if _library is None:
		raise error(errno.ENOSYS, unsupported or "")
	return _library


def library_or_warn() -> Any:
	"""The library, or None, and a warning the first time."""
	global _warned
	if _library is None and not _warned:
		_warned = True
		warnings.warn(unsupported or "", PlainForks, stacklevel=3)
	return _library


def failed() -> Exception:
	"""The exception for a call that has just returned -1 or NULL."""
	number = ctypes.get_errno()
	return error(number, library().last_error().decode(errors="replace"))


def string(value: Any) -> bytes:
	"""A C string. One with a byte 0 in it would end there, and mean something else."""
	text = os.fsencode(value)
	if b"\0" in text:
		raise ValueError("embedded null byte")
	return text


def words(values: Any) -> Any:
	"""What is given as several; one string would be as many as it has letters."""
	if isinstance(values, (str, bytes, os.PathLike)):
		raise TypeError(f"this takes a list, and {values!r} is one of what may be in it")
	return list(values)


def strings(values: Any) -> Any:
	"""An array of C strings that ends with NULL."""
	return (c_char_p * (len(values) + 1))(*map(string, values), None)
