import os
import sys
import time

import ray

ray.init(num_cpus=os.cpu_count(), include_dashboard=False, _node_ip_address="127.0.0.1", _temp_dir=sys.argv[1],
		 log_to_driver=False, logging_level="error")


@ray.remote
def task(number):
	return number


@ray.remote
class Actor:
	def call(self, number):
		return number


actor = Actor.remote()
ways = {"task": task.remote, "actor": actor.call.remote}
for way in ways.values():
	ray.get(way(0))
print("ready", flush=True)
for line in sys.stdin:
	way, calls, pause = line.split()
	taken = []
	for number in range(int(calls)):
		time.sleep(float(pause))
		begin = time.monotonic_ns()
		done = ray.get(ways[way](number))
		taken.append((time.monotonic_ns() - begin) / 1000)
		assert done == number, done
	print(*taken, flush=True)
