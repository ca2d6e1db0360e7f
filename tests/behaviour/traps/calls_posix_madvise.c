/* libc's posix_madvise has a system call instruction of its own: what it does give away is looked at like all else, and its
   DONTNEED discards nothing. Its other advice changes no byte. posix_madvise(3). */

int main(void)
{
	char *p = memory(4 * MB, 1);
	seal();
	for (int advice = POSIX_MADV_NORMAL; advice <= POSIX_MADV_DONTNEED; advice++)
		CHECK(posix_madvise(p, 4 * MB, advice) == 0 && intact(p, 4 * MB, 1));
	/* The values are the kernel's, so others get through: MADV_FREE may drop the bytes, but never bring older ones back. */
	fill(p, 4 * MB, 2);
	int freed = posix_madvise(p, 4 * MB, MADV_FREE);
	CHECK(freed == 0 || freed == EINVAL);
	for (size_t i = 0; i < 4 * MB / 8; i++) {
		uint64_t word = ((uint64_t *)p)[i];
		CHECK(word == 0 || word == pattern(i, 2));
	}
	/* MADV_DONTNEED_LOCKED, Linux 5.18. */
	fill(p, 4 * MB, 1);
	CHECK(call_seal() == 0);
	int dropped = posix_madvise(p, 4 * MB, 24);
	CHECK(dropped == EINVAL || (dropped == 0 && zeros(p, 4 * MB)));
}
