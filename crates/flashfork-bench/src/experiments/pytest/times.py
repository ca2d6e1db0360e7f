"""A plugin of pytest: writes how tests ended, and when, as the process that reports has seen it."""

import json
import os
import time

_ends = []
_outcomes = {"passed": 0, "failed": 0, "skipped": 0}
_process = os.getpid()


def pytest_runtest_logreport(report):
	if report.when == "call" or report.outcome != "passed":
		_outcomes[report.outcome] += 1


def pytest_runtest_logfinish():
	_ends.append(time.monotonic())


def pytest_unconfigure(config):
	# Neither xdist's workers nor clones.
	if not hasattr(config, "workerinput") and os.getpid() == _process:
		first, last = (_ends[0], _ends[-1]) if _ends else (0, 0)
		with open(os.environ["FLASHFORK_BENCH_TIMES"], "w") as file:
			json.dump({**_outcomes, "tests": len(_ends), "seconds": last - first}, file)
