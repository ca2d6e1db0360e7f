/* A soft RLIMIT_FSIZE: lifted for the time of the seal, put back afterwards, and no SIGXFSZ. setrlimit(2). */

static volatile sig_atomic_t signalled;

static void handler(int sig)
{
	signalled = sig;
}

int main(void)
{
	struct rlimit limit;
	signal(SIGXFSZ, handler);
	CHECK(getrlimit(RLIMIT_FSIZE, &limit) == 0);
	if (limit.rlim_max != RLIM_INFINITY)
		SKIP("the hard RLIMIT_FSIZE is too low");
	limit.rlim_cur = 4096;
	CHECK(setrlimit(RLIMIT_FSIZE, &limit) == 0);
	seal();
	CHECK(getrlimit(RLIMIT_FSIZE, &limit) == 0);
	CHECK(limit.rlim_cur == 4096 && limit.rlim_max == RLIM_INFINITY && !signalled);
}
