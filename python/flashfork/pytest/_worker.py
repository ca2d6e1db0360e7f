"""A worker: a clone of the process that has collected, which runs its portions of the tests."""

from __future__ import annotations

import os
import sys
from collections import deque
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Deque, Dict, NoReturn, Optional

import pytest

from ._child import Parent
from ._each import Runner
from ._inside import become, tell_end, tell_stop


@dataclass(frozen=True)
class Name:
	"""What a worker is called, as xdist calls its workers; the only one of a run that isn't divided has no name."""

	#: "gw0" and so on.
	id: str
	count: int
	#: The same for all workers of a run.
	run: str
	#: Its directory for temporary files, if pytest has one.
	temporary: Optional[Path]


def work(session: pytest.Session, parent: Parent, each: bool, name: Optional[Name]) -> NoReturn:
	"""Runs what the parent says, to its end."""
	config = session.config
	extra: Dict[str, Any] = {}
	if name is not None:
		_take(config, name)
		extra = {"worker_id": name.id, "testrun_uid": name.run}
	become(config, parent, extra)
	try:
		runner = Runner(session, each, lambda item, message: parent.send(*message))
		runner.extra = extra
		_run(session, parent, runner)
		# Nothing is left to tear down but what a run that stops has left.
		session._setupstate.teardown_exact(None)
	except BaseException as why:
		tell_end(parent, why)
		try:
			session._setupstate.teardown_exact(None)
		except BaseException:
			pass
	parent.leave()


def _run(session: pytest.Session, parent: Parent, runner: Runner) -> None:
	queue: Deque[int] = deque()
	more = True
	while True:
		messages = parent.received()
		# pytest must know the next test to know what to tear down after this one.
		while messages or (more and len(queue) < 2):
			for kind, *values in messages or [parent.receive()]:
				if kind == "stop":
					return
				if kind == "run":
					queue.extend(values[0])
				else:
					more = False
			messages = []
		if not queue:
			return
		index = queue.popleft()
		runner.extra["item_index"] = index
		parent.send("begin", index)
		runner.run(session.items[index], session.items[queue[0]] if queue else None)
		parent.send_output()
		tell_stop(parent, session)
		parent.send("finish", index)
		if session.shouldfail or session.shouldstop:
			return


def _take(config: pytest.Config, name: Name) -> None:
	os.environ["PYTEST_XDIST_WORKER"] = name.id
	os.environ["PYTEST_XDIST_WORKER_COUNT"] = str(name.count)
	os.environ["PYTEST_XDIST_TESTRUNUID"] = name.run
	setattr(
		config,
		"workerinput",
		{"workerid": name.id, "workercount": name.count, "testrunuid": name.run, "mainargv": list(sys.argv)},
	)
	factory: Any = getattr(config, "_tmp_path_factory", None)
	if factory is not None and name.temporary is not None:
		name.temporary.mkdir(mode=0o700)
		factory._basetemp = name.temporary
