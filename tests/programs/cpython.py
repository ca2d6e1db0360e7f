"""cpython.py SHIM OBJECTS: a Python with a large heap under the shim; the collector runs in parent and clones.

Exit status 0: every object is what it was, in parent and clones, before and after; 1: one isn't, with one line.
"""

import ctypes
import gc
import os
import random
import sys

FORKS = 12


def fail(text):
	print("cpython: " + text, file=sys.stderr)
	os._exit(1)


def build(count):
	rng = random.Random(5)
	items = []
	for number in range(count):
		item = {"number": number, "text": str(rng.random()), "list": [number, number + 1], "next": None}
		if items:
			item["next"] = items[rng.randrange(len(items))]
			if number % 3 == 0:
				items[rng.randrange(len(items))]["next"] = item  # cycles, which only the collector frees
		items.append(item)
	return items


def digest(items):
	total = 0
	for item in items:
		total = (total * 31 + item["number"] + hash(item["text"]) + item["list"][1] + item["next"]["number"]) & (2**64 - 1) \
			if item["next"] else total + item["number"]
	return total


def work(items, expected, seed):
	"""What a clone or the parent does: collects, drops a third, makes garbage, collects, looks at everything again."""
	gc.collect()
	if digest(items) != expected:
		fail("objects changed")
	gc.disable()
	rng = random.Random(seed)
	mine = [dict(items[rng.randrange(len(items))]) for _ in range(20_000)]
	for item in mine:
		item["me"] = item
	del mine, item
	if gc.collect() < 20_000:
		fail("the collector left garbage")
	gc.enable()
	if digest(items) != expected:
		fail("objects changed after a collection")


def main():
	shim = ctypes.CDLL(None)
	if "LD_PRELOAD" not in os.environ:
		env = dict(os.environ, LD_PRELOAD=sys.argv[1], FLASHFORK_ENGINE="fork", PYTHONHASHSEED="0")
		os.execve(sys.executable, [sys.executable] + sys.argv, env)
	items = build(int(sys.argv[2]))
	expected = digest(items)
	sealed = 0
	for turn in range(FORKS):
		if turn % 4 == 2:
			if shim.flashfork_preload_seal() != 0:
				fail("the seal was refused")
			sealed += 1
		child = os.fork()
		if child == 0:
			work(items, expected, turn)
			os._exit(0)
		if turn % 3 == 0:
			work(items, expected, -turn)
		_, status = os.waitpid(child, 0)
		if status != 0:
			fail("a clone ended with status %d" % status)
		if digest(items) != expected:
			fail("a clone's write reached its parent")
	with open("/proc/self/maps") as maps:
		if "memfd:flashfork:" not in maps.read():
			fail("nothing was sealed")
	print("cpython: %d objects, %d forks, %d seals: no difference" % (len(items), FORKS, sealed))


main()
