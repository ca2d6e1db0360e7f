/* MADV_REMOVE must not punch a hole into memory that clones share: EINVAL, as on any anonymous memory. madvise(2). */

int main(void)
{
	char *p = memory(4 * MB, 1);
	seal();
	CHECK(madvise(p, 4 * MB, MADV_REMOVE) == -1 && errno == EINVAL);
	CHECK(intact(p, 4 * MB, 1));
}
