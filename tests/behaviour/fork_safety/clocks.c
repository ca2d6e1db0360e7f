/* Clocks: they go on in a clone; a time that the template has kept (a cache's, a log's, a lease's) is as old as the template. time(7).
   clone: renew
   do: read the clock in the clone; drop caches and leases by time */

static double now(clockid_t clock)
{
	struct timespec t;
	CHECK(clock_gettime(clock, &t) == 0);
	return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

int main(void)
{
	double kept = now(CLOCK_MONOTONIC);
	seal();
	usleep(20000);
	IN_CLONE
		CHECK(now(CLOCK_MONOTONIC) >= kept + 0.02);
}
