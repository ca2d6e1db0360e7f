/* Sealed memory grows as plain memory does where the address space may grow by no more than that: in its place, and to another.
   RLIMIT_AS of setrlimit(2). */

#define LEN (16 * MB)

static char *p, *q;

static void leave_room(size_t room)
{
	struct rlimit limit = {RLIM_INFINITY, RLIM_INFINITY};
	limit.rlim_cur = status_kb("VmSize") * 1024 + room;
	CHECK(setrlimit(RLIMIT_AS, &limit) == 0);
}

static void grows(void)
{
	CHECK(mmap(q + LEN, PAGE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) == q + LEN);
	leave_room(2 * MB);
	char *there = mremap(p, LEN, LEN + MB, 0), *moved = mremap(q, LEN, LEN + MB / 2, MREMAP_MAYMOVE);
	CHECK(there == p && intact(p, LEN, 1) && zeros(p + LEN, MB));
	CHECK(moved != MAP_FAILED && intact(moved, LEN, 2) && zeros(moved + LEN, MB / 2));
	fill(moved, LEN + MB / 2, 3);
	CHECK(intact(moved, LEN + MB / 2, 3));
	/* And no more than that. */
	CHECK(mremap(moved, LEN + MB / 2, LEN + 4 * MB, MREMAP_MAYMOVE) == MAP_FAILED && errno == ENOMEM);
	CHECK(intact(moved, LEN + MB / 2, 3));
}

/* Memory that was never sealed, with no room left but for what it grows by: none for what an answer takes besides. */
static void grows_alone(int resource, const char *used)
{
	char *r = map_alone(MB, RW, MAP_PRIVATE);
	CHECK(r && mmap(r + MB, PAGE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) == r + MB);
	fill(r, MB, 4);
	struct rlimit limit = {RLIM_INFINITY, RLIM_INFINITY};
	limit.rlim_cur = status_kb(used) * 1024 + 2 * MB + 16 * PAGE;
	CHECK(setrlimit(resource, &limit) == 0);
	char *moved = mremap(r, MB, 3 * MB, MREMAP_MAYMOVE);
	CHECK(moved != MAP_FAILED && intact(moved, MB, 4) && zeros(moved + MB, 2 * MB));
}

static void grows_in_each_limit(void)
{
	IN_CLONE
		grows_alone(RLIMIT_AS, "VmSize");
	IN_CLONE
		grows_alone(RLIMIT_DATA, "VmData");
}

int main(void)
{
	p = memory(LEN, 1);
	q = memory(LEN, 2);
	IN_CLONE {
		grows(); /* plain */
	}
	grows_in_each_limit(); /* plain */
	seal();
	CHECK(all_sealed(q, LEN));
	IN_CLONE
		grows();
	grows_in_each_limit();
}
