/* Runs under 2 MB: one more mapping costs a fork as much as the page table it saves. */

int main(void)
{
	char *p = memory(MB, 1);
	seal();
	CHECK(sealed_bytes(p, MB) == 0);
	IN_CLONE
		CHECK(intact(p, MB, 1));
}
