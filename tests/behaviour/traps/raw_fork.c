/* Forks that pass libc by: by number, clone(SIGCHLD) by number, _Fork. Each is a right clone. fork(2), _Fork(3). */

static char *p;

static void check(pid_t pid)
{
	CHECK(pid >= 0);
	if (pid == 0) {
		CHECK(intact(p, 4 * MB, 1));
		fill(p, 4 * MB, 2);
		CHECK(discard_zeros(p, MB));
		_exit(0);
	}
	CHECK(wait_for(pid) == 0 && intact(p, 4 * MB, 1));
}

int main(void)
{
	p = memory(4 * MB, 1);
	seal();
	check(syscall(SYS_fork));
	check(syscall(SYS_clone, SIGCHLD, 0, 0, 0, 0));
	check(_Fork());
}
