/* MADV_GUARD_INSTALL (Linux 6.13): remapping would remove the guard, and the next overflow would go unseen. madvise(2);
   glibc 2.42 guards thread stacks this way. */

int main(void)
{
	char *p = memory(6 * MB, 1), *guard = p + 3 * MB;
	if (madvise(guard, PAGE, MADV_GUARD_INSTALL) != 0)
		SKIP("this kernel has no MADV_GUARD_INSTALL (Linux 6.13)");
	seal();
	CHECK(sealed_bytes(p + 2 * MB, 2 * MB) == 0);
	pid_t pid = fork();
	if (pid == 0)
		_exit(*(volatile char *)guard);
	CHECK(wait_for(pid) == 128 + SIGSEGV);
	CHECK(intact(p, 3 * MB, 1));
}
