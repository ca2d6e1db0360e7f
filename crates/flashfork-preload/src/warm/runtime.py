# A function's runtime client is about to ask for work: `renew` is called in each clone.
import gc as _gc, os, sys

for _stream in (sys.stdout, sys.stderr):
	_stream.flush()
_gc.unfreeze()
_gc.collect()
_gc.freeze()


def renew():
	# `random` does so in its own handler of forks.
	numpy = sys.modules.get("numpy.random")
	if numpy is not None:
		numpy.seed()
	process = sys.modules.get("multiprocessing.process")
	if process is not None:
		process.current_process()._config["authkey"] = process.AuthenticationString(os.urandom(32))
	names = dict(string.partition(b"=")[::2] for string in variables if b"=" in string)
	for environ in (os.environ._data, sys.modules["posix"].environ):
		environ.clear()
		environ.update(names)
