"""Functions that tests call by the name in "do"."""
import ctypes
import http.client
import os
import random
import re
import resource
import signal
import socket
import time

import numpy

if os.environ.get("IGNORES"):
	signal.signal(signal.SIGCHLD, signal.SIG_IGN)
if os.environ.get("HANDLERS"):
	ran = []
	os.register_at_fork(before=lambda: ran.append(("before", resource.getrlimit(resource.RLIMIT_NPROC)[0], os.getppid())),
			after_in_parent=lambda: ran.append("parent"), after_in_child=lambda: ran.append("child"))
if os.environ.get("HOLDS"):
	# The directory of its template's name, opened where it is mounted once more, by a child that ends.
	near, far = socket.socketpair()
	if os.fork() == 0:
		ctypes.CDLL(None).unshare(0x10020000)
		names = os.path.dirname(os.environ["LAMBDA_TASK_ROOT"]) + "/names"
		socket.send_fds(far, [b"x"], [os.open(names, os.O_RDONLY | os.O_DIRECTORY)])
		os._exit(0)
	held = socket.recv_fds(near, 1, 1)[1][0]
	os.wait()
	near.close()
	far.close()
if os.environ.get("ALONE"):
	# It is loaded only where no other of this name is at the same time.
	with socket.socket(socket.AF_UNIX) as alone:
		alone.bind("\0" + os.environ["ALONE"])
		time.sleep(0.3)
WARMED_WITH = os.environ.get("SECRET"), os.environ.get("PLAIN")
BORN = os.urandom(8).hex()
NUMBER = os.getpid()
calls = 0


def handler(event, context):
	return globals()[event.get("do", "echo")](event, context)


def echo(event, context):
	print("said by", context.function_name)
	return event


def context(event, context):
	return context.client_context.custom


def look(event, context):
	"""What this call finds, and leaves."""
	global calls
	calls += 1
	found = {"calls": calls, "files": os.listdir("/tmp") + os.listdir("/dev/shm"), "warmed_with": WARMED_WITH}
	for place in ("/tmp/left", "/dev/shm/left"):
		with open(place, "w") as file:
			file.write("secret")
	writable = []
	for place in (os.getcwd(), os.path.dirname(os.getcwd()), "/var/tmp", os.path.dirname(event["state"])):
		try:
			with open(os.path.join(place, "left"), "w"):
				writable.append(place)
		except OSError:
			pass
	return {**found, "secret": os.environ.get("SECRET"), "writable": writable, "processes": len(processes()),
			"state": sorted(os.listdir(event["state"])), "names": os.listdir(event["state"] + "/names"),
			"random": [random.random(), float(numpy.random.random())], "user": os.getuid(),
			"rights": [line.split()[1] for line in open("/proc/self/status") if line.startswith("Cap")]}


def number(event, context):
	return [os.getpid(), os.readlink("/proc/self/ns/pid")]


def fail(event, context):
	raise ValueError("it failed")


def leave(event, context):
	os._exit(3)


def crash(event, context):
	ctypes.string_at(0)


def abort(event, context):
	os.abort()


def terminate(event, context):
	os.kill(os.getpid(), signal.SIGTERM)
	time.sleep(1000)


def keys(event, context):
	"""The error with which it adds a key to the kernel's."""
	libc = ctypes.CDLL(None, use_errno=True)
	libc.syscall(248, b"user", b"k", b"secret", 6, -4)
	return ctypes.get_errno()


def fuse(event, context):
	"""What device there is, if any."""
	path = event.get("path", "/dev/fuse")
	return os.stat(path).st_rdev if os.path.exists(path) else None


def namespaces(event, context):
	"""How many namespaces of IPC it can have."""
	libc, all = ctypes.CDLL(None), []
	libc.unshare(0x10000000)
	while libc.unshare(0x08000000) == 0:
		all.append(os.open("/proc/self/ns/ipc", os.O_RDONLY))
	return len(all)


def handlers(event, context):
	"""What ran before this call of what it has for forks."""
	return ran


def hold(event, context):
	"""The errors with which it names another template there."""
	errors = []
	for change in (lambda: os.rename("function", "other", src_dir_fd=held, dst_dir_fd=held),
			lambda: os.symlink("/proc/self/fd/9/function", "link", dir_fd=held)):
		try:
			change()
		except OSError as error:
			errors.append(error.errno)
	return errors


def processes():
	return [name for name in os.listdir("/proc") if name.isdigit()]


def orphans(event, context):
	"""Leaves orphans, waits until nothing of them is there, and reaches for their init."""
	for _ in range(3):
		if os.fork() == 0:
			os.fork()
			os._exit(0)
		os.wait()
	while len(processes()) > 2:
		time.sleep(0.001)
	os.kill(1, signal.SIGKILL)
	os.kill(1, signal.SIGTERM)
	done = [] if ctypes.CDLL(None).ptrace(0x4206, 1, 0, 0) else ["ptrace"]
	for what in ("environ", "fd/0", "mem", "root"):
		try:
			done.append(os.open("/proc/1/" + what, os.O_RDONLY))
		except OSError:
			pass
	return done + [os.getpid() > NUMBER, os.getppid()]


def sleep(event, context):
	time.sleep(1000)


def large(event, context):
	return "x" * event.get("bytes", 7 << 20)


def eat(event, context):
	return len(bytearray(4 << 30))


def fork(event, context):
	"""Leaves processes that have gone their own way."""
	for _ in range(3):
		if os.fork() == 0:
			os.setsid()
			if os.fork():
				os._exit(0)
			# Now and then a process begins, and waits.
			os.execv("/bin/sh", ["sleep-" + event["word"], "-c", "while sleep 1; do :; done"])
	if event.get("then"):
		return handler({"do": event["then"]}, context)


