"""What the command line asks for."""

from __future__ import annotations

import importlib.util
import os
from argparse import ArgumentTypeError
from dataclasses import dataclass
from typing import Any, Optional, Union

import pytest

#: xdist's ways to divide a run, by what they are here: one queue is what "worksteal" is for.
_DISTRIBUTIONS = {
	"no": "load",
	"load": "load",
	"worksteal": "load",
	"loadscope": "loadscope",
	"loadfile": "loadfile",
	"loadgroup": "loadgroup",
}


@dataclass(frozen=True)
class Choice:
	"""How tests run."""

	#: Processes that run tests; 0: pytest's own.
	workers: int = 0
	#: Whether each test has a clone of its own.
	each: bool = False
	#: Whether workers have names, as those of xdist.
	named: bool = False
	distribution: str = "load"


def _count(text: str) -> Union[int, str]:
	if text in ("auto", "logical"):
		return "auto"
	if not text.isdecimal():
		raise ArgumentTypeError(f'"{text}" is neither a number from 0 on nor "auto"')
	return int(text)


def add(parser: pytest.Parser, manager: pytest.PytestPluginManager) -> None:
	"""Adds the options: ``-n`` and ``--dist`` only where xdist has none."""
	group = parser.getgroup("flashfork", "running tests in clones (flashfork)")
	group.addoption(
		"--clones",
		type=_count,
		metavar="N",
		help="Collect once, then run tests in N clones of this process (auto: one for each CPU; 0: in this process)",
	)
	group.addoption(
		"--clone-each",
		action="store_true",
		help="Run each test in a clone of its own, made where its function scope begins",
	)
	if not _xdist_is_there(manager):
		# Lower-case short options are pytest's to give, by the method that xdist uses too.
		group._addoption("-n", "--numprocesses", type=_count, metavar="N", help="With --clones auto: their number")
		group.addoption(
			"--dist",
			choices=sorted(_DISTRIBUTIONS),
			default="no",
			help="With --clones: which tests stay together (load: none)",
		)


def _xdist_is_there(manager: pytest.PytestPluginManager) -> bool:
	return not manager.is_blocked("xdist") and importlib.util.find_spec("xdist") is not None


def choose(config: pytest.Config) -> Choice:
	"""What the options say together."""
	if hasattr(config, "workerinput"):  # a worker of xdist, which has a loop of its own
		return Choice()
	clones = config.getoption("clones")
	number: Any = getattr(config.option, "numprocesses", None)
	distribution = getattr(config.option, "dist", "no")
	each = bool(config.getoption("clone_each"))
	if clones is None:
		if not _xdist_is_there(config.pluginmanager) and (number is not None or distribution != "no"):
			raise pytest.UsageError("-n and --dist need --clones (flashfork), or pytest-xdist")
		if each and number:
			raise pytest.UsageError("--clone-each doesn't go with xdist's workers: give --clones auto, too")
	if config.getoption("usepdb", False) or config.getoption("trace", False) or config.option.collectonly:
		return Choice()
	if clones is None:
		return Choice(workers=1, each=True) if each else Choice()
	if distribution not in _DISTRIBUTIONS:
		raise pytest.UsageError(
			f"--clones divides a run by load, loadscope, loadfile or loadgroup, not by {distribution}"
		)
	if clones == "auto":
		clones = _cpus(getattr(config.option, "maxprocesses", None)) if number in (None, "auto", "logical") else number
	if clones == 0:
		return Choice()
	if not hasattr(os, "fork"):
		raise pytest.UsageError("--clones needs a system with fork()")
	return Choice(workers=clones, each=each, named=True, distribution=_DISTRIBUTIONS[distribution])


def _cpus(most: Optional[int]) -> int:
	said = os.environ.get("PYTEST_XDIST_AUTO_NUM_WORKERS", "")
	if said.isdecimal():
		return int(said)
	count = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
	return min(count, most) if most else count


def take_from_xdist(config: pytest.Config) -> None:
	"""Keeps xdist from starting workers of its own where ``--clones`` is given."""
	for options in (config.option, getattr(config, "known_args_namespace", None)):
		if options is not None and getattr(options, "clones", None) is not None:
			for name, value in (("numprocesses", None), ("dist", "no"), ("distload", False), ("tx", [])):
				if hasattr(options, name):
					setattr(options, name, value)
