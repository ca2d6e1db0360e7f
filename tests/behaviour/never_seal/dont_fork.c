/* MADV_DONTFORK: a clone must not have the memory. madvise(2). Set after a seal: traps/dont_fork_later.c. */

int main(void)
{
	unsigned char there;
	char *p = memory(4 * MB, 1);
	CHECK(madvise(p, 4 * MB, MADV_DONTFORK) == 0);
	seal();
	CHECK(sealed_bytes(p, 4 * MB) == 0);
	IN_CLONE
		CHECK(mincore(p, PAGE, &there) == -1 && errno == ENOMEM);
	CHECK(intact(p, 4 * MB, 1));
}
