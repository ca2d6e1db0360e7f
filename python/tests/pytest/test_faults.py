"""A process that dies before, in or after any message that it sends or gets, costs its test at most, and no other."""

import pytest

pytest_plugins = ["pytester"]

#: Kills a clone at one of its messages: how often a way was taken is counted in files, over all processes.
CONFTEST = """
import os, pathlib, signal, struct
from flashfork.pytest._channel import Channel

where, at, counts = os.environ["FAULT_WHERE"], int(os.environ["FAULT_AT"]), pathlib.Path(os.environ["FAULT_COUNTS"])
pytest_pid = os.getpid()
send, receive = Channel.send, Channel.receive

def hit():
    # Those of the process that the parent doesn't kill: the first that gets there.
    file = os.open(counts / "count", os.O_CREAT | os.O_APPEND | os.O_WRONLY)
    os.write(file, b".")
    return os.fstat(file).st_size == at

class Half:
    def __init__(self, real): self.real = real
    def sendall(self, data, flags=0):
        self.real.sendall(data[: len(data) // 2], flags)
        os.kill(os.getpid(), signal.SIGKILL)
    def __getattr__(self, name): return getattr(self.real, name)

class Garbage(Half):
    def sendall(self, data, flags=0):
        self.real.sendall(b"#" * len(data), flags)

def faulty_send(self, *message):
    if os.getpid() == pytest_pid or not hit():
        return send(self, *message)
    if where == "before":
        os.kill(os.getpid(), signal.SIGKILL)
    if where in ("in", "garbage"):
        self._socket = {"in": Half, "garbage": Garbage}[where](self._socket)
    send(self, *message)
    if where == "after":
        os.kill(os.getpid(), signal.SIGKILL)

def faulty_receive(self):
    message = receive(self)
    if where == "received" and os.getpid() != pytest_pid and hit():
        os.kill(os.getpid(), signal.SIGKILL)
    return message

if where != "received":
    Channel.send = faulty_send
Channel.receive = faulty_receive
"""

SUITE = """
    import pytest
    @pytest.fixture(scope="module", autouse=True)
    def higher(): yield
    def test_one(): print("one")
    def test_two(): pass
    def test_three(): pass
"""


@pytest.mark.parametrize("where", ["before", "in", "after", "garbage", "received"])
@pytest.mark.parametrize("each", [False, True], ids=["clones", "each"])
def test_a_death_at_a_message(suite, monkeypatch, tmp_path, where, each):
    monkeypatch.setenv("FAULT_WHERE", where)
    reached = 0
    for at in range(1, 80):
        counts = tmp_path / str(at)
        counts.mkdir()
        monkeypatch.setenv("FAULT_AT", str(at))
        monkeypatch.setenv("FAULT_COUNTS", str(counts))
        files = {"conftest": CONFTEST, "test_it": SUITE} if at == 1 else {}
        result = suite("--clones", "1", *(["--clone-each"] if each else []), "-p", "no:cacheprovider", **files)
        count = counts / "count"
        if not count.exists() or count.stat().st_size < at:
            # There is no such message any more.
            result.assert_outcomes(passed=3)
            break
        reached = at
        outcomes = result.parseoutcomes()
        failures = outcomes.get("failed", 0) + outcomes.get("errors", 0)
        # A death after all is said is nothing that a test did.
        assert failures <= 1, (at, outcomes)
        # A test that has passed, and then crashed in its teardown, is both.
        assert outcomes.get("passed", 0) in (2, 3), (at, outcomes, result.stdout.str())
        assert outcomes.get("passed", 0) + failures >= 3, (at, outcomes, result.stdout.str())
        assert result.ret == (1 if failures else 0)
    assert reached >= 1
