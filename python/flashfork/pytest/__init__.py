"""A plugin of pytest that runs tests in clones of the process that has collected them.

``--clones N`` divides a run between N clones, ``--clone-each`` and ``@pytest.mark.clone`` run each test in a clone of
its own. docs/PYTHON.md says how.
"""

from __future__ import annotations

from typing import Any, Generator, List, Optional

import pytest

from ._companions import refuse_old_coverage
from ._each import Runner, wanted
from ._messages import deliver
from ._options import Choice, add, choose, take_from_xdist
from ._pool import Pool

_CHOICE = pytest.StashKey[Choice]()


def pytest_addoption(parser: pytest.Parser, pluginmanager: pytest.PytestPluginManager) -> None:
	add(parser, pluginmanager)


@pytest.hookimpl(hookwrapper=True, tryfirst=True)
def pytest_load_initial_conftests(early_config: pytest.Config) -> Generator[None, Any, None]:
	# Before pytest-cov asks whether xdist will run.
	known: Any = early_config.known_args_namespace
	if getattr(known, "clones", None) is not None:
		for name, value in (("numprocesses", None), ("dist", "no"), ("distload", False)):
			if hasattr(known, name):
				setattr(known, name, value)
	yield


@pytest.hookimpl(hookwrapper=True, tryfirst=True)
def pytest_cmdline_main(config: pytest.Config) -> Generator[None, Any, None]:
	config.stash[_CHOICE] = choose(config)
	take_from_xdist(config)
	yield


def pytest_configure(config: pytest.Config) -> None:
	config.addinivalue_line(
		"markers",
		"clone(yes=True): run the test in a clone of its own, or, with clone(False), in no such clone (flashfork)",
	)
	if not config.pluginmanager.hasplugin("pytest_forked"):
		config.addinivalue_line("markers", "forked: the same as clone (flashfork)")
	if config.stash[_CHOICE].named and not config.pluginmanager.hasplugin("xdist"):
		from . import _fixtures

		config.pluginmanager.register(_fixtures, "flashfork-fixtures")


def pytest_report_header(config: pytest.Config) -> Optional[str]:
	choice = config.stash[_CHOICE]
	each = ", each test in one of its own" if choice.each else ""
	if choice.named:
		return f"flashfork: tests run in up to {choice.workers} clones{each}"
	return "flashfork: each test runs in a clone" if choice.each else None


@pytest.hookimpl(tryfirst=True)
def pytest_runtestloop(session: pytest.Session) -> Optional[bool]:
	config = session.config
	if config.option.collectonly or (session.testsfailed and not config.option.continue_on_collection_errors):
		return None
	choice = config.stash[_CHOICE]
	if choice.workers:
		refuse_old_coverage(config)
		Pool(session, choice).run()
		return True
	if config.getoption("usepdb", False) or config.getoption("trace", False) or config.getoption("clones") == 0:
		return None
	if hasattr(config, "workerinput") or config.pluginmanager.hasplugin("dsession"):
		# xdist has a loop of its own.
		return None
	if not any(wanted(item, False) for item in session.items):
		return None
	refuse_old_coverage(config)
	_run_here(session, session.items)
	return True


def _run_here(session: pytest.Session, items: List[pytest.Item]) -> None:
	"""pytest's own loop, with clones for the tests that are marked."""
	runner = Runner(session, False, lambda item, message: deliver(session.config, item.ihook, message))
	for index, item in enumerate(items):
		runner.run(item, items[index + 1] if index + 1 < len(items) else None)
		if session.shouldfail:
			raise session.Failed(session.shouldfail)
		if session.shouldstop:
			raise session.Interrupted(session.shouldstop)
