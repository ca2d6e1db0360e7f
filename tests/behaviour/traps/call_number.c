/* The kernel looks at the lower half of a system call's number. syscall(2). */

int main(void)
{
	char *p = memory(4 * MB, 1);
	seal();
	CHECK(syscall(0x700000000 | SYS_madvise, p, MB, MADV_DONTNEED) == 0 && zeros(p, MB));
	CHECK(syscall((long)0x8000000000000000 | SYS_madvise, p + MB, MB, MADV_DONTNEED) == 0 && zeros(p + MB, MB));
	for (size_t i = 2 * MB / 8; i < 4 * MB / 8; i++)
		CHECK(((uint64_t *)p)[i] == pattern(i, 1));
}
