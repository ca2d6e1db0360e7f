"""redis.py SHIM KEYS ROUNDS: redis-server under the shim, snapshots under writes, against a model of every key.

Each round changes 10,000 keys, starts a snapshot (BGSAVE), goes on writing while it is taken, gives memory back (MEMORY PURGE), reloads
everything (DEBUG RELOAD), and compares all keys with the model. Each snapshot is loaded by a plain server at the end, and must hold what
the model held when it began. Exit status 0: it does; 1: it doesn't, with one line after the end of the server's log; 77: redis-server
is not installed.
"""

import os
import random
import shutil
import socket
import subprocess
import sys
import tempfile
import time

CHANGES = 10_000
MORE = 2_000
CHUNK = 500
# Seconds until a server that says nothing is taken for dead.
PATIENCE = 120


class Server:
	"""A redis-server in a directory, with one connection. It ends with the `with`; when that ends badly, its log is told."""

	def __init__(self, place, preload):
		env = dict(os.environ, LD_PRELOAD=preload) if preload else dict(os.environ)
		self.path, self.log = os.path.join(place, "socket"), os.path.join(place, "log")
		command = ["redis-server", "--port", "0", "--unixsocket", self.path, "--dir", place, "--save", "", "--daemonize", "no"]
		command += ["--enable-debug-command", "yes", "--logfile", self.log]
		self.process = subprocess.Popen(command, env=env, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL)

	def __enter__(self):
		try:
			self.connect()
		except BaseException:
			self.end_badly()
			raise
		return self

	def __exit__(self, kind, *_):
		if kind is not None:
			self.end_badly()
			return
		self.send([["SHUTDOWN", "NOSAVE"]])
		if self.process.wait(PATIENCE) != 0:
			fail("redis-server ended with status %s" % self.process.returncode)

	def end_badly(self):
		self.process.kill()
		self.process.wait()
		if os.path.exists(self.log):
			with open(self.log) as log:
				sys.stderr.writelines(log.readlines()[-40:])

	def connect(self):
		deadline = time.monotonic() + PATIENCE
		while True:
			self.socket = socket.socket(socket.AF_UNIX)
			self.socket.settimeout(PATIENCE)
			try:
				self.socket.connect(self.path)
				self.stream = self.socket.makefile("rb")
				if self.ask("PING") == b"PONG":
					break
			except OSError:
				pass
			if self.process.poll() is not None or time.monotonic() > deadline:
				fail("redis-server does not start")
			time.sleep(0.05)

	def send(self, commands):
		out = bytearray()
		for command in commands:
			out += b"*%d\r\n" % len(command)
			for word in command:
				word = word if isinstance(word, bytes) else str(word).encode()
				out += b"$%d\r\n%s\r\n" % (len(word), word)
		self.socket.sendall(out)

	def reply(self):
		line = self.stream.readline()
		if not line.endswith(b"\r\n"):
			fail("redis-server has ended: %s" % self.process.wait())
		kind, rest = line[:1], line[1:-2]
		if kind == b"+":
			return rest
		if kind == b":":
			return int(rest)
		if kind == b"$":
			return None if rest == b"-1" else self.stream.read(int(rest) + 2)[:-2]
		if kind == b"*":
			return [self.reply() for _ in range(int(rest))]
		if rest.startswith(b"LOADING"):
			return None
		fail("redis-server says " + rest.decode())

	def all(self, commands):
		"""Sends commands and gives their replies, so many at a time that no buffer fills up."""
		replies = []
		for at in range(0, len(commands), CHUNK):
			part = commands[at : at + CHUNK]
			self.send(part)
			replies += [self.reply() for _ in part]
		return replies

	def ask(self, *command):
		return self.all([command])[0]

	def info(self, field):
		text = self.ask("INFO")
		for line in text.split(b"\r\n"):
			if line.startswith(field.encode() + b":"):
				return line.split(b":", 1)[1].decode()
		fail("INFO lacks " + field)


def fail(text):
	print("redis: " + text, file=sys.stderr)
	sys.exit(1)


def value(rng):
	return rng.randbytes(rng.randrange(8, 160)) * rng.randrange(1, 12)


def change(rng, model, keys, count):
	"""Commands that change so many keys, and the model with them."""
	commands = []
	for _ in range(count):
		key = b"key:%d" % rng.randrange(keys)
		action = rng.random()
		if action < 0.08:
			model.pop(key, None)
			commands.append(["DEL", key])
		elif action < 0.25 and key in model:
			more = rng.randbytes(30)
			model[key] += more
			commands.append(["APPEND", key, more])
		else:
			model[key] = value(rng)
			commands.append(["SET", key, model[key]])
	return commands


def compare(server, model, keys, when):
	names = [b"key:%d" % i for i in range(keys)]
	for at in range(0, keys, CHUNK):
		part = names[at : at + CHUNK]
		for name, found in zip(part, server.ask("MGET", *part)):
			if found != model.get(name):
				fail("%s: %s is not what was written" % (when, name.decode()))
	if server.ask("DBSIZE") != len(model):
		fail(when + ": another number of keys")


def sealed(pid):
	with open("/proc/%d/maps" % pid) as maps:
		return "memfd:flashfork:" in maps.read()


def main():
	if shutil.which("redis-server") is None:
		print("redis-server is not installed (Debian: redis-server)", file=sys.stderr)
		sys.exit(77)
	shim, keys, rounds = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
	rng = random.Random(7)
	model, snapshots = {}, []
	with tempfile.TemporaryDirectory() as place:
		forks = []
		with Server(place, shim) as server:
			server.all(change(rng, model, keys, 2 * keys))
			for number in range(rounds):
				server.all(change(rng, model, keys, CHANGES))
				if server.ask("BGSAVE") != b"Background saving started":
					fail("no snapshot")
				then = dict(model)
				server.all(change(rng, model, keys, MORE))
				while server.info("rdb_bgsave_in_progress").strip() != "0":
					server.all(change(rng, model, keys, 100))
				if server.info("rdb_last_bgsave_status").strip() != "ok":
					fail("a snapshot failed")
				forks.append(server.info("latest_fork_usec").strip())
				kept = os.path.join(place, "round-%d.rdb" % number)
				os.replace(os.path.join(place, "dump.rdb"), kept)
				snapshots.append((kept, then))
				server.ask("MEMORY", "PURGE")
				compare(server, model, keys, "after MEMORY PURGE in round %d" % number)
				if server.ask("DEBUG", "RELOAD") != b"OK":
					fail("DEBUG RELOAD failed")
				compare(server, model, keys, "after DEBUG RELOAD in round %d" % number)
			was_sealed = sealed(server.process.pid)
		for number, (kept, then) in enumerate(snapshots):
			os.replace(kept, os.path.join(place, "dump.rdb"))
			with Server(place, None) as server:
				compare(server, then, keys, "snapshot %d" % number)
	how = "sealed" if was_sealed else "not sealed (it has threads)"
	print("redis: %d snapshots of %d keys right, %s; forks took %s us" % (rounds, len(model), how, ", ".join(forks)))


main()
