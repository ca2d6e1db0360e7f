"""Every kind of end that a test's process can have is that test's failure, and the run goes on."""

import re

import pytest

pytest_plugins = ["pytester"]

CRASHES = """
	import os, signal, subprocess, sys, time
	import pytest

	@pytest.fixture
	def crash_in_setup():
		print("in its setup")
		os.kill(os.getpid(), signal.SIGSEGV)

	@pytest.fixture
	def crash_in_teardown():
		yield
		print("in its teardown", flush=True)
		os._exit(4)

	def test_before(): pass
	def test_setup(crash_in_setup): pass
	def test_call():
		print("to standard output")
		print("to standard error", file=sys.stderr)
		os.abort()
	def test_teardown(crash_in_teardown): pass
	def test_exit():
		os._exit(0)
	def test_killed():
		os.kill(os.getpid(), signal.SIGKILL)
	def test_with_a_process_of_its_own():
		subprocess.Popen(["sleep", "1000"])
		os._exit(5)
	def test_closes_everything():
		os.closerange(3, 1000)
	def test_fails(): assert 1 == 2
	def test_after(): pass
"""


def test_a_crash_is_its_tests_failure(suite, mode):
	result = suite(*mode, "-rA", test_crashes=CRASHES)
	# test_teardown has passed before it crashed.
	result.assert_outcomes(passed=3, failed=6, errors=2)
	text = result.stdout.str()
	assert result.ret == 1
	for name, expected in {
		"test_setup": "crashed in its setup: it was killed by SIGSEGV",
		"test_call": "crashed in its call: it was killed by SIGABRT",
		"test_teardown": "crashed in its teardown: it ended with exit status 4",
		"test_exit": "crashed in its call: it ended with exit status 0",
		"test_killed": "crashed in its call: it was killed by SIGKILL, which is also what the system sends when memory",
		"test_with_a_process_of_its_own": "crashed in its call: it ended with exit status 5",
		"test_closes_everything": "crashed in its call: it ended with exit status 1",
	}.items():
		part = section(text, name)
		assert expected in part, part
	assert "in its setup" in section(text, "test_setup")
	assert "Fatal Python error: Segmentation fault" in section(text, "test_setup")
	assert "in its teardown" in section(text, "test_teardown")
	assert "to standard output" in section(text, "test_call") and "to standard error" in section(text, "test_call")


def test_a_crash_is_told_in_the_summary_and_in_one_line(suite, mode):
	crash = "import os\n\ndef test_call():\n    os._exit(3)\n"
	told = "of this test crashed in its call: it ended with exit status 3."
	result = suite(*mode, "--tb=line", test_crash=crash)
	lines = result.stdout.lines
	assert any(re.search(rf"^[^ ]*test_crash\.py:3: .*{told}$", line) for line in lines), lines
	assert any(line.startswith("FAILED test_crash.py::test_call - ") for line in lines), lines


def section(text, name):
	"""What the summary has of the test."""
	found = re.search(rf"^_{{3,}}[^\n]* {name} _{{3,}}$(.*?)(?=^_{{3,}} |^={{3,}} )", text, re.MULTILINE | re.DOTALL)
	assert found, f"{name}: {text}"
	return found[1]


def test_a_crash_in_a_session_fixture_fails_the_tests_that_use_it(suite, mode):
	result = suite(
		*mode,
		test_session="""
		import os, pytest

		@pytest.fixture(scope="session")
		def bad():
			print("the last words")
			os._exit(9)

		def test_without(): pass
		def test_one(bad): pass
		def test_other(bad): pass
		def test_without_again(): pass
		""",
	)
	result.assert_outcomes(passed=2, errors=2)
	assert result.stdout.str().count("crashed in its setup: it ended with exit status 9") >= 2
	assert result.stdout.str().count("the last words") == 2


def test_a_crash_in_the_teardown_of_a_module_is_its_last_tests(suite):
	pytest.importorskip("xdist")
	result = suite(
		"-p",
		"xdist.plugin",
		"--clones=2",
		"--dist=loadfile",
		test_module="""
		import os, pytest

		@pytest.fixture(scope="module")
		def bad():
			yield
			os._exit(9)

		def test_one(bad): pass
		def test_last(bad): pass
		""",
		test_other="""
		def test_it(): pass
		""",
	)
	result.assert_outcomes(passed=3, errors=1)
	result.stdout.fnmatch_lines(["ERROR test_module.py::test_last*"])


@pytest.mark.parametrize("method", ["signal", "thread"])
def test_a_hang_is_ended_by_its_timeout(suite, mode, method):
	pytest.importorskip("pytest_timeout")
	result = suite(
		*mode,
		"-p",
		"pytest_timeout",
		"--timeout=1",
		f"--timeout-method={method}",
		test_hangs="""
		import threading, time
		def test_hangs():
			print("what it wrote")
			time.sleep(1000)
		def test_after(): pass
		""",
	)
	result.assert_outcomes(passed=1, failed=1)
	text = section(result.stdout.str(), "test_hangs")
	assert "Timeout" in text and "what it wrote" in text


def test_a_child_that_comes_back_from_a_test_reports_nothing(suite, mode):
	result = suite(
		*mode,
		test_forks="""
		import os
		def test_forks():
			os.fork()
		def test_child_lives_on():
			if os.fork() == 0:
				import time
				time.sleep(1)
				os._exit(0)
		def test_waits():
			pid = os.fork()
			if pid == 0:
				os._exit(7)
			assert os.waitpid(pid, 0)[1] == 7 << 8
		def test_child_fails():
			pid = os.fork()
			assert pid != 0
			os.waitpid(pid, 0)
		""",
	)
	result.assert_outcomes(passed=4)


def test_output_without_end_is_its_tests_failure(suite, mode):
	result = suite(
		*mode,
		conftest="""
		import flashfork.pytest._child, flashfork.pytest._output
		flashfork.pytest._child.MOST = flashfork.pytest._output.MOST = 4 << 20
		flashfork.pytest._output.SHOWN = 1 << 16
		""",
		test_output="""
		import os
		def test_writes_on():
			print("its first words")
			while True: print("x" * 1000)
		def test_writes_past_the_capture(capfd):
			with capfd.disabled():
				while True: os.write(1, b"y" * 1000)
		def test_after(): pass
		""",
	)
	result.assert_outcomes(passed=1, failed=2)
	assert result.stdout.str().count("it was ended: it had written more than 4 MB") >= 2
	assert "its first words" in result.stdout.str()


def test_a_test_that_kills_pytest_leaves_nothing(suite, mode):
	result = suite(
		*mode,
		conftest="""
		import os
		os.environ["PYTEST_PID"] = str(os.getpid())
		""",
		test_kills="""
		import os, signal, time
		def test_kills():
			os.kill(int(os.environ["PYTEST_PID"]), signal.SIGKILL)
			time.sleep(1000)
		def test_other():
			time.sleep(1000)
		""",
	)
	assert result.ret == -9


def test_a_worker_without_memory(suite, mode):
	result = suite(
		*mode,
		test_memory="""
		import resource
		def test_takes_all():
			with open("/proc/self/statm") as file:
				most = int(file.read().split()[0]) * 4096 + (64 << 20)
			resource.setrlimit(resource.RLIMIT_AS, (most, most))
			taken = []
			while True: taken.append(bytearray(8 << 20))
		def test_after(): pass
		""",
	)
	if mode == ["--clone-each"] or "--clone-each" in mode:
		result.assert_outcomes(passed=1, failed=1)
	else:
		# The limit stays with the worker.
		assert result.parseoutcomes()["failed"] == 1
	assert "MemoryError" in result.stdout.str()
