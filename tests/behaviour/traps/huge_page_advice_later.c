/* MADV_HUGEPAGE and MADV_NOHUGEPAGE that are given to sealed memory hold when it is anonymous again, after a reseal, an unseal and a
   discard, and take the place of what was advised before the seal. madvise(2), VmFlags hg and nh. */

#define LEN (8 * MB)

static int has(const char *p, const char *flag)
{
	return strstr(smaps(p, "VmFlags"), flag) != NULL;
}

int main(void)
{
	char *yes = memory(LEN, 1), *turned = memory(LEN, 2), *plain = memory(LEN, 3);
	if (madvise(turned, LEN, MADV_HUGEPAGE) != 0)
		SKIP("this kernel has no transparent huge pages");
	seal();
	CHECK(madvise(yes, LEN, MADV_HUGEPAGE) == 0 && madvise(turned, LEN, MADV_NOHUGEPAGE) == 0);
	CHECK(all_sealed(yes, LEN) && all_sealed(turned, LEN));
	/* A small discard, a large one, a reseal. */
	CHECK(madvise(yes, PAGE, MADV_DONTNEED) == 0 && madvise(turned, PAGE, MADV_DONTNEED) == 0);
	CHECK(madvise(yes + 2 * MB, 2 * MB, MADV_DONTNEED) == 0 && madvise(turned + 2 * MB, 2 * MB, MADV_DONTNEED) == 0);
	memset(yes + 4 * MB, 1, 2 * MB);
	memset(turned + 4 * MB, 1, 2 * MB);
	seal();
	unseal();
	for (size_t at = 0; at < LEN; at += 2 * MB) {
		CHECK(has(yes + at, " hg") && !has(yes + at, " nh"));
		CHECK(has(turned + at, " nh") && !has(turned + at, " hg"));
	}
	CHECK(!has(plain, " hg") && !has(plain, " nh") && intact(plain, LEN, 3));
	CHECK(zeros(yes, PAGE) && zeros(turned + 2 * MB, 2 * MB));
}
