/* Where ptrace is refused: a thread calls exec in the middle of a seal. It waits for the end of the seal, so that no signal of the seal's is on its
   way into the new program, which would end with it. execve(2), signal(7).
   env: FLASHFORK_THREADS=stop */
#include "no_ptrace.h"

static void *count(void *arg)
{
	for (;;)
		++*(volatile uint64_t *)arg;
	return arg;
}

static void *exec_true(void *arg)
{
	char *args[] = {"true", NULL};
	usleep((unsigned)(size_t)arg);
	execvp("/nothing/here", args);
	execvp("true", args);
	return NULL;
}

int main(void)
{
	uint64_t counter = 0;
	pthread_t thread[2];
	char *quiet = memory(32 * MB, 5);
	forbid_ptrace();
	for (size_t turn = 0; again(turn, often(60)); turn++) {
		pid_t pid = forked();
		if (pid == 0) {
			START(&thread[0], count, &counter);
			START(&thread[1], exec_true, (void *)(turn * 500));
			for (;;) {
				call_seal();
				flashfork_preload_unseal();
			}
		}
		CHECK(wait_for(pid) == 0);
	}
	CHECK(intact(quiet, 32 * MB, 5));
}
