"""Runs that end early: by Ctrl-C, by -x and --maxfail, by pytest.exit()."""

import os
import signal
import subprocess
import sys
import time

import pytest
from support import assert_none_left

pytest_plugins = ["pytester"]


def test_ctrl_c_ends_everything_and_tears_down(pytester, mode, tmp_path, monkeypatch):
	mark = f"FLASHFORK_SUITE={tmp_path}"
	pytester.makepyfile(
		test_long="""
		import os, pathlib, subprocess, time, pytest
		notes = pathlib.Path(os.environ["FLASHFORK_SUITE"])

		@pytest.fixture(scope="session")
		def higher():
			yield
			(notes / "higher is down").touch()

		@pytest.fixture
		def function():
			yield
			(notes / "function is down").touch()

		def test_long(higher, function):
			subprocess.Popen(["sleep", "1000"])
			(notes / "runs").touch()
			time.sleep(1000)
		"""
	)
	environment = {**os.environ, "FLASHFORK_SUITE": str(tmp_path), "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
	run = subprocess.Popen(
		[sys.executable, "-m", "pytest", "-p", "flashfork.pytest", *mode],
		stdout=subprocess.PIPE,
		stderr=subprocess.STDOUT,
		text=True,
		env=environment,
		cwd=pytester.path,
		# A shell's background ignores it, and Python then leaves it so.
		preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
	)
	try:
		wait_for(tmp_path / "runs", run)
		run.send_signal(signal.SIGINT)
		text = run.communicate(timeout=120)[0]
	finally:
		run.kill()
	assert run.returncode == pytest.ExitCode.INTERRUPTED, text
	assert "KeyboardInterrupt !!!" in text and "no tests ran" in text, text
	assert (tmp_path / "function is down").exists() and (tmp_path / "higher is down").exists(), text
	assert_none_left(mark)


def wait_for(path, run):
	end = time.monotonic() + 120
	while not path.exists():
		assert run.poll() is None and time.monotonic() < end, run.communicate()[0]
		time.sleep(0.02)


TEN = """
	import pytest
	@pytest.fixture(scope="module", autouse=True)
	def higher(): yield
	@pytest.mark.parametrize("n", range(10))
	def test_it(n): assert n < 2
"""


def test_x_stops_the_queue(suite, mode):
	result = suite(*mode, "-x", test_ten=TEN)
	result.stdout.fnmatch_lines(["*stopping after 1 failures*"])
	outcomes = result.parseoutcomes()
	assert outcomes["failed"] == 1 and outcomes["passed"] <= 2
	assert result.ret == pytest.ExitCode.TESTS_FAILED


def test_maxfail_counts_the_failures_of_all(suite, mode):
	result = suite(*mode, "--maxfail=3", test_ten=TEN)
	result.stdout.fnmatch_lines(["*stopping after 3 failures*"])
	assert result.parseoutcomes()["failed"] == 3


@pytest.mark.parametrize(
	"statement, status, line",
	[
		("pytest.exit('that is all', returncode=5)", 5, "*Exit: that is all*"),
		("raise KeyboardInterrupt('by the test')", 2, "*KeyboardInterrupt*"),
		("request.session.shouldstop = 'a plugin says so'", 2, "*a plugin says so*"),
	],
)
def test_what_ends_a_run_in_a_test_ends_it(suite, mode, statement, status, line):
	result = suite(
		*mode,
		test_exit=f"""
		import pytest
		def test_one(request):
			{statement}
		@pytest.mark.parametrize("n", range(50))
		def test_more(n): pass
		""",
	)
	assert result.ret == status
	result.stdout.fnmatch_lines([line])


def test_an_error_in_a_hook_ends_the_run(suite, mode):
	result = suite(
		*mode,
		conftest="""
		def pytest_runtest_logfinish(nodeid):
			raise RuntimeError("of the hook")
		""",
		test_it="def test_it(): pass",
	)
	assert result.ret == pytest.ExitCode.INTERNAL_ERROR
	assert "RuntimeError: of the hook" in result.stdout.str()
