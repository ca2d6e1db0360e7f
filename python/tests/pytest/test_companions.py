"""Other plugins in clones."""

import pytest

pytest_plugins = ["pytester"]


def test_coverage_by_pytest_cov(suite, mode):
	pytest.importorskip("pytest_cov")
	result = suite(
		*(*mode, "-p", "pytest_cov", "--cov=measured", "--cov-report=term-missing"),
		measured="""
		def one():
			return 1
		def two():
			return 2
		def never():
			return 3
		""",
		test_it="""
		import measured
		def test_one(): measured.one()
		def test_two(): measured.two()
		""",
	)
	result.assert_outcomes(passed=2)
	result.stdout.fnmatch_lines(["measured.py * 6 * 1 * 83% * 6"])


def test_coverage_of_tests_that_run_nothing_of_it_warns_of_nothing(suite, mode):
	pytest.importorskip("pytest_cov")
	suite(
		*(*mode, "-p", "pytest_cov", "--cov=measured", "--cov-report=", "-W", "error::coverage.exceptions.CoverageWarning"),
		measured="def one(): return 1",
		test_it="""
		import measured
		def test_one(): measured.one()
		def test_two(): pass
		def test_three(): pass
		""",
	).assert_outcomes(passed=3)


@pytest.mark.parametrize("marked", [False, True])
def test_a_pytest_cov_that_measures_clones_wrong_is_refused(suite, marked):
	pytest.importorskip("pytest_cov")
	result = suite(
		*(() if marked else ("--clone-each",)),
		*("-p", "pytest_cov", "--cov=measured", "--cov-report="),
		conftest="import pytest_cov; pytest_cov.__version__ = '6.3.0'",
		test_it=("import pytest\npytestmark = pytest.mark.clone\n" if marked else "") + "def test_one(): pass",
	)
	assert result.ret == pytest.ExitCode.USAGE_ERROR
	result.stderr.fnmatch_lines(["ERROR: pytest-cov 6.3.0 measures clones wrong: install pytest-cov 7 or later*"])


def test_asyncio_with_a_loop_above_the_function(suite, mode):
	pytest.importorskip("pytest_asyncio", "0.24")
	result = suite(
		*(*mode, "-p", "pytest_asyncio.plugin", "-o", "asyncio_default_fixture_loop_scope=function"),
		test_it="""
		import asyncio, pytest, pytest_asyncio
		@pytest_asyncio.fixture(scope="module", loop_scope="module")
		async def queue():
			made = asyncio.Queue()
			await made.put(1)
			return made
		@pytest.mark.asyncio(loop_scope="module")
		async def test_one(queue):
			await asyncio.to_thread(int)
			assert await queue.get() == 1
			await queue.put(1)
		@pytest.mark.asyncio(loop_scope="module")
		async def test_two(queue):
			process = await asyncio.create_subprocess_exec("true")
			assert await process.wait() == 0
			assert await queue.get() == 1
			await queue.put(1)
		@pytest.mark.asyncio
		async def test_three(): await asyncio.sleep(0)
		""",
	)
	result.assert_outcomes(passed=3)


def test_randomly_seeds_as_without_clones(suite, mode):
	pytest.importorskip("pytest_randomly")
	program = """
		import random, pytest
		@pytest.mark.parametrize("n", range(4))
		def test_it(n): open(f"number{n}", "w").write(str(random.random()))
		"""
	plugin = ("-p", "pytest_randomly", "--randomly-seed=7")
	suite(*plugin, test_it=program).assert_outcomes(passed=4)
	plain = [open(f"number{n}").read() for n in range(4)]
	suite(*plugin, *mode).assert_outcomes(passed=4)
	assert [open(f"number{n}").read() for n in range(4)] == plain


def test_django_has_a_database_for_each_worker(suite, mode):
	pytest.importorskip("pytest_django")
	result = suite(
		*(*mode, "-p", "pytest_django.plugin", "--ds=settings"),
		settings="""
		DATABASES = {"default": {"ENGINE": "django.db.backends.sqlite3", "NAME": "real.db", "TEST": {"NAME": "test.db"}}}
		INSTALLED_APPS = ["django.contrib.contenttypes", "django.contrib.auth"]
		DEFAULT_AUTO_FIELD = "django.db.models.AutoField"
		""",
		test_it="""
		import os, pytest
		from django.db import connection
		@pytest.mark.django_db
		@pytest.mark.parametrize("n", range(4))
		def test_it(n):
			from django.contrib.auth.models import User
			User.objects.create(username="the only one")
			assert User.objects.count() == 1
			worker = os.environ.get("PYTEST_XDIST_WORKER")
			name = os.path.basename(str(connection.settings_dict["NAME"]))
			assert name == ("test.db" if worker is None else f"test.db_{worker}"), name
		@pytest.mark.django_db(transaction=True)
		def test_committed():
			from django.contrib.auth.models import User
			User.objects.create(username="committed")
		""",
	)
	result.assert_outcomes(passed=5)
