/* CPU time and statistics: a clone's begin at zero. times(2), getrusage(2).
   clone: own
   do: nothing */

static double used(void)
{
	struct timespec t;
	CHECK(clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t) == 0);
	return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

int main(void)
{
	seal();
	while (used() < 0.2)
		;
	IN_CLONE
		CHECK(used() < 0.2);
}
