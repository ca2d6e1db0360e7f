/* A program that puts itself under a seccomp filter which kills on the calls a seal needs is not sealed
   any more; its forks stay plain. seccomp(2).
   env: FLASHFORK_ENGINE=seal */
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <spawn.h>

#define KILL_ON(call) \
	BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, call, 0, 1), BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS)

static struct sock_filter filter[] = {
	BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
	KILL_ON(__NR_memfd_create),
	KILL_ON(__NR_openat),
	BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
};
static const struct sock_fprog program = {sizeof filter / sizeof filter[0], filter};

static int sandboxed(int by_number)
{
	char *memory = map_alone(16 * MB, RW, MAP_PRIVATE);
	CHECK(memory != NULL);
	fill(memory, 16 * MB, 1);
	CHECK(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0);
	CHECK((by_number ? syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, 0, &program)
	                 : prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program)) == 0);
	for (int i = 0; i < 3; i++)
		if (in_clone())
			_exit(!intact(memory, 16 * MB, 1));
	return 0;
}

int main(int argc, char **argv)
{
	if (argc > 1)
		return sandboxed(atoi(argv[1]));
	char *ways[] = {"0", "1"};
	for (int i = 0; i < 2; i++) {
		char *arguments[] = {argv[0], ways[i], NULL};
		pid_t pid;
		CHECK(posix_spawn(&pid, "/proc/self/exe", NULL, NULL, arguments, environ) == 0);
		CHECK(wait_for(pid) == 0);
	}
}
