"""Reports, warnings and output as messages, and back."""

from __future__ import annotations

import sys
import warnings
from typing import Any, Dict, List, Optional, Tuple

import pytest
from _pytest._code.code import ReprEntryNative, ReprExceptionInfo, ReprFileLocation, ReprTraceback

from ._child import Child
from ._channel import Message
from ._output import shortened


def report_data(config: pytest.Config, report: pytest.TestReport) -> Dict[str, Any]:
	"""A report as builtin types, if possible."""
	data: Any = config.hook.pytest_report_to_serializable(config=config, report=report)
	assert isinstance(data, dict)
	data["sections"] = [(name, shortened(text)) for name, text in data.get("sections", ())]
	return data


def report_of(config: pytest.Config, data: Dict[str, Any]) -> pytest.TestReport:
	"""The report again."""
	# The hook takes things out of what it gets.
	report: Any = config.hook.pytest_report_from_serializable(config=config, data=dict(data))
	assert isinstance(report, pytest.TestReport)
	return report


def warning_data(message: warnings.WarningMessage) -> "Tuple[Any, ...]":
	"""A warning as builtin types: its text, its class, its place."""
	category = message.category
	place = (message.filename, message.lineno, message.line)
	return (str(message.message), category.__module__, category.__qualname__, *place)


def warning_of(data: "Tuple[Any, ...]") -> warnings.WarningMessage:
	"""The warning again; of a class that isn't loaded here it has the name alone."""
	text, module, name, filename, lineno, line = data
	category: Any = sys.modules.get(module)
	for part in name.split("."):
		category = getattr(category, part, None)
	if not (isinstance(category, type) and issubclass(category, Warning)):
		category = type(name.split(".")[-1], (Warning,), {"__module__": module})
	try:
		message: Warning = category(text)
		if str(message) != text:
			message = Warning(text)
	except Exception:  # one that is made of other things than a text
		message = Warning(text)
	return warnings.WarningMessage(message, category, filename, lineno, line=line)


class Messenger:
	"""In a clone: a plugin that hands on what pytest reports."""

	def __init__(self, config: pytest.Config, parent: Any, extra: Dict[str, Any]):
		self._config = config
		self.parent = parent
		#: What each report says of its worker.
		self.extra = extra

	def pytest_runtest_logstart(self, nodeid: str, location: Any) -> None:
		self.parent.send("logstart", nodeid, location)

	def pytest_runtest_logfinish(self, nodeid: str, location: Any) -> None:
		self.parent.send("logfinish", nodeid, location)

	@pytest.hookimpl(tryfirst=True)
	def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
		self.parent.send_output()
		self.parent.send("report", {**report_data(self._config, report), **self.extra})

	def pytest_warning_recorded(
		self, warning_message: warnings.WarningMessage, when: str, nodeid: str, location: Any
	) -> None:
		self.parent.send("warning", warning_data(warning_message), when, nodeid, location)

	@pytest.hookimpl(tryfirst=True)
	def pytest_enter_pdb(self) -> None:
		pytest.fail("A debugger can't run in a clone, which has no terminal: run this test with --clones 0 or --pdb.")


def deliver(config: pytest.Config, ihook: Any, message: Message, node: Optional[object] = None) -> None:
	"""Does in the parent what a message says that pytest did in the clone."""
	kind, *values = message
	if kind == "logstart":
		ihook.pytest_runtest_logstart(nodeid=values[0], location=values[1])
	elif kind == "logfinish":
		ihook.pytest_runtest_logfinish(nodeid=values[0], location=values[1])
	elif kind == "report":
		report: Any = report_of(config, values[0])
		if node is not None:
			report.node = node
		_count_subtest(config, report)
		ihook.pytest_runtest_logreport(report=report)
	elif kind == "warning":
		data, when, nodeid, location = values
		arguments = {"warning_message": warning_of(data), "when": when, "nodeid": nodeid, "location": location}
		config.hook.pytest_warning_recorded.call_historic(kwargs=arguments)
	elif kind == "output":
		write_raw(config, values[0])
	elif kind == "note":
		note(config, values[0])
	else:
		raise AssertionError(f"flashfork: a message {kind!r}")


def _count_subtest(config: pytest.Config, report: Any) -> None:
	"""pytest (from 9 on) fails a test by the number of its subtests that failed in the same process."""
	try:
		from _pytest.subtests import SubtestReport, failed_subtests_key
	except ImportError:
		return
	if isinstance(report, SubtestReport) and report.failed:
		config.stash[failed_subtests_key][report.id] += 1


def note(config: pytest.Config, text: str) -> None:
	"""Tells the user something, once."""
	told: List[str] = config.stash.setdefault(_TOLD, [])
	if text not in told:
		told.append(text)
		terminal: Any = config.pluginmanager.getplugin("terminalreporter")
		if terminal is not None:
			terminal.write_line(f"flashfork: {text}", yellow=True)


_TOLD = pytest.StashKey[List[str]]()


def write_raw(config: pytest.Config, text: str) -> None:
	"""Writes to the terminal what a clone would have written there."""
	terminal: Any = config.pluginmanager.getplugin("terminalreporter")
	if terminal is None:
		sys.stdout.write(text)
		return
	writer = terminal._tw
	# Before pytest 9 there was one way to write.
	getattr(writer, "write_raw", writer.write)(text, flush=True)
	# What is written next of a test begins where this ended.
	if text.endswith("\n"):
		terminal.currentfspath = None


def crash_report(
	config: pytest.Config, item: pytest.Item, reports: List[Dict[str, Any]], child: Child, whose: str
) -> Dict[str, Any]:
	"""The report of a test whose process ended in it: with what it had reported, and written since."""
	whens = [data.get("when") for data in reports]
	when = "teardown" if {"call", "teardown"} & set(whens) else "call" if "setup" in whens else "setup"
	if reports and reports[-1].get("when") == "setup" and reports[-1].get("outcome") != "passed":
		when = "teardown"
	sections = list(reports[-1]["sections"]) if reports else []
	sections += [(f"Captured {name} {when}", text) for name, text in child.output.captured() if text]
	past = child.output.past_capture()
	if past:
		sections.append(("Written past the capture", past))
	report = pytest.TestReport(
		nodeid=item.nodeid,
		location=item.location,
		keywords={name: 1 for name in item.keywords},
		outcome="failed",
		longrepr=_at_a_place(f"{whose} of this test crashed in its {when}: {child.crash}.", item),
		when=when,  # type: ignore[arg-type]
		sections=sections,
	)
	return report_data(config, report)


def _at_a_place(text: str, item: pytest.Item) -> Any:
	"""The text as what an exception leaves: pytest's summary and --tb=line show of a bare text nothing, or its start."""
	path, line, _ = item.location
	place = ReprFileLocation(path, (line or 0) + 1, text)
	return ReprExceptionInfo(ReprTraceback([ReprEntryNative([text + "\n"])], None, "native"), place)
