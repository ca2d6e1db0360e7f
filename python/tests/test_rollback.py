"""snapshot(), restore() and Region."""


def test_a_process_goes_back_as_often_as_wanted(python):
	python(
		"""
		import flashfork, mmap, os
		rounds = mmap.mmap(-1, 4096)             # shared memory stays as it is
		kept = mmap.mmap(-1, 4096, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
		table = {n: [n] for n in range(10_000)}
		value = flashfork.snapshot(keep=[kept])
		assert value == rounds[0] and len(table) == 10_000 and table[3] == [3] and kept[0] == rounds[0]
		if value < 200:
			rounds[0] += 1
			kept[0] += 1
			table[3].append(value); table[f"new {value}"] = bytearray(100_000)
			flashfork.restore(value + 1)
		flashfork.discard()
		assert rounds[0] == 200
		"""
	)


def test_file_offsets_go_back_and_new_descriptors_close(python):
	python(
		"""
		import flashfork, mmap, os
		rounds = mmap.mmap(-1, 4096)
		file = open("/proc/self/exe", "rb", buffering=0)
		file.seek(4)
		value = flashfork.snapshot(descriptors=[file], close_new=True)
		assert file.tell() == 4
		os.stat("/proc/self/fd/%d" % file.fileno())
		if value < 20:
			assert os.open("/dev/null", os.O_RDONLY) == file.fileno() + 1
			file.read(100)
			flashfork.restore(value + 1)
		"""
	)


def test_what_can_not_go_back_is_refused(python):
	python(
		"""
		import errno, flashfork, os, threading
		def refused(call, number):
			try:
				call()
			except flashfork.Error as told:
				assert told.errno == number and told.strerror, told
			else:
				raise AssertionError(call)
		refused(flashfork.restore, errno.ENOENT)
		end = threading.Event()
		thread = threading.Thread(target=end.wait); thread.start()
		refused(flashfork.snapshot, errno.EBUSY)
		end.set(); thread.join()
		refused(lambda: flashfork.snapshot(descriptors=[999]), errno.EBADF)
		assert flashfork.snapshot() == 0
		refused(lambda: flashfork.restore(0), errno.EINVAL)
		pid = os.fork()
		if pid == 0:
			refused(flashfork.restore, errno.EPERM)
			os._exit(0)
		assert os.waitpid(pid, 0)[1] == 0
		"""
	)


def test_an_array_of_numpy_in_a_region_goes_back(python):
	python(
		"""
		import flashfork, numpy, os
		region = flashfork.Region(5_000_000)
		array = numpy.frombuffer(region, dtype=numpy.uint64)
		assert array.nbytes == 6 << 20 == len(region) and not array.any()
		array[:] = numpy.arange(array.size)
		region.seal()
		for n in range(50):
			array[n::50] = 7
			region.rollback()
			assert (array == numpy.arange(array.size)).all()
		array[0] = array[1024] = 7
		region.rollback(8192, 12288)
		assert array[0] == 7 and array[1024] == 1024
		region.rollback(stop=4096)
		assert array[0] == 0
		pid = os.fork()
		if pid == 0:
			array[5] = 9
			right = array[6] == 6
			region.rollback()
			os._exit(0 if right and array[5] == 5 else 1)
		assert os.waitpid(pid, 0)[1] == 0 and array[5] == 5
		"""
	)


def test_a_region_lives_as_long_as_its_buffer(python):
	python(
		"""
		import flashfork, gc
		def mapped():
			return sum("flashfork-region" in line or "memfd:flashfork" in line for line in open("/proc/self/maps"))
		none = mapped()
		region = flashfork.Region(1 << 20)
		one = mapped()
		assert one > none, open("/proc/self/maps").read()
		view = memoryview(region)
		del region; gc.collect()
		assert mapped() == one
		assert bytes(view[:3]) == bytes(3)
		del view; gc.collect()
		assert mapped() == none
		"""
	)


def test_misuse_of_a_region_is_told(python):
	python(
		"""
		import ctypes, errno, flashfork
		def wrong(call, kind, number=None):
			try:
				call()
			except kind as told:
				assert number is None or told.errno == number, told
			else:
				raise AssertionError(call)
		wrong(lambda: flashfork.Region(0), ValueError)
		wrong(lambda: flashfork.Region(1 << 62), flashfork.Error)
		wrong(lambda: flashfork.Region((1 << 64) + 1), ctypes.ArgumentError)
		wrong(lambda: flashfork.restore((1 << 32) + 5), ctypes.ArgumentError)
		wrong(lambda: flashfork.snapshot(descriptors=[(1 << 32) + 1]), flashfork.Error, errno.EBADF)
		wrong(lambda: flashfork.Region(1, pages="big"), ValueError)
		region = flashfork.Region(1)
		wrong(region.rollback, flashfork.Error, errno.ENOENT)
		region.seal()
		wrong(region.seal, flashfork.Error, errno.EALREADY)
		wrong(lambda: region.rollback(1, 2), flashfork.Error, errno.EINVAL)
		wrong(lambda: flashfork.Region(1, 2), TypeError)
		assert "2097152 bytes" in repr(region)
		"""
	)
