# What the shim does in a Python that is about to be stopped, to become a template with threads: `places` says where the words of its
# generators of random numbers are, which the shim fills in clones. They lie as in `known`, where they are what they should be:
# others draw meanwhile. At the end the shim calls what is in `last`, and nothing runs any more: so nothing is left of what they
# had drawn for later.
import sys

places, known, last, why = [], [], [], b"its modules random or numpy.random are no ones that are known"


def _random():
	random = sys.modules.get("random")
	own = getattr(random, "_inst", None)
	if own is None or isinstance(own, random.SystemRandom):
		return
	kind = next(kind for kind in type(own).__mro__ if kind.__module__ == "_random")
	other = kind(1)
	# RandomObject of _randommodule.c: a number of C's between head and words.
	head = object.__basicsize__ + 4
	words = b"".join(word.to_bytes(4, sys.byteorder) for word in other.getstate()[:-1])
	if kind.__basicsize__ < head + len(words):
		raise TypeError
	places.append(id(own) + head)
	known.append((id(other) + head, words, other))
	last.append(partial(setattr, own, "gauss_next", None))


def _numpy():
	own = getattr(sys.modules.get("numpy.random.mtrand"), "_rand", None)
	if own is None:
		return
	generator = own._bit_generator
	other = type(generator)(1)
	# mt19937_state of mt19937.h begins with its words.
	places.append(generator.ctypes.state_address)
	known.append((other.ctypes.state_address, other.state["state"]["key"].tobytes(), other))
	last.insert(0, partial(own.seed, 0))


if not getattr(sys, "_is_gil_enabled", lambda: True)():
	why = b"it has no lock (free-threaded)"
	raise TypeError
if "random" in sys.modules or "numpy.random.mtrand" in sys.modules:
	from functools import partial
	_random()
	_numpy()
