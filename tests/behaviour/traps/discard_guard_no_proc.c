/* A guard (MADV_GUARD_INSTALL, Linux 6.13) in sealed memory of a process that has lost /proc, so that it can't open its page map:
   discards go over it, and it stays. madvise(2), chroot(2). */

static int reads(char *p)
{
	pid_t pid = forked();
	if (pid == 0)
		_exit(*(volatile char *)p & 0);
	return wait_for(pid) == 0;
}

int main(void)
{
	char *probe = memory(PAGE, 1), *p = memory(4 * MB, 1);
	if (madvise(probe, PAGE, MADV_GUARD_INSTALL) != 0)
		SKIP("this kernel has no MADV_GUARD_INSTALL (Linux 6.13)");
	seal();
	if (!lose_proc())
		SKIP("no chroot without root or user namespaces");
	CHECK(madvise(p + MB, PAGE, MADV_GUARD_INSTALL) == 0 && !reads(p + MB));
	CHECK(madvise(p, 3 * MB, MADV_DONTNEED) == 0);
	CHECK(!reads(p + MB));
	CHECK(zeros(p, MB) && zeros(p + MB + PAGE, 2 * MB - PAGE));
	for (size_t i = 3 * MB / 8; i < 4 * MB / 8; i++)
		CHECK(((uint64_t *)p)[i] == pattern(i, 1));
}
