/* MADV_WIPEONFORK: a clone must read zeros, or two processes would draw the same random numbers. madvise(2).
   Set after a seal: traps/wipe_on_fork_later.c. */

int main(void)
{
	char *p = memory(4 * MB, 1);
	CHECK(madvise(p, 4 * MB, MADV_WIPEONFORK) == 0);
	seal();
	CHECK(sealed_bytes(p, 4 * MB) == 0);
	IN_CLONE
		CHECK(zeros(p, 4 * MB));
	CHECK(intact(p, 4 * MB, 1));
}
