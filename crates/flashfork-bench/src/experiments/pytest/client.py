"""Times of a program that imports numpy, in seconds: started anew and as a clone by the client library, in turn; and,
where a wheel is named, from its installation to the first clone."""

import json
import os
import subprocess
import sys
import time

ROUNDS = int(sys.argv[1])
PLACE = sys.argv[2]
PROGRAM = "import numpy; print(numpy.arange(4).sum())"
FIRST = f"""
import sys
from flashfork import Template
with Template.warm("first", [sys.executable, "-c", "import numpy"]) as template:
    done = template.run(["-c", {PROGRAM!r}], capture_output=True, text=True, check=True)
    assert done.stdout == "6\\n", done
"""


def timed(run):
	begin = time.monotonic()
	done = run(capture_output=True, text=True, check=True)
	taken = time.monotonic() - begin
	assert done.stdout == "6\n", done
	return taken


def compare():
	from flashfork import Template

	anew, clones = [], []
	with Template.warm("numpy", [sys.executable, "-c", "import numpy"]) as template:
		for _ in range(ROUNDS):
			anew.append(timed(lambda **how: subprocess.run([sys.executable, "-c", PROGRAM], **how)))
			# The template makes its next clone.
			time.sleep(0.03)
			clones.append(timed(lambda **how: template.run(["-c", PROGRAM], **how)))
	return {"plain": anew, "template": clones}


def install(wheel):
	begin = time.monotonic()
	pip = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-deps"]
	subprocess.run([*pip, "--target", f"{PLACE}/installed", wheel], check=True)
	subprocess.run([sys.executable, "-c", FIRST], env={**os.environ, "PYTHONPATH": f"{PLACE}/installed"}, check=True)
	return {"install": [time.monotonic() - begin]}


os.environ["XDG_RUNTIME_DIR"] = PLACE
print(json.dumps({**compare(), **(install(sys.argv[3]) if len(sys.argv) > 3 else {})}))
