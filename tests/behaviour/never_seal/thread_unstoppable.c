/* Threads may be stopped, but one waits in the kernel for a vfork child, which no signal and no tracer ends. (The child itself
   shares the memory and would be found by kcmp(2), so a filter forbids that for the child alone.) Refused until the child is gone.
   env: FLASHFORK_THREADS=stop */
#include <linux/filter.h>
#include <linux/seccomp.h>

static int begun[2], end[2];

static void *wait_in_vfork(void *arg)
{
	char c;
	pid_t pid = vfork();
	if (pid == 0) {
		pid_t me = (pid_t)syscall(SYS_getpid);
		syscall(SYS_write, begun[1], &me, sizeof me);
		syscall(SYS_read, end[0], &c, 1);
		_exit(0);
	}
	CHECK(wait_for(pid) == 0);
	return arg;
}

int main(void)
{
	pthread_t thread;
	pid_t child;
	CHECK(pipe(begun) == 0 && pipe(end) == 0);
	START(&thread, wait_in_vfork, NULL);
	CHECK(read(begun[0], &child, sizeof child) == sizeof child);
	struct sock_filter no_kcmp[] = {
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_kcmp, 0, 3),
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, args[1])),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, (unsigned)child, 0, 1),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
	};
	struct sock_fprog filter = {6, no_kcmp};
	if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) || prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter))
		SKIP("this kernel has no seccomp filters");
	refused();
	CHECK(write(end[1], "", 1) == 1);
	JOIN(thread);
	seal();
}
