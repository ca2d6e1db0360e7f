/* Threads may be stopped, but a debugger has one of them: refused until it lets go.
   env: FLASHFORK_THREADS=stop */
#include <sys/ptrace.h>

static pthread_barrier_t begun, end;
static pid_t tid;

static void *wait_there(void *arg)
{
	tid = syscall(SYS_gettid);
	pthread_barrier_wait(&begun);
	pthread_barrier_wait(&end);
	return arg;
}

int main(void)
{
	pthread_t thread;
	int ready[2], done[2];
	char c = 0;
	pthread_barrier_init(&begun, NULL, 2);
	pthread_barrier_init(&end, NULL, 2);
	START(&thread, wait_there, NULL);
	pthread_barrier_wait(&begun);
	CHECK(pipe(ready) == 0 && pipe(done) == 0);
	prctl(PR_SET_PTRACER, PR_SET_PTRACER_ANY);
	pid_t debugger = fork();
	if (debugger == 0) {
		c = ptrace(PTRACE_SEIZE, tid, 0, 0) == 0;
		CHECK(write(ready[1], &c, 1) == 1);
		CHECK(read(done[0], &c, 1) == 1);
		_exit(0);
	}
	CHECK(read(ready[0], &c, 1) == 1);
	if (!c)
		SKIP("ptrace is not allowed here");
	refused();
	CHECK(write(done[1], &c, 1) == 1 && wait_for(debugger) == 0);
	seal();
	pthread_barrier_wait(&end);
	JOIN(thread);
}
