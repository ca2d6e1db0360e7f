"""pytest inside a clone: what it reports goes to the parent, and it writes no summary of its own."""

from __future__ import annotations

import traceback
from typing import Any, Dict

import pytest
from _pytest.outcomes import Exit

from ._child import Parent
from ._messages import Messenger

_MESSENGER = "flashfork-messenger"


class _Quiet:
	"""The terminal's plugin without its hooks: others ask for it, and some write by it."""

	def __init__(self, terminal: Any):
		self.__dict__["_terminal"] = terminal

	def __getattr__(self, name: str) -> Any:
		return getattr(self._terminal, name)

	def __setattr__(self, name: str, value: Any) -> None:
		setattr(self._terminal, name, value)


def become(config: pytest.Config, parent: Parent, extra: Dict[str, Any]) -> None:
	"""Makes this process's pytest that of a clone, or of a clone of one."""
	messenger: Any = config.pluginmanager.getplugin(_MESSENGER)
	if messenger is not None:
		messenger.parent = parent
		return
	terminal = config.pluginmanager.getplugin("terminalreporter")
	if terminal is not None:
		config.pluginmanager.unregister(terminal)
		config.pluginmanager.register(_Quiet(terminal), "terminalreporter")
	try:
		from _pytest.junitxml import xml_key
	except ImportError:
		pass
	else:
		xml = config.stash.get(xml_key, None)
		if xml is not None:
			# The parent writes it; here it would only grow.
			config.pluginmanager.unregister(xml)
	config.pluginmanager.register(Messenger(config, parent, extra), _MESSENGER)


def tell_end(parent: Parent, why: BaseException) -> None:
	"""Tells the parent what has ended the run here, for it to do the same."""
	if isinstance(why, Exit):
		parent.send("exit", why.msg, why.returncode)
	elif isinstance(why, KeyboardInterrupt):
		parent.send("interrupt", str(why))
	else:
		parent.send("error", "".join(traceback.format_exception(type(why), why, why.__traceback__)))


def tell_stop(parent: Parent, session: pytest.Session) -> None:
	"""Tells the parent if the session shall stop: plugins and tests say so here."""
	if session.shouldfail or session.shouldstop:
		parent.send("stopping", session.shouldfail, session.shouldstop)


class InsideError(Exception):
	"""Something in pytest or in a plugin failed in a clone."""


def raise_end(kind: str, *values: Any) -> None:
	"""Raises what has ended the run in a clone, if the message says that something has."""
	if kind == "exit":
		raise Exit(*values)
	if kind == "interrupt":
		raise KeyboardInterrupt(*values)
	if kind == "error":
		raise InsideError(f"in a clone:\n{values[0]}")
