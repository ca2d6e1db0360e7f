/* A tight RLIMIT_AS: with little room the seal does without 2 MB pages, with none it fails; bytes and clones are right
   throughout, and a discard gives zeros. setrlimit(2). */

static void leave_room(size_t room)
{
	struct rlimit limit = {RLIM_INFINITY, RLIM_INFINITY};
	CHECK(setrlimit(RLIMIT_AS, &limit) == 0);
	limit.rlim_cur = status_kb("VmSize") * 1024 + room;
	CHECK(setrlimit(RLIMIT_AS, &limit) == 0);
}

static void check(char *p)
{
	CHECK(intact(p, 16 * MB, 1));
	IN_CLONE
		CHECK(intact(p, 16 * MB, 1));
}

int main(void)
{
	char *p = memory(16 * MB, 1), *gone = memory(4 * MB, 2);
	leave_room(0);
	CHECK(call_seal() == -1 && sealed_bytes(ALL) == 0);
	check(p);
	/* Less than 2 MB beside what the seal works in. */
	leave_room(5 * MB);
	CHECK(call_seal() == 0 && all_sealed(p, 16 * MB));
	check(p);
	leave_room(0);
	CHECK(discard_zeros(gone, 4 * MB));
	CHECK(mlock(p, PAGE) == 0);
	check(p);
}
