"""Whole messages between a process and its clone, which may die at any byte of one."""

from __future__ import annotations

import importlib
import marshal
import os
import signal
import socket
import struct
import zlib
from typing import Any, Dict, List, Optional, Tuple

#: What it is, and its values: of builtin types only, so that reading one runs nobody's code.
Message = Tuple[Any, ...]

#: A mark, by which what is no message is seen at once, the length, and a checksum.
_HEADER = struct.Struct("<8sII")
_MARK = b"\xf1clones\n"
_SIGNALS = set(map(int, signal.valid_signals()))
# The function of `signal` makes an object of each number, which would take longer than all else here.
_mask: Any = importlib.import_module("_signal").pthread_sigmask
_NO_SIGNAL = getattr(socket, "MSG_NOSIGNAL", 0)


class Channel:
	"""One end of a pair of sockets."""

	def __init__(self, end: socket.socket):
		self._socket = end
		self._received = bytearray()
		#: Whether something came that is no message; nothing more is read then.
		self.broken = False

	@staticmethod
	def pair() -> "Tuple[Channel, Channel]":
		one, other = socket.socketpair()
		return Channel(one), Channel(other)

	def fileno(self) -> int:
		return self._socket.fileno()

	def close(self) -> None:
		self._socket.close()

	def send(self, kind: str, *values: Any) -> None:
		"""Sends a message. Raises OSError if nobody can receive it."""
		message: Any = (kind, *values)
		try:
			data = marshal.dumps(message)
		except ValueError:
			data = marshal.dumps(plain(message))
		# A handler that raises, such as that of a test's time-out, must not end a message in its middle.
		before = _mask(signal.SIG_BLOCK, _SIGNALS)
		try:
			self._socket.sendall(_HEADER.pack(_MARK, len(data), zlib.crc32(data)) + data, _NO_SIGNAL)
		finally:
			_mask(signal.SIG_SETMASK, before)

	def receive(self) -> Optional[Message]:
		"""Waits for a message; None if there will be none."""
		while True:
			message = self._first()
			if message is not None:
				return message
			if not self._read(0):
				return None

	def received(self) -> "Tuple[List[Message], bool]":
		"""The messages that are there, without waiting, and whether more can come."""
		try:
			while self._read(socket.MSG_DONTWAIT):
				pass
			open_ = False
		except BlockingIOError:
			open_ = True
		messages: List[Message] = []
		while True:
			message = self._first()
			if message is None:
				return messages, open_ and not self.broken
			messages.append(message)

	def _read(self, flags: int) -> bool:
		if self.broken:
			return False
		try:
			data = self._socket.recv(1 << 20, flags)
		except ConnectionResetError:
			return False
		self._received += data
		return bool(data)

	def _first(self) -> Optional[Message]:
		if self.broken or len(self._received) < _HEADER.size:
			return None
		mark, length, checksum = _HEADER.unpack_from(self._received)
		end = _HEADER.size + length
		if mark != _MARK:
			self.broken = True
			return None
		if len(self._received) < end:
			return None
		data = bytes(self._received[_HEADER.size : end])
		del self._received[:end]
		if zlib.crc32(data) != checksum:
			self.broken = True
			return None
		message = marshal.loads(data)
		assert isinstance(message, tuple)
		return message


def plain(value: Any) -> Any:
	"""The value in builtin types; what has none becomes its text."""
	if value is None or type(value) in (bool, int, float, str, bytes):
		return value
	if isinstance(value, dict):
		converted: Dict[Any, Any] = {plain(key): plain(each) for key, each in value.items()}
		return converted
	if isinstance(value, tuple):
		return tuple(map(plain, value))
	if isinstance(value, list):
		return list(map(plain, value))
	kind: Any
	for kind in (int, float, str, bytes):
		if isinstance(value, kind):
			return kind(value)
	if isinstance(value, os.PathLike):
		return plain(os.fspath(value))
	try:
		return str(value)
	except Exception as wrong:
		return f"<{type(value).__name__} without a text: {type(wrong).__name__}>"
