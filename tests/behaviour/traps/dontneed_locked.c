/* MADV_DONTNEED_LOCKED (Linux 5.18) is MADV_DONTNEED that minds no lock: zeros afterwards. madvise(2). */

int main(void)
{
	char *p = memory(4 * MB, 1);
	seal();
	if (madvise(p, 4 * MB, MADV_DONTNEED_LOCKED) != 0 && errno == EINVAL)
		SKIP("this kernel has no MADV_DONTNEED_LOCKED (Linux 5.18)");
	CHECK(zeros(p, 4 * MB));
	IN_CLONE
		CHECK(zeros(p, 4 * MB));
}
