/* vfork and exec after a seal; and a call for which memory must be anonymous, which the child can't have as long as its
   parent waits for it: it is told so, without many attempts. vfork(2). */

int main(void)
{
	char *p = memory(4 * MB, 1);
	seal();
	pid_t pid = vfork();
	if (pid == 0) {
		execl("/bin/sh", "sh", "-c", "exit 7", NULL);
		_exit(1);
	}
	CHECK(pid > 0 && wait_for(pid) == 7);
	pid = syscall(SYS_vfork);
	if (pid == 0)
		_exit(8);
	CHECK(pid > 0 && wait_for(pid) == 8 && intact(p, 4 * MB, 1));
	pid = vfork();
	if (pid == 0) {
		struct rlimit few = {4, 4}; /* seconds of the CPU */
		setrlimit(RLIMIT_CPU, &few);
		_exit(madvise(p, PAGE, MADV_WIPEONFORK) == 0 || errno == EINVAL ? 9 : 1);
	}
	CHECK(pid > 0 && wait_for(pid) == 9 && intact(p, 4 * MB, 1));
}
