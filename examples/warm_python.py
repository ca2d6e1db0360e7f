"""Forks a Python process that holds 300 MB of objects, and says what each fork cost.

python3 examples/warm_python.py 40 plain
flashfork run --engine seal -- python3 examples/warm_python.py 200 flashfork
"""

import os
import sys
import time

objects = [bytes([i % 255 + 1]) * 1000 for i in range(300_000)]
times = []
for _ in range(int(sys.argv[1])):
	start = time.perf_counter()
	pid = os.fork()
	if pid == 0:
		os._exit(0 if objects[7][0] == 8 else 1)
	times.append(time.perf_counter() - start)
	if os.waitpid(pid, 0)[1] != 0:
		sys.exit("a clone saw other memory")
times.sort()
print(f"{sys.argv[2]:>12} {times[len(times) // 2] * 1e6:10,.0f} µs a fork (median of {len(times)})", flush=True)
