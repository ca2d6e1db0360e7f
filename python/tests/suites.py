"""Suites of well-known packages come to the same outcomes plain, by ``--clones 4`` and by ``--clone-each``.

Run by a Python that has what python/requirements-suites.txt names, flashfork, and pip; the packages' sources, in which
their tests are, come from PyPI. The argument is a directory for them.
"""

from __future__ import annotations

import subprocess
import sys
from collections import Counter
from importlib.metadata import version
from pathlib import Path
from typing import Dict, List
from xml.etree import ElementTree

#: By package: where its tests are, in its source.
SUITES = {"attrs": "tests", "jinja2": "tests", "networkx": "networkx"}
WAYS: Dict[str, List[str]] = {"plain": [], "clones": ["--clones", "4"], "clone-each": ["--clone-each"]}


def source(package: str, place: Path) -> Path:
	"""The unpacked source of the version that is installed."""
	wanted = f"{package}=={version(package)}"
	pip = [sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check"]
	subprocess.run([*pip, "--no-deps", "--no-binary", ":all:", "--dest", place / package, wanted], check=True)
	[archive] = (place / package).glob("*.tar.gz")
	unpacked = place / package / "source"
	unpacked.mkdir()
	subprocess.run(["tar", "-xf", archive, "-C", unpacked, "--strip-components=1"], check=True)
	return unpacked


def outcomes(directory: Path, tests: str, way: str) -> "Counter[tuple[str, str, str]]":
	"""How often which test came to what: some names come twice."""
	report = directory / f"{way}.xml"
	command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", f"--junitxml={report}", *WAYS[way], tests]
	ended = subprocess.run(command, cwd=directory)
	if ended.returncode not in (0, 1):
		raise SystemExit(f"pytest {way} in {directory} ended with {ended.returncode}")
	found: "Counter[tuple[str, str, str]]" = Counter()
	for case in ElementTree.parse(report).iter("testcase"):
		kinds = sorted(child.tag for child in case if child.tag in ("failure", "error", "skipped"))
		found[case.get("classname", ""), case.get("name", ""), " ".join(kinds) or "passed"] += 1
	return found


def main() -> None:
	place = Path(sys.argv[1]).resolve()
	place.mkdir(parents=True)
	different = []
	for package, tests in SUITES.items():
		directory = source(package, place)
		plain = outcomes(directory, tests, "plain")
		for way in list(WAYS)[1:]:
			other = outcomes(directory, tests, way)
			different += [f"{package}, only plain: {each}" for each in plain - other]
			different += [f"{package}, only by {way}: {each}" for each in other - plain]
		print(f"{package}: {sum(plain.values())} tests compared", flush=True)
	for line in different:
		print(line)
	if different:
		raise SystemExit(1)


if __name__ == "__main__":
	main()
