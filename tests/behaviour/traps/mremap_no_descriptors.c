/* Sealed memory grows as plain memory does where no descriptor is left to ask the kernel through: the table full up to the limit, the
   soft limit 0, the hard limit 0, that for a user who can't lift it, and without /proc; whoever brings that about.
   getrlimit(2), prlimit(2), chroot(2). */

#define LEN (4 * MB)

static char *p[5], *q[5], *r[5];

static void grows(char *in_place, char *moving, char *fixed)
{
	CHECK(dup(2) == -1 || access("/proc/self", F_OK) == -1);
	char *there = mremap(in_place, LEN, LEN + PAGE, 0);
	CHECK(there == in_place && intact(there, LEN, 1) && zeros(there + LEN, PAGE));
	/* Something is in the way. */
	CHECK(mmap(moving + LEN, PAGE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) == moving + LEN);
	CHECK(mremap(moving, LEN, 2 * LEN, 0) == MAP_FAILED && errno == ENOMEM);
	char *moved = mremap(moving, LEN, 2 * LEN, MREMAP_MAYMOVE);
	CHECK(moved != MAP_FAILED && moved != moving && intact(moved, LEN, 1) && zeros(moved + LEN, LEN));
	fill(moved, 2 * LEN, 7);
	CHECK(intact(moved, 2 * LEN, 7));
	char *place = map_alone(2 * LEN, PROT_NONE, MAP_PRIVATE);
	CHECK(mremap(fixed, LEN, 2 * LEN, MREMAP_MAYMOVE | MREMAP_FIXED, place) == place);
	CHECK(intact(place, LEN, 1) && zeros(place + LEN, LEN));
	/* It is gone from where it was. */
	unsigned char there_still;
	CHECK(mincore(fixed, PAGE, &there_still) == -1 && errno == ENOMEM);
}

static int limited(int number, int unseen)
{
	struct rlimit limit = {number == 0 ? 32 : 0, number < 2 ? 32 : 0};
	if (number == 4)
		return unseen ? lose_proc() : leave_proc();
	CHECK(unseen ? lower_limit(RLIMIT_NOFILE, limit.rlim_cur, limit.rlim_max) : setrlimit(RLIMIT_NOFILE, &limit) == 0);
	while (number == 0 && dup(2) >= 0)
		;
	if (number == 3)
		CHECK(geteuid() != 0 || setuid(65534) == 0);
	return 1;
}

static void all(void)
{
	for (int i = 0; i < 10; i++)
		IN_CLONE {
			if (limited(i / 2, i % 2))
				grows(p[i / 2], q[i / 2], r[i / 2]);
		}
}

int main(void)
{
	for (int i = 0; i < 5; i++) {
		p[i] = memory(LEN, 1);
		q[i] = memory(LEN, 1);
		r[i] = memory(LEN, 1);
	}
	all(); /* plain */
	seal();
	CHECK(all_sealed(p[0], LEN));
	all();
}
