"""seal(), fork(), stats(): of a whole process."""


def test_clones_of_a_sealed_process_have_its_objects(python):
	python(
		"""
		import flashfork, hashlib, os
		table = {n: str(n) * 3 for n in range(200_000)}
		blob = bytearray(os.urandom(1 << 20)) * 64
		def digest():
			return hashlib.sha256(blob + repr(sorted(table.items())).encode()).digest()
		before = digest()
		report = flashfork.seal()
		assert report.sealed_bytes > 64 << 20, report
		assert report.generation == 1 and report.seconds > 0
		assert all(each.reason and each.explanation for each in report.refusals)
		for n in range(20):
			pid = flashfork.fork()
			if pid == 0:
				right = digest() == before
				table[n] = blob[n] = 1
				os._exit(0 if right and len(table) == 200_000 else 1)
			assert os.waitpid(pid, 0)[1] == 0
		assert digest() == before
		assert flashfork.unseal() > 64 << 20
		assert digest() == before
		assert flashfork.stats().sealed_forks == 20
		"""
	)


def test_what_a_program_has_written_since_is_sealed_anew(python):
	python(
		"""
		import flashfork
		some = bytearray(b"s") * (64 << 20)
		first = flashfork.seal()
		more = bytearray(b"x") * (64 << 20)
		again = flashfork.seal()
		assert again.sealed_bytes >= 64 << 20 and again.generation == 2, again
		assert set(more) == {ord("x")} and set(some) == {ord("s")}
		"""
	)


def test_other_threads_are_stopped_or_a_reason_to_refuse(python):
	python(
		"""
		import errno, flashfork, gc, threading
		end = threading.Event()
		threads = [threading.Thread(target=end.wait, daemon=True) for _ in range(3)]
		for each in threads: each.start()
		blob = bytearray(b"y") * (64 << 20)
		try:
			flashfork.seal(threads="refuse")
		except flashfork.Refused as refused:
			assert refused.errno == errno.EBUSY and "thread" in str(refused), refused
		else:
			raise AssertionError("not refused")
		assert gc.get_freeze_count() < 1000, "a refused seal changes nothing"
		report = flashfork.seal()
		assert report.sealed_bytes >= 64 << 20 and report.pauses > 0, report
		end.set()
		for each in threads: each.join()
		assert set(blob) == {ord("y")}
		"""
	)


def test_wrong_values_are_told(python):
	python(
		"""
		import flashfork
		for wrong in ({"threads": "yes"}, {"pages": "2M"}):
			try:
				flashfork.seal(**wrong)
			except ValueError as told:
				assert next(iter(wrong.values())) in str(told)
			else:
				raise AssertionError(wrong)
		"""
	)


def test_the_garbage_collector_leaves_sealed_objects_alone(python):
	python(
		"""
		import flashfork, gc
		flashfork.seal()
		assert gc.get_freeze_count() > 1000
		flashfork.unseal()
		assert gc.get_freeze_count() < 1000
		gc.freeze()                      # the program's own
		count = gc.get_freeze_count()
		flashfork.seal(); flashfork.unseal()
		assert gc.get_freeze_count() >= count
		flashfork.seal(freeze=False)
		"""
	)


def test_no_two_clones_draw_the_same_numbers(python):
	drawn = python(
		"""
		import flashfork, numpy, os, random, ssl
		random.random(), numpy.random.random(), ssl.RAND_bytes(8)
		flashfork.seal()
		for _ in range(8):
			pid = flashfork.fork()
			if pid == 0:
				print(random.getrandbits(64), numpy.random.bytes(8).hex(), ssl.RAND_bytes(8).hex(), flush=True)
				os._exit(0)
			assert os.waitpid(pid, 0)[1] == 0
		print(random.getrandbits(64), numpy.random.bytes(8).hex(), ssl.RAND_bytes(8).hex())
		"""
	).split()
	assert len(drawn) == 27 and len(set(drawn)) == 27, drawn


