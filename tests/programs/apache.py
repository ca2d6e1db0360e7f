"""apache.py SHIM REQUESTS: an Apache with the prefork module under the shim, asked right after it has started.

On-demand-fork (EuroSys 2021), tables 6 and 7: no change was expected, none is here. Exit status 0: every answer was right; 1: one wasn't, with
one line; 77: Apache is not installed.
"""

import http.client
import os
import shutil
import socket
import statistics
import subprocess
import sys
import tempfile
import time

APACHE = "/usr/sbin/apache2"
MODULES = "/usr/lib/apache2/modules"


def fail(text):
	print("apache: " + text, file=sys.stderr)
	sys.exit(1)


def serve(place, port, env):
	with open(os.path.join(place, "conf"), "w") as conf:
		conf.write("""ServerRoot %s
Listen 127.0.0.1:%d
ServerName localhost
PidFile pid
ErrorLog errors
DocumentRoot %s/www
LoadModule mpm_prefork_module %s/mod_mpm_prefork.so
LoadModule authz_core_module %s/mod_authz_core.so
User www-data
Group www-data
StartServers 4
""" % (place, port, place, MODULES, MODULES))
	return subprocess.Popen([APACHE, "-f", os.path.join(place, "conf"), "-DFOREGROUND"], env=env, stdin=subprocess.DEVNULL,
							start_new_session=True)  # it signals its process group when it ends


def ask(port, expected):
	connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
	begin = time.perf_counter()
	connection.request("GET", "/page")
	body = connection.getresponse().read()
	took = time.perf_counter() - begin
	connection.close()
	if body != expected:
		fail("another page came than is there")
	return took * 1e6


def measure(env, requests):
	with tempfile.TemporaryDirectory() as place:
		os.chmod(place, 0o755)
		os.mkdir(os.path.join(place, "www"))
		page = os.urandom(30_000)
		with open(os.path.join(place, "www", "page"), "wb") as file:
			file.write(page)
		with socket.socket() as free:
			free.bind(("127.0.0.1", 0))
			port = free.getsockname()[1]
		server = serve(place, port, env)
		try:
			for _ in range(300):
				try:
					socket.create_connection(("127.0.0.1", port)).close()
					break
				except OSError:
					if server.poll() is not None:
						fail("Apache does not start")
					time.sleep(0.02)
			times = [ask(port, page) for _ in range(requests)]
		finally:
			server.terminate()
			server.wait(30)
	quantiles = statistics.quantiles(times, n=100)
	return "mean %.0f, max %.0f, 50 %% %.0f, 75 %% %.0f, 90 %% %.0f, 99 %% %.0f" % (
		statistics.mean(times), max(times), quantiles[49], quantiles[74], quantiles[89], quantiles[98])


if not os.path.exists(APACHE):
	print("Apache is not installed (Debian: apache2)", file=sys.stderr)
	sys.exit(77)
plain = dict(os.environ)
shimmed = dict(os.environ, LD_PRELOAD=os.path.abspath(sys.argv[1]))
requests = int(sys.argv[2])
for name, env in [("plain", plain), ("under the shim", shimmed)]:
	print("apache: %s: latency in us: %s" % (name, measure(env, requests)))
