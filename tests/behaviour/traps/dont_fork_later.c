/* MADV_DONTFORK on sealed memory, and MADV_DOFORK again. madvise(2). */

int main(void)
{
	unsigned char there;
	char *p = memory(4 * MB, 1);
	seal();
	CHECK(madvise(p, 2 * MB, MADV_DONTFORK) == 0);
	IN_CLONE {
		CHECK(mincore(p, PAGE, &there) == -1 && errno == ENOMEM);
		CHECK(*(uint64_t *)(p + 2 * MB) == pattern(2 * MB / 8, 1));
	}
	CHECK(intact(p, 4 * MB, 1));
	CHECK(madvise(p, 2 * MB, MADV_DOFORK) == 0);
	IN_CLONE
		CHECK(intact(p, 4 * MB, 1));
}
