"""docs/PYTHON.md: what stands there as Python runs as it stands."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

TEXT = (Path(__file__).parents[2] / "docs/PYTHON.md").read_text()
BLOCKS = re.findall(r"^## (.+?)$.*?^```python\n(.*?)^```$", TEXT, re.MULTILINE | re.DOTALL)
PRINTED = {
	"Fork a large process again and again": {"0 0", "1 1000", "2 2000"},
	"Use multiprocessing": {"4500000"},
	"Keep a program warm and run clones of it": {"42", " 1"},
	"Go back to where you were": {"{'runs': 1} 101"},
	"Put one array back, thousands of times a second": {"5000.0"},
}


def test_each_block_has_its_output():
	assert [title for title, _ in BLOCKS] == list(PRINTED)


@pytest.mark.parametrize("title, program", BLOCKS, ids=[title for title, _ in BLOCKS])
def test_a_block_runs_as_it_stands(python, tmp_path, title, program):
	(tmp_path / "run").mkdir(mode=0o700)
	assert set(python(program, env={"XDG_RUNTIME_DIR": str(tmp_path / "run")}).splitlines()) == PRINTED[title]


COMMANDS = re.findall(r"^pytest (.+?) +#", TEXT, re.MULTILINE)


@pytest.mark.parametrize("options", COMMANDS)
def test_a_command_for_pytest_runs_as_it_stands(tmp_path, options):
	(tmp_path / "test_two.py").write_text("def test_one(): pass\ndef test_two(): pass\n")
	command = [sys.executable, "-m", "pytest", *options.split()]
	done = subprocess.run(command, cwd=tmp_path, stdout=subprocess.PIPE, text=True)
	assert done.returncode == 0 and "2 passed" in done.stdout, done.stdout


def test_all_three_commands_were_found():
	assert len(COMMANDS) == 3, COMMANDS
