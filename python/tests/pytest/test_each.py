"""Fixtures and setup state, with tests in clones of their own."""

import pytest

pytest_plugins = ["pytester"]

LOG = """
import os, pathlib
import pytest
log = pathlib.Path(__file__).with_name("log")
def note(text):
	with open(log, "a") as file: file.write(text + "\\n")
def scoped(scope):
	@pytest.fixture(scope=scope)
	def fixture(request):
		note(f"{scope} up {os.getpid()}")
		yield os.getpid()
		note(f"{scope} down {os.getpid()}")
	return fixture
session, module, klass, function = map(scoped, ("session", "module", "class", "function"))
"""


def lines(pytester):
	return [line.split() for line in (pytester.path / "log").read_text().splitlines()]


def test_what_is_above_the_function_is_set_up_once_in_the_parent(suite, pytester):
	result = suite(
		"--clone-each",
		conftest=LOG,
		test_a="""
		import os
		seen = []
		class Test:
			def test_one(self, session, module, klass, function):
				seen.append(1)
				assert seen == [1] and function == os.getpid() != klass == module == session
			def test_two(self, session, module, klass, function):
				seen.append(2)
				assert seen == [2]
		def test_of_no_class(klass, module):
			assert klass == os.getpid() != module
		""",
		test_b="def test_it(session, module): pass",
	)
	result.assert_outcomes(passed=4)
	found = lines(pytester)
	order = [line[:2] for line in found]
	assert order == [
		*(["session", "up"], ["module", "up"], ["class", "up"]),
		*(["function", "up"], ["function", "down"]) * 2,
		*(["class", "down"], ["class", "up"], ["class", "down"], ["module", "down"]),
		*(["module", "up"], ["module", "down"], ["session", "down"]),
	]
	parents = {pid for scope, _, pid in found if scope in ("session", "module")}
	assert len(parents) == 1 and {pid for scope, _, pid in found if scope == "function"}.isdisjoint(parents)


def test_a_fixture_that_a_test_asks_for_is_torn_down_in_its_clone(suite, pytester):
	result = suite(
		"--clone-each",
		conftest=LOG,
		test_a="""
		def test_one(request, module): request.getfixturevalue("session"); request.getfixturevalue("module")
		def test_two(request): request.getfixturevalue("session"); request.getfixturevalue("module")
		""",
	)
	result.assert_outcomes(passed=2)
	found = lines(pytester)
	for scope, count in (("session", 2), ("module", 1)):
		ups = [pid for name, what, pid in found if (name, what) == (scope, "up")]
		downs = [pid for name, what, pid in found if (name, what) == (scope, "down")]
		assert sorted(ups) == sorted(downs) and len(set(ups)) == count, found


def test_fixtures_that_fail_and_parameters(suite):
	result = suite(
		"--clone-each",
		"-rA",
		test_a="""
		import unittest, pytest
		@pytest.fixture(scope="module", params=["a", "b"])
		def letter(request):
			print("letter", request.param)
			return request.param
		@pytest.fixture(scope="module")
		def broken(): raise ValueError("of the module")
		@pytest.fixture(scope="module")
		def breaks_later():
			yield
			print("of the end")
			raise ValueError("at its end")
		@pytest.fixture
		def breaks_at_once():
			yield
			raise ValueError("in the clone")
		@pytest.mark.parametrize("n", [1, 2])
		def test_letters(letter, n): assert letter != "b" or n == 1
		def test_one(broken): pass
		def test_two(broken): pass
		@pytest.mark.skip
		def test_skipped(broken): pass
		class TestUnit(unittest.TestCase):
			@classmethod
			def setUpClass(cls): cls.value = 5
			def setUp(self): self.other = 6
			def test_it(self): assert self.value + self.other == 11
			def test_sub(self):
				for n in range(3):
					with self.subTest(n=n): pass
		def test_last(breaks_later, breaks_at_once): pass
		""",
	)
	outcomes = result.parseoutcomes()
	assert (outcomes["passed"], outcomes["failed"], outcomes["errors"], outcomes["skipped"]) == (6, 1, 3, 1), outcomes
	text = result.stdout.str()
	assert text.count("ValueError: of the module") >= 2
	assert "ValueError: in the clone" in text and "ValueError: at its end" in text and "of the end" in text
	assert "flashfork/pytest" not in text, "a traceback shows the plugin"


@pytest.mark.parametrize("mark", ["clone", "forked"])
def test_a_mark_is_for_its_tests_alone(suite, mark):
	result = suite(
		test_a=f"""
		import os, pytest
		pid = os.getpid()
		@pytest.mark.{mark}
		def test_in_a_clone(): assert os.getpid() != pid
		def test_here(): assert os.getpid() == pid
		@pytest.mark.{mark}
		def test_crashes(): os._exit(1)
		@pytest.fixture(scope="module", autouse=True)
		def higher():
			yield
			assert os.getpid() == pid
		"""
	)
	result.assert_outcomes(passed=2, failed=1)


def test_clone_false_stays_in_its_process(suite):
	result = suite(
		"--clone-each",
		test_a="""
		import pytest
		seen = []
		@pytest.mark.clone(False)
		def test_one(): seen.append(1)
		def test_two(): assert seen == [1]; seen.append(2)
		def test_three(): assert seen == [1]
		""",
	)
	result.assert_outcomes(passed=3)


def test_threads_that_clones_do_not_have_are_told_once(suite):
	result = suite(
		"--clone-each",
		test_a="""
		import threading, pytest
		@pytest.fixture(scope="module", autouse=True)
		def server():
			end = threading.Event()
			thread = threading.Thread(target=end.wait, name="the-server")
			thread.start()
			yield
			end.set()
			thread.join()
		def test_one(): assert threading.active_count() == 1
		def test_two(): pass
		""",
	)
	result.assert_outcomes(passed=2)
	assert result.stdout.str().count("clones don't have a thread") == 1
	result.stdout.fnmatch_lines(["*(the-server): start them in a fixture of function scope*"])


def test_large_memory_is_sealed(suite):
	flashfork = pytest.importorskip("flashfork")
	if flashfork.unsupported:
		pytest.skip(flashfork.unsupported)
	result = suite(
		"--clone-each",
		conftest="import flashfork.pytest._memory; flashfork.pytest._memory._LARGE = 0",
		test_a="""
		import flashfork, pytest
		@pytest.mark.parametrize("n", range(3))
		def test_it(n): assert flashfork.stats().sealed_forks == n + 2  # the worker is one
		""",
	)
	result.assert_outcomes(passed=3)


def test_a_refused_seal_is_told_once_and_the_run_goes_on(suite, mode):
	result = suite(
		*mode,
		conftest="""
		import errno, flashfork, flashfork.pytest._memory as memory
		def seal(**_): raise flashfork.Refused(errno.EBUSY, "for a reason")
		memory._LARGE, memory.unsupported, memory.seal = 0, None, seal
		""",
		test_a="""
		import pytest
		@pytest.mark.parametrize("n", range(3))
		def test_it(n): pass
		""",
	)
	result.assert_outcomes(passed=3)
	assert result.stdout.str().count("memory isn't sealed, and clones are plain forks: for a reason") == 1