def spin(event, context):
	"""Leaves a process that computes."""
	if os.fork() == 0:
		os.setsid()
		os.execv("/bin/sh", ["spin-" + event["word"], "-c", "while :; do :; done"])


def reaped(event, context):
	"""Leaves a process whose children compute, of which the kernel tells nobody."""
	if os.fork() == 0:
		os.setsid()
		if os.fork() == 0:
			os.execv("/bin/sleep", ["spin-" + event["word"], "1000"])
		signal.signal(signal.SIGCHLD, signal.SIG_IGN)
		while True:
			child = os.fork()
			if child == 0:
				while time.process_time() < 0.04:
					pass
				os._exit(0)
			try:
				os.waitpid(child, 0)
			except ChildProcessError:
				pass


def drift(event, context):
	"""Leaves a process whose orphans compute, each for a moment."""
	if os.fork() == 0:
		os.setsid()
		if os.fork() == 0:
			os.execv("/bin/sleep", ["spin-" + event["word"], "1000"])
		if os.fork() == 0:
			if os.fork() == 0:
				# In namespaces of its own, of users and processes, with the call's connection.
				ctypes.CDLL(None).unshare(0x30000000)
				if os.fork() == 0:
					time.sleep(1000)
				os.wait()
			os._exit(0)
		while True:
			child = os.fork()
			if child == 0:
				if os.fork() == 0:
					while time.process_time() < 0.15:
						pass
				os._exit(0)
			os.waitpid(child, 0)
			time.sleep(0.3)


def breed(event, context):
	count = 0
	try:
		while count < 5000:
			if os.fork() == 0:
				time.sleep(1000)
			count += 1
	except OSError:
		return count


def crowd(event, context):
	"""Has as many processes as it may, and keeps them."""
	try:
		for _ in range(5000):
			if os.fork() == 0:
				time.sleep(1000)
	except OSError:
		os.execv("/bin/sleep", ["full-" + event["word"], "1000"])


def runtime():
	"""The connection to the runtime's other side."""
	for fd in os.listdir("/proc/self/fd"):
		try:
			connection = socket.socket(fileno=os.dup(int(fd)))
			if connection.family == socket.AF_INET and connection.getpeername()[0] == "127.0.0.1":
				return connection
		except OSError:
			pass


def lie(event, context):
	"""Answers for others, and for itself under a stale name, then twice."""
	connection = runtime()
	connection.setblocking(True)
	told = []
	mine = context.aws_request_id

	def post(what, body, more=""):
		connection.sendall(f"POST /2018-06-01/runtime/{what} HTTP/1.1\r\nHost: x\r\n{more}Content-Length: {len(body)}\r\n\r\n{body}".encode())
		told.append(int(connection.recv(65536).split()[1]))

	post("invocation/" + event["other"] + "/response", '"for another"')
	post(f"invocation/{mine}/response", '"stale"', "Lambda-Runtime-Invocation-Id: 0\r\n")
	post("invocation/../next/response", '"nobody"')
	connection.sendall(b"GET /2018-06-01/runtime/invocation/next HTTP/1.1\r\nHost: x\r\n\r\n")
	told.append(int(connection.recv(65536).split()[1]))
	post(f"invocation/{mine}/response", str(told))
	post(f"invocation/{mine}/response", '"again"')


def born(event, context):
	"""What is its template's alone."""
	return [BORN, os.environ.get("PLAIN")]


def hunt(event, context):
	"""What this call can find of the server's keys, and of requests' signatures."""
	# Spelled so that this text is not found.
	wanted = {"keys": re.compile(b"secret[-]of[-]the|Credential[=][A-Z]"), "canary": re.compile(b"canary[-]in[-]memory")}
	found = {"canary": [], "keys": [], "read": [], "reached": [], "asked": []}

	def search(where, text):
		for what, pattern in wanted.items():
			if where not in found[what] and pattern.search(text):
				found[what].append(where)

	for process in processes():
		for name in ("environ", "cmdline"):
			try:
				search("environment", open(f"/proc/{process}/{name}", "rb").read())
			except OSError:
				pass  # The init's.
	with open("/proc/self/mem", "rb", buffering=0) as memory:
		for line in open("/proc/self/maps").readlines():
			start, end = (int(word, 16) for word in line.split()[0].split("-"))
			while start < end and line.split()[1][0] == "r":
				try:
					search("memory", os.pread(memory.fileno(), min(end - start, 1 << 24), start))
				except OSError:
					pass  # The kernel's own pages.
				start += (1 << 24) - 4096
	for place in event["places"]:
		for path in [place] + [os.path.join(above, name) for above, _, names in os.walk(place) for name in names]:
			try:
				text = open(path, "rb").read()
			except OSError:
				continue
			found["read"] += [path] if path == event["places"][0] else []
			search("files", text)
	libc = ctypes.CDLL(None, use_errno=True)
	server = event["server"]
	for what, works in (
		("signals", lambda: os.kill(server, 0)), ("memory", lambda: open(f"/proc/{server}/mem", "rb")),
		("environment", lambda: open(f"/proc/{server}/environ", "rb").read()), ("pidfd", lambda: os.pidfd_open(server)),
	):
		try:
			works()
			found["reached"].append(what)
		except OSError:
			pass
	if libc.ptrace(16, server, 0, 0) == 0:
		found["reached"].append("ptrace")
	for method, path in (("POST", ""), ("POST", "/f/invocations"), ("GET", "")):
		connection = http.client.HTTPConnection(event["address"])
		connection.request(method, "/2015-03-31/functions" + path)
		found["asked"].append(connection.getresponse().status)
	return found
