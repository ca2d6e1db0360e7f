/* Every other advice: the same answer as on ordinary memory, and the same bytes afterwards, here and in a clone. madvise(2). */

static const int advices[] = {
	MADV_NORMAL, MADV_RANDOM, MADV_SEQUENTIAL, MADV_WILLNEED, MADV_DONTFORK, MADV_DOFORK, MADV_HUGEPAGE, MADV_NOHUGEPAGE,
	MADV_DONTDUMP, MADV_DODUMP, MADV_MERGEABLE, MADV_UNMERGEABLE, MADV_KEEPONFORK, MADV_COLD, MADV_PAGEOUT,
	MADV_POPULATE_READ, MADV_POPULATE_WRITE, 25 /* MADV_COLLAPSE */, 103 /* MADV_GUARD_REMOVE */, MADV_REMOVE, 4711,
};

int main(void)
{
	char *sealed = memory(8 * MB, 1), *twin = memory(8 * MB, 1);
	CHECK(madvise(twin, 8 * MB, MADV_DONTFORK) == 0); /* keeps it from being sealed */
	seal();
	CHECK(madvise(twin, 8 * MB, MADV_DOFORK) == 0);
	CHECK(all_sealed(sealed, 8 * MB) && sealed_bytes(twin, 8 * MB) == 0);
	for (size_t i = 0; i < sizeof advices / sizeof advices[0]; i++) {
		errno = 0;
		int wanted = madvise(twin + 2 * MB, 4 * MB, advices[i]) == 0 ? 0 : errno;
		errno = 0;
		int got = madvise(sealed + 2 * MB, 4 * MB, advices[i]) == 0 ? 0 : errno;
		if (advices[i] == MADV_WILLNEED && wanted == EBADF)
			wanted = 0; /* a kernel without swap has nothing to bring in, and says so; a file it could */
		if (got != wanted)
			fprintf(stderr, "advice %d: %s on ordinary memory, %s on sealed memory\n", advices[i],
			        strerrorname_np(wanted), strerrorname_np(got));
		CHECK(got == wanted);
		CHECK(intact(sealed, 8 * MB, 1));
		if (advices[i] != MADV_DONTFORK && in_clone()) {
			CHECK(intact(sealed, 8 * MB, 1));
			_exit(0);
		}
	}
}
