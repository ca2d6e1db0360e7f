"""A clone as its parent sees it, and the parent as its clone does."""

from __future__ import annotations

import ctypes
import os
import random
import select
import signal
import sys
import time
import warnings
from typing import Any, Iterable, List, NoReturn, Optional, Set, Union

import pytest

from .. import fork
from ._channel import Channel, Message
from ._companions import Companions
from ._output import MOST, Output

_PDEATHSIG = 1
#: The ends of this process, which its clones close.
_ends: "Set[Channel]" = set()
_prctl: Any = ctypes.CDLL(None).prctl if sys.platform == "linux" else None
#: The state of `random` if nobody has used it in this process or those it comes from.
_untouched = random.getstate()


class Parent:
	"""In a clone: the process that it was made in."""

	def __init__(self, config: pytest.Config, channel: Channel, output: Output, companions: Companions):
		self._pid = os.getpid()
		self._channel = channel
		self._output = output
		self._companions = companions

	def send(self, kind: str, *values: object) -> None:
		if os.getpid() != self._pid:
			# A test forked, and its child came back into pytest.
			os._exit(1)
		try:
			self._channel.send(kind, *values)
		except OSError:
			os._exit(1)

	def send_output(self) -> None:
		"""Sends what went past the capture."""
		text = self._output.past_capture()
		if text:
			self.send("output", text)

	def receive(self) -> Message:
		message = self._channel.receive()
		if message is None:
			os._exit(1)
		return message

	def received(self) -> List[Message]:
		messages, open_ = self._channel.received()
		if not open_:
			os._exit(1)
		return messages

	def leave(self) -> NoReturn:
		"""Ends this clone, which has done its work."""
		if os.getpid() != self._pid:
			os._exit(1)
		self._companions.leave()
		for stream in (sys.stdout, sys.stderr):
			try:
				stream.flush()
			except Exception:  # one that a test has closed, or put in its place
				pass
		self.send_output()
		self.send("end")
		os._exit(0)


class Child:
	"""A clone that was made by :func:`split`."""

	def __init__(self, pid: int, channel: Channel, output: Output):
		self.pid = pid
		self.channel = channel
		self.output = output
		#: How it ended, in words, if it ended without being done.
		self.crash: Optional[str] = None
		#: Whether it has ended.
		self.ended = False
		#: Its status, where the system gives it only by waiting for it.
		self._status: Optional[int] = None
		self._closed_at: Optional[float] = None
		self._pidfd = os.pidfd_open(pid) if hasattr(os, "pidfd_open") else None
		_ends.add(channel)

	def send(self, kind: str, *values: object) -> None:
		"""Sends it a message; whether it can receive any is seen elsewhere."""
		try:
			self.channel.send(kind, *values)
		except OSError:
			pass

	def descriptors(self) -> Iterable[int]:
		if self._closed_at is None:
			yield self.channel.fileno()
		if self._pidfd is not None:
			yield self._pidfd

	def messages(self) -> List[Message]:
		"""What it has sent. Sets ``ended`` when that was all."""
		# Before the messages are read: those of a process that has ended are all there.
		gone = self._gone()
		messages, open_ = self.channel.received()
		if messages and messages[-1][0] == "end":
			messages.pop()
			self._end(None)
		elif self.channel.broken:
			self._end("what it reported can't be read: something wrote to a descriptor that isn't its own")
		elif gone:
			self._end("")
		elif not open_ and self._closed_at is None:
			# The end of its process follows, or a test has closed what isn't its own.
			self._closed_at = time.monotonic()
		elif self._closed_at is not None and time.monotonic() > self._closed_at + 2:
			self._end("the descriptor by which it reports was closed")
		elif self.output.too_much():
			self._end(f"it was ended: it had written more than {MOST >> 20} MB")
		return messages

	def interrupt(self) -> None:
		"""What Ctrl-C does, to it and to what it has started."""
		self._signal(signal.SIGINT)

	def kill(self) -> None:
		"""Ends it, and what it has started."""
		if not self.ended:
			self._end("it was killed")

	def _gone(self) -> bool:
		try:
			if hasattr(os, "waitid"):
				return os.waitid(os.P_PID, self.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None
			pid, status = os.waitpid(self.pid, os.WNOHANG)
		except ChildProcessError:  # somebody else has waited for it
			return True
		if pid != 0:
			self._status = status
		return pid != 0

	def _signal(self, number: int) -> None:
		try:
			os.killpg(self.pid, number)
		except OSError:
			try:
				os.kill(self.pid, number)
			except OSError:
				pass

	def _end(self, why: Optional[str]) -> None:
		# Before its number can be another process's.
		if why is not None:
			self._signal(signal.SIGKILL)
		try:
			how = describe(os.waitpid(self.pid, 0)[1] if self._status is None else self._status)
		except ChildProcessError:
			how = "it ended, and something else has waited for it"
		if why is not None:
			self.crash = why or how
		self.ended = True
		_ends.discard(self.channel)
		self.channel.close()
		if self._pidfd is not None:
			os.close(self._pidfd)


def describe(status: int) -> str:
	"""A status of wait(2) in words."""
	if not os.WIFSIGNALED(status):
		return f"it ended with exit status {os.WEXITSTATUS(status)}"
	number = os.WTERMSIG(status)
	try:
		name = signal.Signals(number).name
	except ValueError:
		name = f"signal {number}"
	hint = ", which is also what the system sends when memory is short" if number == signal.SIGKILL else ""
	return f"it was killed by {name}{hint}"


def wait(children: Iterable[Child]) -> None:
	"""Waits until one of them has something to say, or half a second: what they write is looked at then."""
	poller = select.poll()
	watched = True
	for child in children:
		watched = watched and child._pidfd is not None
		for descriptor in child.descriptors():
			poller.register(descriptor, select.POLLIN)
	poller.poll(500 if watched else 20)


def split(config: pytest.Config) -> "Union[Child, Parent]":
	"""Forks: returns the clone in its parent, and the parent in the clone."""
	global _untouched
	for stream in (sys.stdout, sys.stderr):
		stream.flush()
	companions = Companions(config)
	output = Output(config)
	ours, theirs = Channel.pair()
	parent_pid = os.getpid()
	numbers = random.getstate()
	# Until the clone has a session of its own, Ctrl-C is not for it.
	before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
	try:
		with warnings.catch_warnings():
			# Of threads: the plugin says so itself.
			warnings.simplefilter("ignore", DeprecationWarning)
			pid = fork(reseed=False)
		if pid != 0:
			theirs.close()
			return Child(pid, ours, output)
		for end in (*_ends, ours):
			end.close()
		_ends.clear()
		# No terminal's, so that none stops it, and everything that it starts can be ended with it.
		os.setsid()
		if _prctl is not None:
			_prctl(_PDEATHSIG, signal.SIGKILL)
			if os.getppid() != parent_pid:
				os._exit(1)
		if numbers != _untouched:
			# Somebody has chosen these numbers; what nobody has is new in each clone.
			random.setstate(numbers)
		else:
			_untouched = random.getstate()
		output.redirect(config)
		companions.enter()
		return Parent(config, theirs, output, companions)
	except BaseException:
		if os.getpid() != parent_pid:
			sys.excepthook(*sys.exc_info())
			os._exit(1)
		raise
	finally:
		signal.pthread_sigmask(signal.SIG_SETMASK, before)
