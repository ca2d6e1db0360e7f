"""Fixtures that xdist has, where it isn't there."""

from __future__ import annotations

from typing import Any

import pytest


@pytest.fixture(scope="session")
def worker_id(request: pytest.FixtureRequest) -> str:
	"""The name of the worker: "gw0" and so on."""
	config: Any = request.config
	return str(config.workerinput["workerid"])


@pytest.fixture(scope="session")
def testrun_uid(request: pytest.FixtureRequest) -> str:
	"""The same in all workers of a run, and in no other run."""
	config: Any = request.config
	return str(config.workerinput["testrunuid"])