def test_a_clone_goes_on_with_numpys_numbers_where_that_is_asked_for(python):
	python(
		"""
		import flashfork, numpy, os
		numpy.random.seed(7)
		read, write = os.pipe()
		if flashfork.fork(reseed=False) == 0:
			os.write(write, numpy.random.bytes(8)); os._exit(0)
		os.wait()
		assert os.read(read, 8) == numpy.random.bytes(8)
		"""
	)


def test_what_was_registered_for_forks_runs(python):
	python(
		"""
		import flashfork, os
		ran = []
		os.register_at_fork(
			before=lambda: ran.append("before"),
			after_in_parent=lambda: ran.append("parent"),
			after_in_child=lambda: ran.append("child"),
		)
		flashfork.seal()
		pid = flashfork.fork()
		if pid == 0:
			os._exit(0 if ran == ["before", "child"] else 1)
		assert os.waitpid(pid, 0)[1] == 0
		assert ran == ["before", "parent"]
		"""
	)


def test_forks_are_counted_in_clones_too(python):
	python(
		"""
		import flashfork, os
		some = bytearray(64 << 20)
		some[::4096] = b"x" * (len(some) // 4096)
		def child():
			pid = flashfork.fork()
			if pid: os.waitpid(pid, 0)
			return pid == 0
		if child(): os._exit(0)
		assert (flashfork.stats().plain_forks, flashfork.stats().sealed_forks) == (1, 0)
		flashfork.seal()
		if child():
			if child():
				assert (flashfork.stats().plain_forks, flashfork.stats().sealed_forks) == (1, 2)
			os._exit(0)
		stats = flashfork.stats()
		assert (stats.plain_forks, stats.sealed_forks) == (1, 1)
		assert stats.plain_seconds > 0 and stats.sealed_seconds > 0
		"""
	)


def test_multiprocessing_forks_sealed_workers(python):
	python(
		"""
		import flashfork, multiprocessing
		table = list(range(1_000_000))
		def at(n): return table[n]
		flashfork.seal()
		with multiprocessing.get_context("fork").Pool(2) as pool:
			assert pool.map(at, range(0, 1_000_000, 1000)) == list(range(0, 1_000_000, 1000))
		"""
	)


def test_an_excluded_buffer_lies_in_no_memfd(python):
	python(
		"""
		import ctypes, flashfork
		secret, other = bytearray(1 << 20), bytearray(64 << 20)
		flashfork.exclude(secret)
		flashfork.seal()
		def file_at(buffer):
			address = ctypes.addressof(ctypes.c_char.from_buffer(buffer)) + 4096
			for line in open("/proc/self/maps"):
				first, last = (int(each, 16) for each in line.split()[0].split("-"))
				if first <= address < last:
					return line.split(maxsplit=5)[5:]
		assert file_at(secret) == [] and "memfd" in file_at(other)[0], (file_at(secret), file_at(other))
		try:
			flashfork.exclude(b"read-only")
		except TypeError:
			pass
		else:
			raise AssertionError("a buffer that can't be written has no secret to keep")
		"""
	)


def test_elsewhere_forks_are_plain_and_one_warning_says_so(python):
	python(
		"""
		import os, platform, warnings
		platform.machine = lambda: "riscv64"
		import flashfork
		assert "riscv64" in flashfork.unsupported
		with warnings.catch_warnings(record=True) as told:
			warnings.simplefilter("always")
			assert flashfork.seal().sealed_bytes == 0
			assert flashfork.seal().sealed_bytes == 0 and flashfork.unseal() == 0
			flashfork.exclude(bytearray(1))
		assert [each.category for each in told] == [flashfork.PlainForks], told
		pid = flashfork.fork()
		if pid == 0: os._exit(0)
		assert os.waitpid(pid, 0)[1] == 0 and flashfork.stats().plain_forks == 1
		for impossible in (flashfork.snapshot, lambda: flashfork.Region(1), flashfork.Template("t").info):
			try:
				impossible()
			except flashfork.Refused as refused:
				assert "riscv64" in str(refused)
			else:
				raise AssertionError(impossible)
		"""
	)
