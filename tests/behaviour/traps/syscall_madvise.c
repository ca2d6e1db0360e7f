/* madvise by number, through libc's syscall(): newer allocators call the kernel this way. syscall(2). */

int main(void)
{
	char *p = memory(4 * MB, 1);
	seal();
	CHECK(syscall(SYS_madvise, p, 2 * MB, MADV_DONTNEED) == 0);
	CHECK(zeros(p, 2 * MB));
	CHECK(syscall(SYS_madvise, p + 2 * MB, 2 * MB, 12345) == -1 && errno == EINVAL);
	CHECK(syscall(SYS_getpid) == getpid());
	IN_CLONE {
		CHECK(zeros(p, 2 * MB));
		CHECK(syscall(SYS_madvise, p + 2 * MB, 2 * MB, MADV_DONTNEED) == 0 && zeros(p, 4 * MB));
	}
}
