/* Limits, priority, CPU affinity: copied, and changed for oneself only. setrlimit(2), sched_setaffinity(2).
   clone: own
   do: set them in the clone if they should be its caller's (`flashfork clone` does, with limits and niceness) */

int main(void)
{
	struct rlimit before, after;
	int nice_before = getpriority(PRIO_PROCESS, 0);
	CHECK(getrlimit(RLIMIT_NOFILE, &before) == 0 && before.rlim_cur > 10);
	seal();
	IN_CLONE {
		struct rlimit few = {10, before.rlim_max};
		CHECK(setrlimit(RLIMIT_NOFILE, &few) == 0 && setpriority(PRIO_PROCESS, 0, 19) == 0);
	}
	CHECK(getrlimit(RLIMIT_NOFILE, &after) == 0 && after.rlim_cur == before.rlim_cur);
	CHECK(getpriority(PRIO_PROCESS, 0) == nice_before);
}
