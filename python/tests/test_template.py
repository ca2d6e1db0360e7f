"""Template and Clone."""

import ctypes
import errno
import gc
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

import flashfork


@pytest.fixture
def warm(template):
	"""A Python with json and a name of its own, warm."""
	return template.warm("py", [sys.executable, "-c", "import json; warmed = 1"])


def test_a_clone_runs_what_it_is_given(warm, tmp_path):
	script = tmp_path / "job.py"
	script.write_text("import json, sys; print(json.dumps(sys.argv[1:])); sys.exit(3)")
	done = warm.run([script, "7", "ä"], capture_output=True, text=True)
	assert (done.returncode, done.stdout, done.stderr) == (3, '["7", "\\u00e4"]\n', "")
	info = warm.info()
	assert (info.name, info.state, info.ready, info.clones_made) == ("py", "waiting", "python", 1)
	assert [each.name for each in flashfork.Template.all()] == ["py"]


def test_environment_directory_and_input_are_the_callers(warm, tmp_path):
	program = "import os, sys; print(os.environ['COLOUR'], os.getcwd(), sys.stdin.read())"
	done = warm.run(
		["-c", program], env={"COLOUR": "blue"}, cwd=tmp_path, input="hello", capture_output=True, text=True
	)
	assert done.stdout == f"blue {tmp_path} hello\n", done


def test_much_input_and_output_goes_through(warm):
	data = os.urandom(1 << 20)
	program = "import sys; d = sys.stdin.buffer.read(); sys.stdout.buffer.write(d); sys.stderr.buffer.write(d[::-1])"
	done = warm.run(["-c", program], input=data, capture_output=True)
	assert done.stdout == data and done.stderr == data[::-1]


def test_one_string_is_no_list_of_arguments(warm):
	for call in (warm.run, warm.start):
		with pytest.raises(TypeError, match="takes a list"):
			call("-c pass")
	with pytest.raises(TypeError, match="takes a list"):
		flashfork.Template.warm("words", "python3 -c 1")
	with pytest.raises(TypeError, match="text=True"):
		warm.run(["-c", "pass"], input="text")


def test_a_clone_that_reads_no_input_is_no_failure(warm):
	assert warm.run(["-c", "pass"], input=b"x" * (1 << 20)).returncode == 0


def test_failures_are_those_of_subprocess(warm):
	with pytest.raises(subprocess.CalledProcessError) as failed:
		warm.run(["-c", "print('out'); raise SystemExit(9)"], check=True, capture_output=True)
	assert (failed.value.returncode, failed.value.stdout) == (9, b"out\n")
	with pytest.raises(subprocess.TimeoutExpired):
		warm.run(["-c", "import time; time.sleep(1000)"], timeout=0.2)
	with pytest.raises(ValueError):
		warm.run([], input=b"", stdin=subprocess.DEVNULL)
	until(lambda: warm.info().clones_running == 0)


