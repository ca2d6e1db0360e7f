"""postgresql.py SHIM SECONDS: a PostgreSQL whose postmaster runs under the shim; pgbench's accounts must add up.

Exit status 0: it works as ever; 1: it doesn't, with one line; 77: PostgreSQL is not installed.
"""

import glob
import os
import pwd
import shutil
import subprocess
import sys
import tempfile


def fail(text):
	print("postgresql: " + text, file=sys.stderr)
	sys.exit(1)


def run(command, env=None):
	done = subprocess.run(command, env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, user=USER, cwd="/")
	if done.returncode != 0:
		fail("%s: status %d: %s" % (command[0], done.returncode, done.stdout.strip().replace("\n", "; ")[-400:]))
	return done.stdout


places = sorted(glob.glob("/usr/lib/postgresql/*/bin"))
if not places:
	print("PostgreSQL is not installed (Debian: postgresql)", file=sys.stderr)
	sys.exit(77)
# The server refuses to be run by root; Debian's package makes a user for it.
USER = "postgres" if os.getuid() == 0 else None
BIN = places[-1]
shim, seconds = os.path.abspath(sys.argv[1]), sys.argv[2]
place = tempfile.mkdtemp()
data = os.path.join(place, "data")
# Where any user can read it.
library = os.path.join(place, "shim.so")
shutil.copy(shim, library)
os.chmod(place, 0o755)
if USER:
	owner = pwd.getpwnam(USER)
	os.mkdir(data, 0o700)
	os.chown(data, owner.pw_uid, owner.pw_gid)
	os.mkdir(os.path.join(place, "socket"))
	os.chown(os.path.join(place, "socket"), owner.pw_uid, owner.pw_gid)
else:
	os.mkdir(os.path.join(place, "socket"))
socket = os.path.join(place, "socket")
results = {}
try:
	run([BIN + "/initdb", "-D", data, "-A", "trust", "--no-sync"])
	for name in ["plain", "under the shim"]:
		env = dict(os.environ) if name == "plain" else dict(os.environ, LD_PRELOAD=library)
		options = "-c listen_addresses='' -c unix_socket_directories=%s -c shared_buffers=64MB" % socket
		run([BIN + "/pg_ctl", "-D", data, "-l", socket + "/log", "-w", "-o", options, "start"], env)
		try:
			bench = [BIN + "/pgbench", "-h", socket, "postgres"]
			run(bench + ["-i", "-q", "-s", "2"])
			# -C: a connection, and so a fork, for each transaction.
			out = run(bench + ["-C", "-c", "4", "-T", seconds])
			results[name] = [line for line in out.splitlines() if line.startswith("tps")][0].split()[2]
			sums = "select (select sum(abalance) from pgbench_accounts), (select sum(delta) from pgbench_history)"
			accounts, history = run([BIN + "/psql", "-h", socket, "-At", "-c", sums, "postgres"]).strip().split("|")
			if accounts != history:
				fail("the accounts do not add up: %s, %s" % (accounts, history))
		finally:
			run([BIN + "/pg_ctl", "-D", data, "-w", "-m", "fast", "stop"])
finally:
	shutil.rmtree(place, ignore_errors=True)
print("postgresql: accounts add up; transactions a second, a connection each: %s" % ", ".join("%s %s" % r for r in results.items()))
