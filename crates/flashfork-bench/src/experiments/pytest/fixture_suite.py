"""Tests of a large memory that is set up once: each reads in it, and writes to four of its pages."""

import mmap
import os

import numpy
import pytest

TESTS = 0
BYTES = 0

if os.environ["FLASHFORK_BENCH_FORKS"] != "sealed":
	from flashfork.pytest import _memory

	# As where memory can't be sealed: the forks are plain ones.
	_memory._refused = True


@pytest.fixture(scope="session")
def memory():
	"""All ones, in pages of 4 KB or of 2 MB."""
	block = mmap.mmap(-1, BYTES, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
	huge = os.environ["FLASHFORK_BENCH_FORKS"] == "thp"
	block.madvise(mmap.MADV_HUGEPAGE if huge else mmap.MADV_NOHUGEPAGE)
	ones = numpy.frombuffer(block, dtype=numpy.uint8)
	ones[:] = 1
	return ones


@pytest.mark.parametrize("number", range(TESTS))
def test_memory(memory, number):
	"""No other test has been at these bytes."""
	read = memory[number :: BYTES // 64]
	assert (read == 1).all()
	read[: 64 : 16] = 2
	assert read[: 64].sum() == 68
