/* A program that has a function of its own by the name of libc's clock_gettime, by which forks are timed: nobody else calls it.
   env: FLASHFORK_ENGINE=seal
   cflags: -Dclock_gettime=libc_clock_gettime */
#undef clock_gettime

/* What behaviour.h would call is not used here. */
int libc_clock_gettime(clockid_t clock, struct timespec *now)
{
	(void)clock;
	(void)now;
	return -1;
}

static int calls;

long clock_gettime(long ours)
{
	calls++;
	return ours;
}

int main(void)
{
	char *p = memory(8 * MB, 1);
	for (int i = 0; i < 3; i++)
		if (in_clone())
			_exit(!intact(p, 8 * MB, 1));
	CHECK(all_sealed(p, 8 * MB));
	CHECK(calls == 0 && clock_gettime(7) == 7 && calls == 1);
}
