"""Tests in clones of their own: of the process that has set up everything above function scope."""

from __future__ import annotations

import builtins
import importlib
import time
import warnings
from functools import partial
from typing import Any, Callable, Dict, Iterator, List, Optional, Set

import pytest
from _pytest.fixtures import FixtureDef
from _pytest.outcomes import Exit, OutcomeException
from _pytest.runner import CallInfo

from ._channel import Message
from ._child import Child, Parent, split, wait
from ._companions import rearm_timeout, renew_event_loops
from ._inside import become, raise_end, tell_end, tell_stop
from ._memory import prepare
from ._messages import crash_report, report_data, report_of

_ADVICE = "start them in a fixture of function scope, or mark their tests @pytest.mark.clone(False)"


class Cloned(Exit):
	"""Takes the parent out of a test that has gone on in its clone; pytest lets this class of exceptions through."""

	def __init__(self, child: Child):
		super().__init__("the test has gone on in its clone")
		self.child = child


def wanted(item: pytest.Item, each: bool) -> bool:
	"""Whether the test shall run in a clone of its own."""
	mark = item.get_closest_marker("clone")
	if mark is not None:
		return bool(mark.args[0]) if mark.args else True
	if item.config.pluginmanager.hasplugin("pytest_forked"):
		# It forks these itself.
		return each and item.get_closest_marker("forked") is None
	return each or item.get_closest_marker("forked") is not None


class Runner:
	"""Runs tests in this process, and those that shall in clones of it."""

	def __init__(self, session: pytest.Session, each: bool, emit: Callable[[pytest.Item, Message], None]):
		self._session = session
		self._each = each
		#: Gets what a clone reports.
		self._emit = emit
		#: What each report says of the worker.
		self.extra: Dict[str, Any] = {}
		#: In a clone: its parent.
		self._parent: Optional[Parent] = None
		#: In a clone: how many finalizers the parent's nodes had, and the fixtures that it had set up.
		self._heights: Dict[Any, int] = {}
		self._set_up: Set[int] = set()
		self._state: Any = session._setupstate

	def run(self, item: pytest.Item, nextitem: Optional[pytest.Item]) -> None:
		"""Runs one test, as pytest's own loop does."""
		if wanted(item, self._each):
			inside: Any = item
			request = getattr(item, "_request", None)
			if request:  # a unittest's object has been made then, which fixtures of its class may need
				request._fillfixtures = partial(self._setup, item, request._fillfixtures)
			else:
				inside.setup = partial(self._setup, item, item.setup)
		try:
			item.config.hook.pytest_runtest_protocol(item=item, nextitem=nextitem)
		except Cloned as cloned:
			child = cloned.child
		except BaseException as why:
			if self._parent is None:
				raise
			tell_end(self._parent, why)
			try:
				self._teardown_of_clone(None)
			except (OutcomeException, Exception):
				pass
			self._parent.leave()
		else:
			if self._parent is None:
				return
			tell_stop(self._parent, self._session)
			self._parent.leave()
		# What was set up of the function itself is the clone's to tear down.
		self._state.stack.pop(item, None)
		try:
			self._follow(child, item, nextitem)
		except BaseException:
			_end(child)
			raise

	def _setup(self, item: Any, plain: Callable[[], None]) -> None:
		"""In the place of the setup of the item's fixtures: sets up the fixtures above function scope, and forks where that begins."""
		__tracebackhide__ = True
		if self._parent is None:
			for name in _higher_fixtures(item):
				item._request.getfixturevalue(name)
			prepare(lambda text: self._emit(item, ("note", text)), _ADVICE)
			made = split(item.config)
			if isinstance(made, Child):
				raise Cloned(made)
			self._enter(made, item)
		plain()

	def _enter(self, parent: Parent, item: pytest.Item) -> None:
		self._parent = parent
		become(item.config, parent, self.extra)
		# The parent reports those of the fixtures that it has set up.
		recorded = getattr(getattr(warnings, "_showwarnmsg_impl", None), "__self__", None)
		if isinstance(recorded, list):
			recorded.clear()
		rearm_timeout(item)
		above = {node: finalizers for node, (finalizers, _) in self._state.stack.items() if node is not item}
		self._heights = {node: len(finalizers) for node, finalizers in above.items()}
		fixtures = [_fixture(each) for finalizers in above.values() for each in finalizers]
		self._set_up = {id(each) for each in fixtures if each is not None}
		renew_event_loops(each.cached_result[0] for each in fixtures if each is not None and each.cached_result)
		self._state.teardown_exact = self._teardown_of_clone

	def _teardown_of_clone(self, _: Optional[pytest.Item]) -> None:
		"""In the place of SetupState.teardown_exact: tears down what this clone has set up, and nothing of its parent's."""
		__tracebackhide__ = True
		wrong: List[BaseException] = []
		for node in reversed(list(self._state.stack)):
			finalizers = self._state.stack[node][0]
			height = self._heights.get(node)
			if height is None:
				self._state.stack.pop(node)
			while len(finalizers) > (height or 0):
				finalizer = finalizers.pop()
				# Older pytests add it once more for each test.
				if id(_fixture(finalizer)) in self._set_up:
					continue
				try:
					finalizer()
				except (OutcomeException, Exception) as each:
					wrong.append(each)
		if len(wrong) == 1:
			raise wrong[0]
		if wrong:
			raise _group(wrong[::-1])

	def _follow(self, child: Child, item: pytest.Item, nextitem: Optional[pytest.Item]) -> None:
		"""Hands on what the clone reports, and tears down what the next test doesn't need."""
		reports: List[Dict[str, Any]] = []
		#: Kept until it is known how the teardown above the function ends.
		last: List[Message] = []
		while not child.ended:
			wait([child])
			for message in child.messages():
				raise_end(*message)
				if message[0] == "stopping":
					self._session.shouldfail, self._session.shouldstop = message[1:]
					continue
				if message[0] == "report":
					reports.append(message[1])
				if last and message[0] == "report":  # the test is run again
					self._emit_all(item, last)
				if last or (message[0] == "report" and message[1]["when"] == "teardown"):
					last.append(message)
				else:
					self._emit(item, message)
		if child.crash is not None:
			report = {**crash_report(item.config, item, reports, child, "The clone"), **self.extra}
			last = [message for message in last if message[0] != "logfinish"]
			last += [("report", report), ("logfinish", item.nodeid, item.location)]
		child.output.close()
		if self._session.shouldfail or self._session.shouldstop:
			nextitem = None
		failed = self._teardown_above(item, nextitem)
		if failed is not None:
			_merge(item.config, last, {**failed, **self.extra})
		self._emit_all(item, last)

	def _emit_all(self, item: pytest.Item, messages: List[Message]) -> None:
		for message in messages:
			self._emit(item, message)
		messages.clear()

	def _teardown_above(self, item: pytest.Item, nextitem: Optional[pytest.Item]) -> Optional[Dict[str, Any]]:
		"""Tears down what the next test doesn't need; returns the report if that failed."""
		needed = [] if nextitem is None else nextitem.listchain()
		if list(self._state.stack) == needed[: len(self._state.stack)]:
			return None
		capture: Any = item.config.pluginmanager.getplugin("capturemanager")

		def teardown() -> None:
			if capture is None:
				self._state.teardown_exact(nextitem)
			else:
				with capture.item_capture("teardown", item):
					self._state.teardown_exact(nextitem)

		item._report_sections.clear()
		call = CallInfo.from_call(teardown, when="teardown", reraise=(Exit, KeyboardInterrupt))
		if call.excinfo is None:
			return None
		report = item.ihook.pytest_runtest_makereport(item=item, call=call)
		return report_data(item.config, report)


