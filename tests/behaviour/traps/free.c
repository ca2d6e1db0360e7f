/* MADV_FREE answers EINVAL on a file mapping; on sealed memory it works, and zeros are a right answer. madvise(2). */

int main(void)
{
	char *p = memory(4 * MB, 1);
	seal();
	CHECK(madvise(p, 4 * MB, MADV_FREE) == 0);
	CHECK(zeros(p, 4 * MB));
	fill(p, 4 * MB, 2);
	IN_CLONE
		CHECK(intact(p, 4 * MB, 2));
}
