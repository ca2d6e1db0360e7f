/* Sealed memory takes MADV_WIPEONFORK where no descriptor is left to look through: the table full up to the limit, or the soft limit
   0, with one thread and with two. madvise(2), getrlimit(2). */

#define LEN (4 * MB)

static char *p;

static void wiped(void)
{
	CHECK(dup(2) == -1);
	CHECK(madvise(p + MB, PAGE, MADV_WIPEONFORK) == 0);
	CHECK(intact(p, LEN, 1));
	if (in_clone())
		_exit(!(zeros(p + MB, PAGE) && intact(p, MB, 1)));
	CHECK(intact(p, LEN, 1));
}

static void *calls(void *unused)
{
	wiped();
	return unused;
}

static void limited(int full, int threads)
{
	int end[2];
	pthread_t other, caller;
	struct rlimit limit = {full ? 32 : 0, 32};
	if (!in_clone())
		return;
	if (threads)
		make_other(&other, end);
	CHECK(setrlimit(RLIMIT_NOFILE, &limit) == 0);
	while (full && dup(2) >= 0)
		;
	if (threads) {
		CHECK(pthread_create(&caller, NULL, calls, NULL) == 0 && pthread_join(caller, NULL) == 0);
		end_other(other, end);
	} else
		wiped();
	_exit(0);
}

static void all(void)
{
	for (int i = 0; i < 4; i++)
		limited(i / 2, i % 2);
}

int main(void)
{
	p = memory(LEN, 1);
	all(); /* plain */
	seal();
	CHECK(all_sealed(p, LEN));
	all();
}
