"""The package as it is installed: the command, types, and what lies in the wheel."""

import inspect
import subprocess
import sys
from pathlib import Path

import pytest

import flashfork


def test_the_command_is_in_it():
	# Asked elsewhere: other tests run pytest in this process, after which Python 3.9 finds no package here.
	ask = "import importlib.metadata; print('flashfork', importlib.metadata.version('flashfork'))"
	command = Path(sys.executable).parent / "flashfork"
	commands = [[sys.executable, "-c", ask], [sys.executable, "-m", "flashfork", "--version"], [command, "--version"]]
	said = {subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True).stdout for command in commands}
	assert len(said) == 1, said
	doctor = subprocess.run([sys.executable, "-m", "flashfork", "doctor"], stdout=subprocess.PIPE, text=True)
	assert doctor.returncode == 0 and "seal" in doctor.stdout, doctor


def test_the_command_serves_what_the_package_has_warmed(template):
	template.warm("both", [sys.executable, "-c", ""])
	done = subprocess.run(
		[sys.executable, "-m", "flashfork", "clone", "both", "-c", "print(1)"], stdout=subprocess.PIPE
	)
	assert done.stdout == b"1\n"


def test_a_program_runs_under_the_command(tmp_path):
	program = "import os; [os._exit(0) if os.fork() == 0 else os.wait() for _ in range(3)]; print('done')"
	done = subprocess.run(
		[sys.executable, "-m", "flashfork", "run", "--summary", "--engine", "seal", "--", sys.executable, "-c", program],
		stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
	)  # fmt: skip
	assert done.stdout == "done\n" and "3 forks" in done.stderr, done


def test_everything_public_says_what_it_does():
	for name in flashfork.__all__:
		item = getattr(flashfork, name)
		if name == "unsupported":
			continue
		assert inspect.getdoc(item), name
		if inspect.isclass(item) and item.__module__.startswith("flashfork"):
			for each, member in vars(item).items():
				if not each.startswith("_") and inspect.isroutine(member):
					assert inspect.getdoc(getattr(item, each)), f"{name}.{each}"


def test_types_are_right(tmp_path):
	pytest.importorskip("mypy")
	user = tmp_path / "user.py"
	user.write_text(
		"import flashfork\n"
		"report: flashfork.SealReport = flashfork.seal(threads='stop')\n"
		"pid: int = flashfork.fork()\n"
		"code: int = flashfork.Template('x').run(['a']).returncode\n"
		"flashfork.seal(pages=3)  # type: ignore[arg-type]\n"
	)
	source = Path(__file__).parents[1] / "flashfork"
	for checked in (user, source):
		said = subprocess.run(
			[sys.executable, "-m", "mypy", "--strict", "--warn-unused-ignores", checked],
			cwd=tmp_path, stdout=subprocess.PIPE, text=True,
		)  # fmt: skip
		assert said.returncode == 0, said.stdout
