"""Each test runs programs of its own: a seal is for a whole process, and pytest's shall not be sealed."""

import os
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest


@pytest.fixture
def python(tmp_path):
	"""Runs a program in a new Python that has flashfork; returns what it prints. It fails the test if it fails."""

	def run(program, *, env=(), code=0):
		done = subprocess.run(
			[sys.executable, "-c", textwrap.dedent(program)],
			env={**os.environ, **dict(env)},
			cwd=tmp_path,
			stdout=subprocess.PIPE,
			stderr=subprocess.PIPE,
			text=True,
			timeout=300,
		)
		assert done.returncode == code, f"{done.returncode}: {done.stdout}{done.stderr}"
		return done.stdout if code == 0 else done.stderr

	return run


@pytest.fixture
def template(tmp_path, monkeypatch):
	"""flashfork.Template, with names of this test's own; templates that it leaves are removed."""
	flashfork = pytest.importorskip("flashfork")
	# The path of a socket is short.
	runtime = Path(os.environ.get("TMPDIR", "/tmp")) / f"ff-{os.getpid()}"
	runtime.mkdir(mode=0o700)
	monkeypatch.setenv("XDG_RUNTIME_DIR", str(runtime))
	yield flashfork.Template
	for left in flashfork.Template.all():
		flashfork.Template(left.name).remove()
	subprocess.run(["rm", "-r", str(runtime)], check=True)
