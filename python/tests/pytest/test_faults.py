"""A process that dies before, in or after any message that it sends or gets costs its test, and no other."""

import xml.etree.ElementTree as ElementTree

import pytest

pytest_plugins = ["pytester"]

#: After n deaths the next process dies that gets to its message n + 1.
CONFTEST = """
import os, pathlib, signal
from flashfork.pytest._channel import Channel

where, deaths = os.environ["FAULT_WHERE"], pathlib.Path("deaths")
pytest_pid = os.getpid()
send, receive = Channel.send, Channel.receive
counts = {}
deaths.touch()

def dies():
	counts[os.getpid()] = counts.get(os.getpid(), 0) + 1
	if os.getpid() == pytest_pid or counts[os.getpid()] != deaths.stat().st_size + 1 or deaths.stat().st_size == 24:
		return False
	with open(deaths, "a") as file: file.write(".")
	counts[os.getpid()] = 1000  # once
	return True

def die():
	os.kill(os.getpid(), signal.SIGKILL)

class Half:
	def __init__(self, real): self.real = real
	def sendall(self, data, flags=0):
		self.real.sendall(data[: len(data) // 2], flags)
		die()
	def __getattr__(self, name): return getattr(self.real, name)

class Garbage(Half):
	def sendall(self, data, flags=0):
		self.real.sendall(b"#" * len(data), flags)

def faulty_send(self, *message):
	faulty = dies()
	if faulty and where == "before":
		die()
	if faulty and where in ("in", "garbage"):
		self._socket = {"in": Half, "garbage": Garbage}[where](self._socket)
	send(self, *message)
	if faulty and where == "after":
		die()

def faulty_receive(self):
	message = receive(self)
	if dies():
		die()
	return message

if where == "received":
	Channel.receive = faulty_receive
else:
	Channel.send = faulty_send
"""

SUITE = """
	import pytest
	@pytest.fixture(scope="module", autouse=True)
	def higher(): yield
	@pytest.mark.parametrize("n", range(100))
	def test_it(n): print(n)
"""


@pytest.mark.parametrize("where", ["before", "in", "after", "garbage", "received"])
def test_a_death_at_each_message(suite, mode, monkeypatch, where):
	monkeypatch.setenv("FAULT_WHERE", where)
	result = suite(*mode, "--junitxml=out.xml", conftest=CONFTEST, test_it=SUITE)
	with open("deaths") as file:
		deaths = len(file.read())
	assert deaths == 24 or where == "received" and deaths >= 1
	bad = {}
	for case in ElementTree.parse("out.xml").iter("testcase"):
		bad[case.get("name")] = bad.get(case.get("name"), False) or len(case) > 0
	assert set(bad) == {f"test_it[{n}]" for n in range(100)}, "each test is reported"
	# A death after all is said is nothing that a test did.
	assert deaths - 2 <= sum(bad.values()) <= deaths, result.stdout.str()
	assert result.ret == 1