def test_communicate_loses_nothing_by_a_time_out(warm):
	program = "import sys; print('one', flush=True); print(sys.stdin.readline(), end='', flush=True); print('two')"
	clone = warm.start(["-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
	# It waits for its input, which comes when "one" has been read.
	with pytest.raises(subprocess.TimeoutExpired):
		stdin, clone.stdin = clone.stdin, None
		while True:
			try:
				clone.communicate(timeout=0.2)
			except subprocess.TimeoutExpired as late:
				if late.output:
					raise
	stdin.write(b"in\n")
	stdin.close()
	assert clone.communicate() == (b"one\nin\ntwo\n", None)
	with pytest.raises(ValueError):
		clone.communicate(b"more")
	clone.close()


def test_what_c_would_cut_short_is_refused(warm):
	"""A byte 0 ends a string there, and a number too large becomes another."""
	job = ["-c", "pass"]
	for wrong in (
		lambda: warm.run(["-c", "print(1)\0print(2)"]),
		lambda: warm.run(job, env={"A": "x\0y"}),
		lambda: warm.run(job, env={"A=B": "c"}),
		lambda: warm.run(job, cwd="/tmp\0/x"),
		lambda: flashfork.Template("py\0").info(),
		lambda: flashfork.Template.warm("other", ["/bin/true\0"]),
		lambda: flashfork.Template.warm("other", ["/bin/true"], max_clones=-1),
	):
		with pytest.raises(ValueError):
			wrong()
	with warm.start(["-c", "import time; time.sleep(1000)"]) as clone:
		with pytest.raises(ctypes.ArgumentError):
			clone.send_signal((1 << 32) + signal.SIGKILL)
		assert clone.poll() is None
		clone.kill()
	assert clone.returncode == -signal.SIGKILL


def test_a_signal_ends_a_clone(warm):
	clone = warm.start(["-c", "import time; print('up', flush=True); time.sleep(1000)"], stdout=subprocess.PIPE)
	assert clone.stdout.readline() == b"up\n" and clone.poll() is None
	clone.terminate()
	assert clone.wait(60) == -signal.SIGTERM and clone.poll() == -signal.SIGTERM
	clone.close()
	with pytest.raises(ValueError):
		clone.kill()


def test_a_clone_that_nobody_holds_is_killed(warm):
	clone = warm.start(["-c", "import time; time.sleep(1000)"])
	pid = clone.pid
	del clone
	until(lambda: not Path(f"/proc/{pid}").exists())


def test_outputs_may_be_files_and_one(warm, tmp_path):
	program = "import sys; print('a', flush=True); print('b', file=sys.stderr)"
	with open(tmp_path / "both", "wb") as both:
		assert warm.run(["-c", program], stdout=both, stderr=subprocess.STDOUT).returncode == 0
	assert (tmp_path / "both").read_bytes() == b"a\nb\n"
	done = warm.run(["-c", program], stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
	assert done.stdout == b"a\nb\n"
	assert warm.run(["-c", program], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE).stderr == b"b\n"


def test_several_threads_run_clones_at_a_time(warm):
	wrong = []

	def work(n):
		done = warm.run(["-c", f"print({n} * 7)"], capture_output=True, text=True)
		if done.stdout != f"{n * 7}\n":
			wrong.append(done)

	threads = [threading.Thread(target=work, args=(n,)) for n in range(16)]
	for thread in threads:
		thread.start()
	for thread in threads:
		thread.join()
	assert not wrong


def test_a_signal_handler_runs_while_a_clone_is_waited_for(warm):
	seen = []
	old = signal.signal(signal.SIGUSR1, lambda *_: seen.append(1))
	try:
		# The clone sends it while this thread waits, and ends only when its standard input does. Again and again: one
		# that comes a moment before the wait begins has its handler run when that is over, as in any call of C.
		send = f"os.kill({os.getpid()}, {int(signal.SIGUSR1)})"
		program = f"import os, select\nwhile not select.select([0], [], [], 0.01)[0]: {send}"
		with warm.start(["-c", program], stdin=subprocess.PIPE) as clone:
			closing = threading.Thread(target=lambda: (until(lambda: seen), clone.stdin.close()))
			closing.start()
			assert clone.wait() == 0
			closing.join()
	finally:
		signal.signal(signal.SIGUSR1, old)


def test_there_is_no_clone_once_code_has_changed_unless_a_fresh_one_is_wanted(template, tmp_path):
	module = tmp_path / "changing.py"
	module.write_text("value = 1\n")
	environment = {**os.environ, "PYTHONPATH": str(tmp_path)}
	with template.warm("stale", [sys.executable, "-c", "import changing"], env=environment) as stale:
		module.write_text("value = 22\n")
		program = "import changing; print(changing.value)"
		with pytest.raises(flashfork.StaleTemplate, match="changing.py changed.*fresh=True"):
			stale.run(["-c", program], env=environment)
		assert (stale.info().changed_files, stale.info().clones_made) == (1, 0)
		for _ in range(2):
			done = stale.run(["-c", program], fresh=True, env=environment, capture_output=True)
			assert done.stdout == b"22\n" and stale.info().changed_files == 0
		module.write_text("value =")
		with pytest.raises(flashfork.Error, match="stays as it was") as told:
			stale.run(["-c", program], fresh=True, env=environment, stderr=subprocess.DEVNULL)
		assert told.value.errno == errno.ECHILD and stale.info().clones_made == 2
	assert flashfork.Template.all() == []


def test_a_watched_template_is_warmed_anew_by_its_callers(template, tmp_path):
	for name in ("one", "two"):
		(tmp_path / name).mkdir()
		(tmp_path / name / "changing.py").write_text(f"value = '{name}'\n")
	program = "import changing; print(changing.value)"

	def shown(name):
		environment = {**os.environ, "PYTHONPATH": str(tmp_path / name)}
		return watched.run(["-c", program], env=environment, capture_output=True, text=True, check=True).stdout

	environment = {**os.environ, "PYTHONPATH": str(tmp_path / "one")}
	with template.warm("watched", [sys.executable, "-c", "import changing"], env=environment, watch=True) as watched:
		assert [shown("one"), shown("two"), shown("two")] == ["one\n", "two\n", "two\n"]
		assert watched.info().clones_made == 2
		(tmp_path / "two" / "changing.py").write_text("value = 'three'\n")
		assert shown("two") == "three\n" and watched.info().changed_files == 0


def test_what_goes_wrong_is_told(template, tmp_path):
	def wrong(number, call, *args, **options):
		with pytest.raises(flashfork.Error) as told:
			call(*args, **options)
		assert told.value.errno == number and told.value.strerror, told.value

	wrong(errno.ENOENT, template("none").run)
	wrong(errno.ENOENT, template("none").info)
	wrong(errno.ENOENT, template.warm, "none", [tmp_path / "missing"])
	wrong(errno.ECHILD, template.warm, "ends", [sys.executable, "-c", "raise SystemExit(1)"])
	wrong(errno.ETIMEDOUT, template.warm, "slow", [sys.executable, "-c", "import time; time.sleep(1000)"], timeout=0.2)
	wrong(errno.EINVAL, template.warm, "a/b", [sys.executable])
	for call in (lambda: template.warm("x", []), lambda: template.warm("x", ["true"], ready="never")):
		with pytest.raises(ValueError):
			call()
	first = template.warm("twice", [sys.executable, "-c", ""])
	wrong(errno.EEXIST, template.warm, "twice", [sys.executable, "-c", ""])
	wrong(errno.ENOENT, first.run, ["-c", ""], cwd=tmp_path / "missing")
	assert template("none").remove() == 0
	assert [each.name for each in template.all()] == ["twice"]


def test_a_template_goes_after_as_many_clones_as_it_may_make(template):
	few = template.warm("few", [sys.executable, "-c", ""], max_clones=2)
	assert few.info().max_clones == 2
	assert [few.run(["-c", ""]).returncode for _ in range(2)] == [0, 0]
	until(lambda: template.all() == [])


def test_a_template_that_is_killed_takes_its_clones_along(template):
	killed = template.warm("killed", [sys.executable, "-c", ""])
	clone = killed.start(["-c", "import time; print('up', flush=True); time.sleep(1000)"], stdout=subprocess.PIPE)
	assert clone.stdout.readline() == b"up\n"
	os.kill(killed.info().pid, signal.SIGKILL)
	with pytest.raises(flashfork.Error) as told:
		clone.wait(60)
	assert told.value.errno == errno.ESRCH


def test_no_descriptor_is_left(warm):
	def open_now():
		gc.collect()  # what earlier tests have left
		return len(os.listdir("/proc/self/fd"))

	warm.run(["-c", ""], capture_output=True, input=b"")
	before = open_now()
	for _ in range(10):
		warm.run(["-c", "print(1)"], capture_output=True, input=b"x")
		with pytest.raises(flashfork.Error):
			flashfork.Template("none").run([], capture_output=True, input=b"")
	assert open_now() == before


def until(condition):
	"""Waits for a condition, for a minute at most."""
	for _ in range(6000):
		if condition():
			return
		time.sleep(0.01)
	raise AssertionError("it never came")
