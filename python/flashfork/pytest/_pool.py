"""The process that has collected: hands out tests to workers, and reports what they report."""

from __future__ import annotations

import sys
import time
import uuid
from collections import deque
from typing import Any, Deque, Dict, List, Optional

import pytest

from ._channel import Message
from ._child import Child, split, wait
from ._companions import unmeasured
from ._inside import raise_end
from ._memory import prepare
from ._messages import crash_report, deliver, note
from ._options import Choice
from ._queue import Queue
from ._worker import Name, work

#: Seconds that workers have to come to an end of a run that stops early, as with xdist; then they are interrupted …
_TO_FINISH = 10
#: … and have these to tear down.
_TO_TEAR_DOWN = 5


class _Gateway:
	def __init__(self, name: str):
		self.id = name


class _Node:
	"""What pytest's terminal and others want to know of an xdist worker."""

	def __init__(self, name: str):
		self.gateway = _Gateway(name)
		self.workerinfo = {
			"id": name,
			"version_info": tuple(sys.version_info),
			"sysplatform": sys.platform,
			"executable": sys.executable,
		}


class _Worker:
	def __init__(self, place: int, child: Child, node: Optional[_Node]):
		self.place = place
		self.child = child
		self.node = node
		#: Tests that it was given and hasn't finished; it runs the first.
		self.tests: Deque[int] = deque()
		#: The test that it runs, or has run last.
		self.current: Optional[int] = None
		#: What it has reported of that.
		self.reports: List[Dict[str, Any]] = []
		self.told_the_end = False

	@property
	def name(self) -> str:
		return f"gw{self.place}"


class Pool:
	"""The workers of a run."""

	def __init__(self, session: pytest.Session, choice: Choice):
		self._session = session
		self._config = session.config
		self._choice = choice
		self._queue = Queue(session.items, choice.workers, choice.distribution)
		self._count = max(1, min(choice.workers, self._queue.units()))
		self._run = uuid.uuid4().hex
		self._made = 0
		self._workers: List[_Worker] = []

	def run(self) -> None:
		"""Runs all tests. Raises what pytest's own loop raises."""
		if unmeasured():
			note(self._config, "what clones run isn't measured: set parallel = true in the [run] section of coverage")
		if self._count > 1:
			terminal: Any = self._config.pluginmanager.getplugin("terminalreporter")
			if terminal is not None:
				terminal.showfspath = False
		to_finish: float = _TO_FINISH
		try:
			for place in range(self._count if self._session.items else 0):
				self._start(place)
			while self._workers:
				wait([worker.child for worker in self._workers])
				for worker in list(self._workers):
					self._serve(worker)
		except KeyboardInterrupt as why:
			if not isinstance(why, self._session.Interrupted):
				to_finish = 0
			raise
		finally:
			self._end(to_finish)

	def _start(self, place: int) -> None:
		prepare(lambda text: note(self._config, text), "start them in a fixture, not where modules are imported")
		name = None
		if self._choice.named:
			factory: Any = getattr(self._config, "_tmp_path_factory", None)
			base = None if factory is None else factory.getbasetemp()
			suffix = f"gw{place}" if self._made < self._count else f"gw{place}-{self._made}"
			name = Name(f"gw{place}", self._count, self._run, base and base / f"popen-{suffix}")
		self._made += 1
		made = split(self._config)
		if not isinstance(made, Child):
			work(self._session, made, self._choice.each, name)
		worker = _Worker(place, made, _Node(f"gw{place}") if self._count > 1 else None)
		self._workers.append(worker)
		self._feed(worker)

	def _feed(self, worker: _Worker) -> None:
		"""Keeps it knowing its next test."""
		while self._queue and len(worker.tests) < 2:
			portion = self._queue.next()
			worker.tests.extend(portion)
			worker.child.send("run", portion)
		if not self._queue and not worker.told_the_end:
			worker.told_the_end = True
			worker.child.send("end")

	def _serve(self, worker: _Worker) -> None:
		for message in worker.child.messages():
			self._take(worker, message)
		if not worker.child.ended:
			self._feed(worker)
			return
		self._workers.remove(worker)
		if worker.child.crash is not None:
			self._crashed(worker)
		worker.child.output.close()
		# A session that stops has raised; a test that stopped its worker alone has not.
		self._queue.put_back(list(worker.tests))
		if self._queue and not any(not other.told_the_end for other in self._workers):
			self._start(worker.place)

	def _take(self, worker: _Worker, message: Message) -> None:
		kind, *values = message
		raise_end(*message)
		if kind == "begin":
			worker.current = values[0]
			worker.reports = []
		elif kind == "finish":
			worker.tests.remove(values[0])
		elif kind == "stopping":
			self._session.shouldfail, self._session.shouldstop = values
		else:
			if kind == "report":
				worker.reports.append(values[0])
			item = self._session.items[worker.current or 0]
			deliver(self._config, item.ihook, message, worker.node)
		if kind != "stopping" and self._session.shouldfail:
			raise self._session.Failed(self._session.shouldfail)
		if kind != "stopping" and self._session.shouldstop:
			raise self._session.Interrupted(self._session.shouldstop)

	def _crashed(self, worker: _Worker) -> None:
		"""Reports the end of a worker as that of the test that it ran."""
		index = worker.current
		if index is None:
			index = worker.tests[0]
			worker.current = index
			self._take(worker, ("logstart", self._session.items[index].nodeid, self._session.items[index].location))
		item = self._session.items[index]
		if index in worker.tests:
			worker.tests.remove(index)
		whose = f"The worker {worker.name}" if self._choice.named else "The process"
		report = crash_report(self._config, item, worker.reports, worker.child, whose)
		if self._choice.named:
			report.update(worker_id=worker.name, testrun_uid=self._run, item_index=index)
		self._take(worker, ("report", report))
		self._take(worker, ("logfinish", item.nodeid, item.location))

	def _end(self, to_finish: float) -> None:
		"""Ends what runs: what it reports now isn't reported, as the run was broken off."""
		self._workers = [worker for worker in self._workers if not worker.child.ended]
		try:
			for worker in self._workers:
				worker.child.send("stop")
			self._wait(to_finish)
			for worker in self._workers:
				worker.child.interrupt()
			self._wait(_TO_TEAR_DOWN)
		finally:
			for worker in self._workers:
				worker.child.kill()
				worker.child.output.close()
			self._workers.clear()

	def _wait(self, seconds: float) -> None:
		end = time.monotonic() + seconds
		while self._workers and time.monotonic() < end:
			wait([worker.child for worker in self._workers])
			for worker in list(self._workers):
				worker.child.messages()
				if worker.child.ended:
					worker.child.output.close()
					self._workers.remove(worker)
