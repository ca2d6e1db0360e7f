"""Runs suites of their own, in which things go wrong, in a pytest of their own."""

import pytest
from support import assert_none_left

#: The ways to run tests in clones.
MODES = {"clones": ["--clones", "2"], "each": ["--clone-each"], "both": ["--clones", "2", "--clone-each"]}


@pytest.fixture(params=MODES.values(), ids=MODES)
def mode(request):
	"""One of the ways to run tests in clones."""
	return request.param


@pytest.fixture
def suite(pytester, monkeypatch):
	"""Runs a suite, and fails if it leaves processes."""
	mark = f"FLASHFORK_SUITE={pytester.path}"
	monkeypatch.setenv(*mark.split("="))
	# No plugin that happens to be there.
	monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")
	monkeypatch.setenv("PYTEST_ADDOPTS", "-p flashfork.pytest")

	def run(*args, **files):
		if files:
			pytester.makepyfile(**files)
		result = pytester.runpytest_subprocess(*args, timeout=300)
		assert_none_left(mark)
		return result

	yield run
	assert_none_left(mark)
