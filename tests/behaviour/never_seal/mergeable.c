/* MADV_MERGEABLE: KSM merges anonymous pages only, and merging was asked for. madvise(2). */

int main(void)
{
	char *p = memory(4 * MB, 1);
	if (madvise(p, 4 * MB, MADV_MERGEABLE) != 0)
		SKIP("this kernel has no KSM");
	seal();
	CHECK(sealed_bytes(p, 4 * MB) == 0 && strstr(smaps(p, "VmFlags"), " mg "));
	IN_CLONE
		CHECK(intact(p, 4 * MB, 1));
}
