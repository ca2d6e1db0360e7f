/* A discard takes nothing from a child that has the same pages, not even those that a reader had pinned, which leaves them
   clean: with MADV_FREE, which the kernel allows then, the child's would be gone once they are reclaimed (madvise(2),
   madvise_free_pte_range and wp_page_copy in the kernel). */

static int tell[2], told[2];

static void pass(int to)
{
	CHECK(write(to, "x", 1) == 1);
}

static void await(int from)
{
	char c;
	CHECK(read(from, &c, 1) == 1);
}

static void see(char *p, size_t len)
{
	fill(p, len, 7);
	/* Whose pages are shared with a child are copied for whoever pins them to read. */
	pid_t first = forked();
	if (first == 0) {
		pause();
		_exit(0);
	}
	static char buffer[16 * PAGE];
	struct iovec here = { buffer, len }, there = { p, len };
	CHECK(len <= sizeof buffer && process_vm_readv(getpid(), &here, 1, &there, 1, 0) == (ssize_t)len);
	pid_t second = forked();
	if (second == 0) {
		await(tell[0]);
		/* Reclaims what it can: where there is no swap, only what MADV_FREE has given up. */
		CHECK(madvise(p, len, MADV_PAGEOUT) == 0 || errno == EINVAL);
		CHECK(intact(p, len, 7));
		pass(told[1]);
		_exit(0);
	}
	CHECK(discard_zeros(p, len));
	pass(tell[1]);
	int status;
	CHECK(waitpid(second, &status, 0) == second && status == 0);
	await(told[0]);
	kill(first, SIGKILL);
	CHECK(waitpid(first, &status, 0) == first);
}

int main(void)
{
	CHECK(pipe(tell) == 0 && pipe(told) == 0);
	char *p = memory(4 * MB, 1);
	seal();
	/* Sealed, then anonymous among what is sealed, and then what came since. */
	see(p + 2 * MB, 16 * PAGE);
	see(p + 2 * MB, 16 * PAGE);
	see(memory(16 * PAGE, 2), 16 * PAGE);
}
