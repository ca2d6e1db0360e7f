/* MADV_HUGEPAGE and MADV_NOHUGEPAGE come back when memory is anonymous again, after an unseal and after a discard.
   madvise(2), VmFlags hg and nh. */

int main(void)
{
	char *yes = memory(4 * MB, 1), *no = memory(4 * MB, 2), *plain = memory(4 * MB, 3);
	if (madvise(yes, 4 * MB, MADV_HUGEPAGE) != 0)
		SKIP("this kernel has no transparent huge pages");
	CHECK(madvise(no, 4 * MB, MADV_NOHUGEPAGE) == 0);
	seal();
	CHECK(all_sealed(yes, 4 * MB) && all_sealed(no, 4 * MB));
	CHECK(madvise(yes, 2 * MB, MADV_DONTNEED) == 0 && madvise(no, 2 * MB, MADV_DONTNEED) == 0);
	unseal();
	CHECK(strstr(smaps(yes, "VmFlags"), " hg") && strstr(smaps(yes + 2 * MB, "VmFlags"), " hg"));
	CHECK(strstr(smaps(no, "VmFlags"), " nh") && strstr(smaps(no + 2 * MB, "VmFlags"), " nh"));
	CHECK(!strstr(smaps(plain, "VmFlags"), " hg") && !strstr(smaps(plain, "VmFlags"), " nh"));
	CHECK(intact(plain, 4 * MB, 3) && zeros(yes, 2 * MB));
}
