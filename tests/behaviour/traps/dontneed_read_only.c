/* MADV_DONTNEED on sealed memory that is read-only: zeros, and still read-only. madvise(2). */

int main(void)
{
	char *p = memory(4 * MB, 1);
	seal();
	CHECK(mprotect(p, 2 * MB, PROT_READ) == 0);
	CHECK(discard_zeros(p, 4 * MB));
	p[2 * MB] = 1;
	pid_t pid = fork();
	if (pid == 0) {
		p[0] = 1;
		_exit(0);
	}
	CHECK(wait_for(pid) == 128 + SIGSEGV);
}
