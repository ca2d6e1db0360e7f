/* mseal (Linux 6.10): it was asked to be unchangeable, and the kernel refuses a new mapping over it. mseal(2). */

#define SYS_MSEAL 462

int main(void)
{
	char *p = memory(4 * MB, 1);
	if (syscall(SYS_MSEAL, p, 4 * MB, 0) != 0)
		SKIP("this kernel has no mseal (Linux 6.10)");
	seal();
	CHECK(sealed_bytes(p, 4 * MB) == 0);
	CHECK(munmap(p, PAGE) == -1 && errno == EPERM);
	IN_CLONE
		CHECK(intact(p, 4 * MB, 1));
}
