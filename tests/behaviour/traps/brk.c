/* The brk heap after a seal: it grows, shrinks and grows again; what comes back is zero. brk(2). */

int main(void)
{
	CHECK(sealed_bytes(ALL) == 0); /* stdio has its buffers now */
	char *p = sbrk(8 * MB);
	CHECK(p != (char *)-1 && sbrk(0) == p + 8 * MB);
	p = (char *)(((uintptr_t)p + 7) & ~7ul);
	size_t len = 8 * MB - 8;
	fill(p, len, 1);
	seal();
	CHECK(sealed_bytes(p, len) > 6 * MB);
	char *end = sbrk(4 * MB);
	CHECK(end != (char *)-1 && zeros(end, 4 * MB) && intact(p, len, 1));
	CHECK(sbrk(-8 * (long)MB) == end + 4 * MB);
	CHECK(sbrk(8 * MB) == end - 4 * MB);
	char *regrown = (char *)(((uintptr_t)end - 4 * MB + PAGE - 1) & ~(PAGE - 1));
	CHECK(zeros(regrown, end + 4 * MB - regrown) && intact(p, 4 * MB - 8, 1));
	IN_CLONE {
		CHECK(zeros(regrown, end + 4 * MB - regrown) && intact(p, 4 * MB - 8, 1));
		CHECK(sbrk(-12 * (long)MB) != (char *)-1);
		char *own = sbrk(12 * MB);
		own = (char *)(((uintptr_t)own + PAGE - 1) & ~(PAGE - 1));
		CHECK(zeros(own, 12 * MB - PAGE));
	}
	CHECK(intact(p, 4 * MB - 8, 1));
}
