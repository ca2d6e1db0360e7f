/* A process with threads is sealed all the time while its group is stopped and continued, as a shell does it: whoever waits
   for that is told each time. waitpid(2), kill(2).
   env: FLASHFORK_THREADS=stop */

#define LEN (8 * MB)

static char *p;

static void *write_all_the_time(void *from)
{
	for (size_t at = (size_t)from; p != NULL; at = (at + 64 * PAGE) % LEN) {
		p[at]++;
		usleep(200);
	}
	return NULL;
}

static void __attribute__((noreturn)) seal_all_the_time(volatile unsigned *seals)
{
	pthread_t thread;
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	p = memory(LEN, 1);
	for (size_t i = 0; i < 2; i++)
		START(&thread, write_all_the_time, (void *)(i * PAGE));
	for (;; ++*seals) {
		at_last(call_seal);
		for (size_t at = 0; at < LEN; at += 3 * PAGE)
			p[at] ^= 1;
	}
}

int main(void)
{
	volatile unsigned *seals = mmap(NULL, PAGE, RW, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	CHECK(seals != MAP_FAILED);
	pid_t pid = forked();
	if (pid == 0) {
		CHECK(setpgid(0, 0) == 0);
		seal_all_the_time(seals);
	}
	while (*seals == 0)
		usleep(1000);
	for (size_t turn = 0; turn < often(60); turn++) {
		int status;
		unsigned before = *seals;
		while (*seals == before)
			usleep(100);
		usleep(turn % 20 * 100); /* at another place of the next seal */
		CHECK(kill(-pid, SIGSTOP) == 0 && waitpid(pid, &status, WUNTRACED) == pid);
		CHECK(WIFSTOPPED(status) && WSTOPSIG(status) == SIGSTOP);
		CHECK(kill(-pid, SIGCONT) == 0 && waitpid(pid, &status, WCONTINUED) == pid && WIFCONTINUED(status));
	}
	CHECK(kill(pid, SIGKILL) == 0 && wait_for(pid) == 128 + SIGKILL);
}
