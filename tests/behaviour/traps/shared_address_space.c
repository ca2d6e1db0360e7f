/* A process that runs in the same memory without being a thread (CLONE_VM, vfork): what it writes between copy and remap would be lost,
   so there is no seal while it lives. clone(2), kcmp(2). */

static char stack[64 * 1024];
static volatile int end, answer;

static int count(void *counter)
{
	/* A check that fails must not leave this running. */
	syscall(SYS_prctl, PR_SET_PDEATHSIG, SIGKILL);
	while (!end)
		++*(volatile uint64_t *)counter;
	return 0;
}

static int seal_as_child(void *unused)
{
	(void)unused;
	answer = call_seal();
	return 0;
}

int main(void)
{
	char *p = memory(4 * MB, 1);
	pid_t pid = clone(count, stack + sizeof stack, CLONE_VM | SIGCHLD, p);
	CHECK(pid > 0);
	CHECK(call_seal() == -1 && sealed_bytes(ALL) == 0);
	end = 1;
	CHECK(wait_for(pid) == 0);
	pid = clone(seal_as_child, stack + sizeof stack, CLONE_VM | SIGCHLD, NULL);
	CHECK(pid > 0 && wait_for(pid) == 0 && answer == -1);
	seal();
}
