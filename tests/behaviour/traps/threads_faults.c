/* Each system call that stopping threads takes, failing: the seal is refused or goes on, memory is what it was, and the threads
   run on.
   env: FLASHFORK_THREADS=stop */
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/ptrace.h>

#define ANY 0xffffffff
#define EITHER 2

static const struct {
	unsigned call, argument, error, refused, no_ptrace;
} faults[] = {
	{SYS_clone, ANY, EAGAIN, 1, 0},
	{SYS_clone, ANY, EPERM, 1, 0},
	{SYS_prctl, PR_SET_PDEATHSIG, EINVAL, 1, 0},
	{SYS_close_range, ANY, ENOSYS, 1, 0},
	{SYS_close_range, ANY, ENOMEM, 1, 0},
	{SYS_pidfd_open, ANY, ENOSYS, 1, 0},
	{SYS_pidfd_open, ANY, EMFILE, 1, 0},
	{SYS_rt_sigaction, ANY, EINVAL, 1, 0},
	{SYS_ptrace, PTRACE_SEIZE, EPERM, 0, 0}, /* by signals then */
	{SYS_ptrace, PTRACE_SEIZE, ENOMEM, 0, 0},
	{SYS_ptrace, PTRACE_INTERRUPT, EIO, 0, 0},
	{SYS_tgkill, ANY, EPERM, 1, 1},
	{SYS_tgkill, ANY, EAGAIN, 1, 1},
	{SYS_clone, ANY, EAGAIN, 1, 1},
	{SYS_futex, ANY, ENOSYS, EITHER, 1}, /* nobody is woken: what takes too long is given up */
	{SYS_getdents64, ANY, ENOMEM, 1, 1},
	{SYS_ptrace, PTRACE_GETREGS, ESRCH, 0, 0},
	{SYS_ptrace, PTRACE_DETACH, ESRCH, EITHER, 0}, /* in the first try signals take over */
	{SYS_wait4, ANY, ECHILD, EITHER, 0}, /* signals take over where there is time left */
	{SYS_wait4, ANY, EPERM, 1, 0},
	{SYS_getdents64, ANY, ENOMEM, 1, 0},
	{SYS_kcmp, ANY, EPERM, 1, 0},
	{SYS_futex, ANY, ENOSYS, 0, 0},
	{SYS_rt_sigtimedwait, ANY, ENOSYS, 0, 0},
	{SYS_madvise, MADV_DONTFORK, ENOMEM, 1, 0}, /* its third argument, see below */
	{SYS_memfd_create, ANY, EMFILE, 1, 0},
};

static volatile int over, written;
static volatile uint64_t turns;
static uint64_t *p;

static void *write_all(void *arg)
{
	for (uint64_t turn = 1; !over; turns = turn++)
		for (size_t i = 0; i < 8 * MB / 8; i += 64)
			p[i] += 1;
	written = 1;
	return arg;
}

static void *sleep_long(void *arg)
{
	while (!over)
		usleep(1000);
	return arg;
}

static void try(size_t i)
{
	size_t which = faults[i].call == SYS_madvise ? offsetof(struct seccomp_data, args[2])
	                                             : offsetof(struct seccomp_data, args[0]);
	struct sock_filter instructions[] = {
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, faults[i].no_ptrace ? SYS_ptrace : ANY, 0, 1),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, faults[i].call, 0, 3),
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, which),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, faults[i].argument, 0, 1),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | faults[i].error),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
	};
	if (faults[i].argument == ANY)
		instructions[5] = (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JGE | BPF_K, 0, 0, 1);
	struct sock_fprog filter = {8, instructions};
	pthread_t t[2];
	p = (uint64_t *)map_alone(8 * MB, RW, MAP_PRIVATE);
	char *quiet = memory(4 * MB, 5);
	memset(p, 0, 8 * MB);
	START(&t[0], write_all, NULL);
	START(&t[1], sleep_long, NULL);
	if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) || prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter))
		SKIP("this kernel has no seccomp filters");
	int result = call_seal();
	if (faults[i].refused != EITHER && result != (faults[i].refused ? -1 : 0)) {
		fprintf(stderr, "call %u, argument %u, error %u: the seal gave %d\n", faults[i].call, faults[i].argument,
		        faults[i].error, result);
		_exit(1);
	}
	/* The threads are there and run. */
	for (uint64_t before = turns; turns < before + 3;)
		usleep(1000);
	over = 1;
	/* Not joined: futex may be what fails. */
	while (!written)
		usleep(1000);
	for (size_t j = 0; j < 8 * MB / 8; j++)
		CHECK(p[j] == (j % 64 ? 0 : p[0]));
	CHECK(intact(quiet, 4 * MB, 5));
	_exit(0);
}

int main(void)
{
	for (size_t i = 0; i < sizeof faults / sizeof faults[0]; i++) {
		pid_t pid = forked();
		if (pid == 0)
			try(i);
		int status = wait_for(pid);
		if (status == 77)
			return 77;
		if (status)
			fprintf(stderr, "fault %zu: status %d\n", i, status);
		CHECK(status == 0);
	}
}
