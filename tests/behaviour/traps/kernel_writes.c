/* System calls that write memory write sealed memory just as well, and only this process sees it: read(2),
   process_vm_writev(2). */

int main(void)
{
	char *p = memory(4 * MB, 1), *wanted = memory(64 * 1024, 2), other[] = "from another process";
	int channel[2];
	seal();
	CHECK(pipe(channel) == 0 && write(channel[1], wanted, 60000) == 60000);
	CHECK(read(channel[0], p + MB, 60000) == 60000 && memcmp(p + MB, wanted, 60000) == 0);
	prctl(PR_SET_PTRACER, PR_SET_PTRACER_ANY);
	struct iovec from = {other, sizeof other}, to = {p + 2 * MB, sizeof other};
	IN_CLONE {
		ssize_t n = process_vm_writev(getppid(), &from, 1, &to, 1, 0);
		CHECK(n == sizeof other || errno == EPERM || errno == ENOSYS);
		CHECK(*(uint64_t *)(p + 2 * MB) == pattern(2 * MB / 8, 1)); /* the parent's copy, not ours */
	}
	CHECK(memcmp(p + 2 * MB, other, sizeof other) == 0 || *(uint64_t *)(p + 2 * MB) == pattern(2 * MB / 8, 1));
	CHECK(memcmp(p + MB, wanted, 60000) == 0);
}
