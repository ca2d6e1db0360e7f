/* The same calls by whatever way: each must mean on sealed memory what it means on anonymous memory. */
#ifndef PAST_H
#define PAST_H

struct calls {
	int (*madvise)(void *, size_t, int);
	void *(*mremap)(void *, size_t, size_t, int, ...);
	int (*mlock)(const void *, size_t);
	long (*syscall)(long, ...);
	/* Of a libc that isn't the program's. */
	int *(*errno_location)(void);
};

static inline void past_the_symbols(struct calls by)
{
	CHECK(by.madvise && by.mremap && by.mlock && by.syscall);
	char *dropped = memory(4 * MB, 1), *grown = memory(4 * MB, 2), *locked = memory(4 * MB, 3);
	char *dropped_by_number = memory(4 * MB, 4), *grown_by_number = memory(4 * MB, 5), *cut = memory(8 * MB, 6);
	seal();
	for (int generation = 0; generation < 2; generation++) {
		CHECK(by.madvise(dropped, 4 * MB, MADV_DONTNEED) == 0 && zeros(dropped, 4 * MB));
		CHECK(by.syscall(SYS_madvise, dropped_by_number, 4 * MB, MADV_DONTNEED) == 0);
		CHECK(zeros(dropped_by_number, 4 * MB));
		IN_CLONE {
			CHECK(zeros(dropped, 4 * MB) && zeros(dropped_by_number, 4 * MB) && intact(grown, 4 * MB, 2));
			CHECK(by.madvise(grown, 4 * MB, MADV_DONTNEED) == 0 && zeros(grown, 4 * MB));
		}
		fill(dropped, 4 * MB, 1);
		fill(dropped_by_number, 4 * MB, 4);
		CHECK(call_seal() == 0 && sealed_bytes(dropped, 4 * MB) == 4 * MB);
	}
	/* The bytes that are cut off are still in the memfd. */
	CHECK(by.mremap(cut, 8 * MB, 4 * MB, 0) == cut && by.mremap(cut, 4 * MB, 8 * MB, MREMAP_MAYMOVE) == cut);
	CHECK(intact(cut, 4 * MB, 6) && zeros(cut + 4 * MB, 4 * MB));
	grown = by.mremap(grown, 4 * MB, 6 * MB, MREMAP_MAYMOVE);
	CHECK(grown != MAP_FAILED && intact(grown, 4 * MB, 2) && zeros(grown + 4 * MB, 2 * MB));
	CHECK(sealed_bytes(grown + 4 * MB, 2 * MB) == 0);
	grown_by_number = (char *)by.syscall(SYS_mremap, grown_by_number, 4 * MB, 6 * MB, MREMAP_MAYMOVE);
	CHECK(grown_by_number != MAP_FAILED && intact(grown_by_number, 4 * MB, 5));
	CHECK(zeros(grown_by_number + 4 * MB, 2 * MB) && sealed_bytes(grown_by_number + 4 * MB, 2 * MB) == 0);
	if (by.mlock(locked, PAGE) == 0)
		CHECK(sealed_bytes(locked, PAGE) == 0);
	CHECK(intact(locked, 4 * MB, 3));
	/* An error is the kernel's, and in errno. */
	int *error = by.errno_location ? by.errno_location() : &errno;
	*error = 0;
	CHECK(by.madvise(dropped + 1, PAGE, MADV_DONTNEED) == -1 && *error == EINVAL);
	*error = 0;
	CHECK(by.syscall(SYS_mremap, dropped + 1, PAGE, 2 * PAGE, 0) == -1 && *error == EINVAL);
}

#endif
