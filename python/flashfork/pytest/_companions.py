"""Other plugins and libraries in a clone: what each needs to go on there as it would have without one."""

from __future__ import annotations

import atexit
import sys
from typing import Any, Iterable, List

import pytest

#: Connections of the parent, which a clone must neither use nor end.
_left_alone: List[Any] = []


class Companions:
	"""Made in the parent right before a fork, for the clone."""

	def __init__(self, config: pytest.Config):
		coverage = _coverage()
		if coverage is not None:
			# Written now, so that the clone has only its own to write. There may be nothing since the last fork.
			warns, coverage._warn_no_data = coverage._warn_no_data, False
			coverage.get_data()
			coverage._warn_no_data = warns

	def enter(self) -> None:
		"""In the clone, at its begin."""
		# What the parent does at its end isn't the clone's to do.
		atexit._clear()
		processes: Any = sys.modules.get("multiprocessing.process")
		if processes is not None:
			# Those of the parent, which the clone's end would terminate.
			processes._children.clear()
		_forget_database_connections()

	def leave(self) -> None:
		"""In the clone, at its end."""
		coverage = _coverage()
		if coverage is not None and has_files_of_its_own(coverage):
			coverage.stop()
			# A clone need not have run anything of what is measured.
			coverage._warn_no_data = False
			coverage.save()
		util: Any = sys.modules.get("multiprocessing.util")
		if util is not None:
			util._exit_function()
		atexit._run_exitfuncs()


def _coverage() -> Any:
	"""The measurement that runs, of coverage or pytest-cov."""
	module = sys.modules.get("coverage")
	return None if module is None else module.Coverage.current()


def refuse_old_coverage(config: pytest.Config) -> None:
	"""Refuses pytest-cov before 7, if it measures: in processes that it did not start it begins measurements of its own,
    which take the place of those that clones come with."""
	module: Any = sys.modules.get("pytest_cov")
	version = getattr(module, "__version__", "")
	if config.pluginmanager.hasplugin("_cov") and version.split(".")[0].isdecimal() and int(version.split(".")[0]) < 7:
		raise pytest.UsageError(
			f"pytest-cov {version} measures clones wrong: install pytest-cov 7 or later, or run with --clones 0"
		)


def has_files_of_its_own(coverage: Any) -> bool:
	"""Whether each process writes a file of its own; else the clone's would take the parent's place."""
	return bool(coverage.config.parallel or getattr(coverage, "_data_suffix_specified", None))


def unmeasured() -> bool:
	"""Whether what clones run isn't measured, although this process is."""
	coverage = _coverage()
	return coverage is not None and not has_files_of_its_own(coverage)


def _forget_database_connections() -> None:
	"""Django's connections to servers and files are opened anew in the clone: two processes can't share one.

    Those to memory are copied with it, and one in a transaction that a fixture has opened can only be gone on with.
    """
	module = sys.modules.get("django.db")
	if module is None:
		return
	from django.core.exceptions import ImproperlyConfigured  # type: ignore[import-not-found,import-untyped,unused-ignore]

	try:
		connections = module.connections.all()
	except ImproperlyConfigured:
		return
	for each in connections:
		in_memory = each.vendor == "sqlite" and each.is_in_memory_db()
		if each.connection is not None and not in_memory and not each.in_atomic_block:
			_left_alone.append(each.connection)
			each.connection = None


def renew_event_loops(values: Iterable[Any]) -> None:
	"""Event loops of fixtures wait on what the kernel shares between parent and clone; the clone's get their own."""
	module: Any = sys.modules.get("asyncio.selector_events")
	if module is None:
		return
	for value in values:
		loop = getattr(value, "_loop", value)  # that of an asyncio.Runner
		if not isinstance(loop, module.BaseSelectorEventLoop) or loop.is_closed():
			continue
		old, ours = loop._selector, (loop._ssock, loop._csock)
		loop._selector = type(old)()
		for key in old.get_map().values():
			if key.fd != loop._ssock.fileno():
				loop._selector.register(key.fileobj, key.events, key.data)
		_left_alone.extend((old, ours))
		loop._internal_fds -= 1
		loop._make_self_pipe()


def rearm_timeout(item: pytest.Item) -> None:
	"""In a clone: pytest-timeout's alarm or thread for the test, which a fork doesn't copy."""
	plugin: Any = sys.modules.get("pytest_timeout")
	if plugin is None or getattr(item, "cancel_timeout", None) is None:
		return
	settings = plugin._get_item_settings(item)
	if settings.timeout and settings.timeout > 0 and not settings.func_only:
		item.ihook.pytest_timeout_set_timer(item=item, settings=settings)
