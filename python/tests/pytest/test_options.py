"""pytest's options, and other plugins, with tests in clones: as people know them."""

import xml.etree.ElementTree as ElementTree

import pytest

pytest_plugins = ["pytester"]

TESTS = """
	import logging, os, sys, warnings
	import pytest
	def test_passes(record_property):
		record_property("key", "value")
		warnings.warn(UserWarning("a warning"))
	def test_fails():
		print("to standard output")
		os.system("echo of a process")
		print("to standard error", file=sys.stderr)
		logging.getLogger().warning("to the log")
		assert "left" == "right"
	@pytest.mark.skip(reason="for a reason")
	def test_skipped(): pass
	@pytest.mark.xfail(reason="known")
	def test_xfails(): assert 0
	@pytest.mark.xfail
	def test_xpasses(): pass
	@pytest.mark.parametrize("n", [1, 2, 3])
	def test_more(n, tmp_path, capfd, capsys_text="x"): print(n); assert capfd.readouterr().out == f"{n}\\n"
"""


def test_the_summary_is_plain_pytests(suite, mode):
	plain = suite("-rA", "--junitxml=out.xml", test_it=TESTS)
	result = suite("-rA", *mode, "--junitxml=out.xml", "--durations=3")
	assert result.parseoutcomes() == plain.parseoutcomes()
	text = result.stdout.str()
	for part in ("Captured stdout call", "of a process", "Captured stderr call", "Captured log call", "to the log"):
		assert part in text
	assert "assert 'left' == 'right'" in text and "slowest 3 durations" in text and "[100%]" in text
	assert "UserWarning: a warning" in text and "for a reason" in text
	suite_ = ElementTree.parse("out.xml").find("testsuite")
	assert (suite_.get("tests"), suite_.get("failures"), suite_.get("skipped")) == ("8", "1", "2")
	assert suite_.find(".//property").get("value") == "value"


@pytest.mark.parametrize("capture", ["fd", "sys", "tee-sys", "no"])
def test_each_kind_of_capture(suite, mode, capture):
	result = suite(*mode, f"--capture={capture}", test_it=TESTS)
	outcomes = {"passed": 4, "failed": 1, "skipped": 1, "xfailed": 1, "xpassed": 1, "warnings": 1}
	assert result.parseoutcomes() == outcomes
	assert "to standard output" in result.stdout.str() + result.stderr.str()
	assert "of a process" in result.stdout.str()


def test_last_failed_and_k(suite, mode):
	suite(*mode, test_it=TESTS)
	result = suite(*mode, "--lf")
	result.assert_outcomes(failed=1)
	result = suite(*mode, "-k", "test_passes")
	result.assert_outcomes(passed=1, deselected=7)
	result = suite(*mode, "-k", "nothing")
	assert result.ret == pytest.ExitCode.NO_TESTS_COLLECTED


def test_pdb_stays_in_the_process(suite, mode):
	result = suite(
		*mode,
		"--pdb",
		test_it="""
		import os
		pid = os.getpid()
		def test_here(): assert os.getpid() == pid
		""",
	)
	result.assert_outcomes(passed=1)


def test_a_breakpoint_in_a_clone_says_what_to_do(suite, mode):
	result = suite(*mode, test_it="def test_it(): breakpoint()")
	result.assert_outcomes(failed=1)
	result.stdout.fnmatch_lines(["*A debugger can't run in a clone*--clones 0 or --pdb*"])


def test_workers_have_xdists_names(suite):
	result = suite(
		"--clones=2",
		test_it="""
		import os, pytest
		@pytest.mark.parametrize("n", range(6))
		def test_names(n, worker_name, tmp_path_factory):
			assert worker_name in ("gw0", "gw1")
			assert os.environ["PYTEST_XDIST_WORKER"] == worker_name
			assert os.environ["PYTEST_XDIST_WORKER_COUNT"] == "2"
			assert tmp_path_factory.getbasetemp().name == f"popen-{worker_name}"
		@pytest.fixture(scope="session")
		def worker_name(request): return request.config.workerinput["workerid"]
		""",
	)
	result.assert_outcomes(passed=6)


@pytest.mark.parametrize("distribution, key", [("loadscope", "scope"), ("loadfile", "file"), ("loadgroup", "group")])
def test_tests_stay_together_as_xdists_do(suite, distribution, key):
	pytest.importorskip("xdist")
	file = """
	import os, pathlib, pytest
	def note(**names):
		with open(pathlib.Path(__file__).parent / "log", "a") as log:
			for key, value in names.items(): print(key, value, os.getpid(), file=log)
	class TestOne:
		@pytest.mark.parametrize("n", range(4))
		def test_it(self, n): note(file=__file__, scope=__file__ + "One")
	class TestTwo:
		@pytest.mark.xdist_group("x")
		@pytest.mark.parametrize("n", range(4))
		def test_it(self, n): note(file=__file__, scope=__file__ + "Two", group="x")
	"""
	result = suite("-p", "xdist.plugin", "--clones=auto", "-n3", f"--dist={distribution}", test_a=file, test_b=file)
	result.assert_outcomes(passed=16)
	pids = {}
	with open("log") as log:
		for line in log:
			kind, name, pid = line.split()
			if kind == key:
				pids.setdefault(name, set()).add(pid)
	assert pids and all(len(each) == 1 for each in pids.values()), pids


def test_options_without_xdist(suite):
	result = suite("-p", "no:xdist", "-n2", test_it="def test_it(): pass")
	assert result.ret == pytest.ExitCode.USAGE_ERROR
	result.stderr.fnmatch_lines(["*-n and --dist need --clones*"])
	result = suite("-p", "no:xdist", "-n2", "--clones=auto", "--dist=loadfile")
	result.assert_outcomes(passed=1)
	result.stdout.fnmatch_lines(["*tests run in up to 2 clones*"])


def test_a_failed_subtest_fails_its_test(suite, mode):
	test = """
		def test_it(subtests):
			for n in range(3):
				with subtests.test(n=n): assert n != 1
		"""
	plain = suite(test_it=test)
	if plain.ret != pytest.ExitCode.TESTS_FAILED or "errors" in plain.parseoutcomes():
		pytest.skip("this pytest has no subtests")
	assert suite(*mode).parseoutcomes() == plain.parseoutcomes()


def test_xdists_own_workers_do_not_clone(suite):
	pytest.importorskip("xdist")
	test = """
		import os, pytest
		pid = os.getpid()
		@pytest.mark.clone
		def test_it(): assert os.getpid() == pid
		"""
	suite("-p", "xdist.plugin", "-n1", test_it=test).assert_outcomes(passed=1)
	result = suite("-p", "xdist.plugin", "-n1", "--clone-each")
	assert result.ret == pytest.ExitCode.USAGE_ERROR
	result.stderr.fnmatch_lines(["*--clone-each doesn't go with xdist's workers*"])


def test_an_error_in_collection_stops_it(suite, mode):
	result = suite(*mode, test_it="def test_it(): pass", test_broken="import nothing_of_this_name")
	assert result.ret == pytest.ExitCode.INTERRUPTED
	result.assert_outcomes(errors=1)


def test_random_numbers_that_were_chosen_stay_and_others_are_new(suite):
	program = """
		import random, pytest
		{}
		@pytest.mark.parametrize("n", range(2))
		def test_it(n): open(f"number{{n}}", "w").write(str(random.random()))
		"""
	for choose, same in (("random.seed(5)", True), ("", False)):
		suite("--clone-each", test_it=program.format(choose)).assert_outcomes(passed=2)
		assert (open("number0").read() == open("number1").read()) is same