def _merge(config: pytest.Config, last: List[Message], failed: Dict[str, Any]) -> None:
	"""Makes one report of two of a teardown: of the clone's and of what is above the function."""
	for place, message in enumerate(last):
		if message[0] == "report":
			before = message[1]
			if before["outcome"] == "passed":
				failed["sections"] = [*before["sections"], *failed["sections"]]
				last[place] = ("report", failed)
			else:
				text = report_of(config, failed).longreprtext
				section = ("Error in the teardown of what is above the function", text)
				last[place] = ("report", {**before, "sections": [*before["sections"], section]})
			return
	last.insert(0, ("report", failed))


def _fixture(finalizer: Any) -> Any:
	"""The fixture that the finalizer ends; None if it is another one."""
	owners = [getattr(getattr(finalizer, "func", None), "__self__", None)]
	# Before pytest 8 it is a function that has the fixture in its closure.
	try:
		owners += [cell.cell_contents for cell in getattr(finalizer, "__closure__", None) or ()]
	except ValueError:  # a cell that is empty yet
		pass
	return next((owner for owner in owners if isinstance(owner, FixtureDef)), None)


def _higher_fixtures(item: Any) -> Iterator[str]:
	"""The fixtures of the test above function scope, in the order in which pytest sets them up."""
	information = getattr(item, "_fixtureinfo", None)
	if information is None or not hasattr(item, "_request"):
		return
	callspec = getattr(item, "callspec", None)
	for name in item.fixturenames:
		definitions = information.name2fixturedefs.get(name)
		if not definitions:
			continue
		scope = definitions[-1].scope
		if scope != "function" and callspec is not None and name in callspec.params:
			scope = callspec._arg2scope[name].value
		# Of a test that is in no class it is the function's.
		if scope != "function" and not (scope == "class" and item.getparent(pytest.Class) is None):
			yield name


def _group(wrong: List[BaseException]) -> BaseException:
	try:
		groups: Any = builtins if hasattr(builtins, "BaseExceptionGroup") else importlib.import_module("exceptiongroup")
	except ImportError:  # an old pytest, which says no more than this either
		return wrong[0]
	group: BaseException = groups.BaseExceptionGroup("errors during test teardown", wrong)
	return group


def _end(child: Child) -> None:
	"""Ends a clone whose test is broken off: it may tear down first."""
	child.interrupt()
	end = time.monotonic() + 5
	while not child.ended and time.monotonic() < end:
		wait([child])
		child.messages()
	child.kill()
	child.output.close()
