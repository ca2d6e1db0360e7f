/* A child made by the system call clone itself while other threads are inside calls on sealed memory: it has threads of its own, is
   sealed beside them, and its memory becomes anonymous where it must. clone(2).
   env: FLASHFORK_THREADS=stop */

static char *p;
static volatile int over;

static void *calls(void *unused)
{
	for (size_t i = 0; !over; i++) {
		CHECK(mlock(p + i % 1000 * PAGE, PAGE) == 0 && munlock(p + i % 1000 * PAGE, PAGE) == 0);
		CHECK(madvise(p + 4 * MB + i % 1000 * PAGE, PAGE, MADV_DONTNEED) == 0);
	}
	return unused;
}

int main(void)
{
	pthread_t caller[3];
	p = memory(8 * MB, 1);
	char *quiet = memory(4 * MB, 2);
	seal();
	for (int i = 0; i < 3; i++)
		START(&caller[i], calls, NULL);
	for (size_t turn = 0; turn < often(60); turn++) {
		pid_t pid = (pid_t)syscall(SYS_clone, SIGCHLD, 0, 0, 0, 0);
		CHECK(pid >= 0);
		if (pid == 0) {
			int end[2];
			pthread_t other;
			make_other(&other, end);
			fill(quiet, 4 * MB, 3);
			at_last(call_seal);
			CHECK(all_sealed(quiet, 4 * MB) && intact(quiet, 4 * MB, 3));
			CHECK(madvise(quiet, PAGE, MADV_WIPEONFORK) == 0 && intact(quiet, 4 * MB, 3));
			end_other(other, end);
			_exit(0);
		}
		CHECK(wait_for(pid) == 0);
	}
	over = 1;
	for (int i = 0; i < 3; i++)
		JOIN(caller[i]);
	CHECK(intact(quiet, 4 * MB, 2));
}
