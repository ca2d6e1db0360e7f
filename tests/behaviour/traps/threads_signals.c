/* Where ptrace is refused threads are stopped by the signal that glibc keeps for set*id. What that signal is for goes on meanwhile:
   set*id reaches every thread, also in clones made in the middle of a seal. Threads on an alternate stack, and cancelled ones. A
   thread that blocks the signal by a system call of its own is not waited for long: refused, everybody goes on, and the signal
   that comes to it later does no harm. signal(7), nptl(7).
   cflags: -Wl,--no-as-needed -lgcc_s
   env: FLASHFORK_THREADS=stop */
#include "no_ptrace.h"

static volatile int over, blocked;
static uint64_t *p;

static void *write_all(void *arg)
{
	uint64_t *turns = arg;
	for (; !over; ++*turns) {
		for (size_t i = 0; i < 8 * MB / 8; i += 512)
			p[i]++;
		if (*turns % 64 == 0)
			usleep(1000);
	}
	return arg;
}

static void *change_ids(void *arg)
{
	for (; !over; usleep(500))
		CHECK(seteuid(geteuid()) == 0);
	return arg;
}

static void *wait_for_ever(void *arg)
{
	for (;;)
		pause();
	return arg;
}

static void *cancel(void *arg)
{
	for (; !over; usleep(500)) {
		pthread_t thread;
		void *result;
		START(&thread, wait_for_ever, NULL);
		CHECK(pthread_cancel(thread) == 0 && pthread_join(thread, &result) == 0 && result == PTHREAD_CANCELED);
	}
	return arg;
}

static void *on_another_stack(void *arg)
{
	stack_t stack = {.ss_size = 32 * 1024};
	stack.ss_sp = malloc(stack.ss_size);
	CHECK(stack.ss_sp && sigaltstack(&stack, NULL) == 0);
	while (!over)
		usleep(300);
	return arg;
}

static void *doze(void *arg)
{
	while (!over)
		usleep(1000);
	return arg;
}

/* Clones are made while seals run, and seal themselves. */
static void *fork_all_the_time(void *arg)
{
	while (!over) {
		pid_t pid = forked();
		if (pid == 0) {
			pthread_t thread;
			START(&thread, doze, NULL);
			CHECK(seteuid(geteuid()) == 0);
			at_last(call_seal);
			CHECK(seteuid(geteuid()) == 0);
			over = 1;
			JOIN(thread);
			_exit(0);
		}
		int status;
		while (waitpid(pid, &status, 0) < 0)
			CHECK(errno == EINTR);
		CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0);
	}
	return arg;
}

static void *block(void *arg)
{
	uint64_t all = ~0ul, before;
	CHECK(syscall(SYS_rt_sigprocmask, SIG_SETMASK, &all, &before, 8) == 0);
	blocked = 1;
	while (blocked)
		sched_yield();
	CHECK(syscall(SYS_rt_sigprocmask, SIG_SETMASK, &before, NULL, 8) == 0);
	return arg;
}

int main(void)
{
	enum { N = 5 };
	void *(*work[N])(void *) = {write_all, change_ids, cancel, on_another_stack, fork_all_the_time};
	pthread_t thread[N], obstinate;
	uint64_t turns = 0;
	int seals = 0;
	forbid_ptrace();
	p = (uint64_t *)map_alone(8 * MB, RW, MAP_PRIVATE);
	memset(p, 0, 8 * MB);
	START(&obstinate, block, NULL);
	while (!blocked)
		usleep(1000);
	refused();
	blocked = 0;
	JOIN(obstinate);
	START(&obstinate, doze, NULL);
	seal();
	unseal();
	for (int i = 0; i < N; i++)
		START(&thread[i], work[i], &turns);
	for (size_t turn = 0; again(turn, 20); turn++) {
		seals += call_seal() == 0;
		flashfork_preload_unseal();
	}
	over = 1;
	for (int i = 0; i < N; i++)
		JOIN(thread[i]);
	JOIN(obstinate);
	for (size_t i = 0; i < 8 * MB / 8; i++)
		CHECK(p[i] == (i % 512 ? 0 : turns));
	if (seals == 0)
		SKIP("this machine is too busy to stop the threads of a process in time");
}
