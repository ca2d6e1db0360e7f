/* process_madvise on oneself, by a descriptor and by PIDFD_SELF: jemalloc's dev branch purges this way, by number.
   process_madvise(2); allowed for MADV_DONTNEED on oneself since Linux 6.13. */

#define PIDFD_SELF_OF_6_15 (-10000)

int main(void)
{
	char *p = memory(8 * MB, 1);
	int self = syscall(SYS_pidfd_open, getpid(), 0), shown = 0;
	CHECK(self >= 0);
	seal();
	for (int turn = 0; turn < 4; turn++) {
		char *at = p + turn * 2 * MB;
		struct iovec parts[] = {{at, MB}, {at + MB, MB / 2}};
		int fd = turn & 1 ? PIDFD_SELF_OF_6_15 : self;
		ssize_t n = turn & 2 ? syscall(SYS_process_madvise, fd, parts, 2, MADV_DONTNEED, 0)
		                     : process_madvise(fd, parts, 2, MADV_DONTNEED, 0);
		CHECK(n == 3 * (ssize_t)MB / 2 || (n == -1 && (errno == EINVAL || errno == EBADF)));
		if (n > 0)
			CHECK(zeros(at, 3 * MB / 2));
		size_t kept = n > 0 ? 3 * MB / 2 : 0;
		for (size_t i = kept / 8; i < 2 * MB / 8; i++)
			CHECK(((uint64_t *)at)[i] == pattern((at - p) / 8 + i, 1));
		shown += n > 0;
	}
	/* A vector that lies in what is discarded. */
	char *q = memory(4 * MB, 2);
	seal();
	struct iovec *within = (struct iovec *)(q + MB);
	within[0] = (struct iovec){within, PAGE};
	within[1] = (struct iovec){q + 2 * MB, PAGE};
	if (syscall(SYS_process_madvise, self, within, 2, MADV_DONTNEED, 0) == 2 * PAGE) {
		CHECK(zeros(q + MB, PAGE) && zeros(q + 2 * MB, PAGE));
		CHECK(intact(q, MB, 2));
	}
	/* All lengths are looked at first. */
	struct iovec wrong[] = {{(void *)-0x10000, PAGE}, {p, 1ul << 63}};
	errno = 0;
	CHECK(syscall(SYS_process_madvise, self, wrong, 2, MADV_DONTNEED, 0) == -1 && errno == EINVAL);
	if (!shown)
		SKIP("this kernel allows no process_madvise(MADV_DONTNEED) (Linux 6.13)");
}
