/* Memory that grows after a seal is charged as it would be without one: RLIMIT_DATA holds where it moves, and a mapping made with
   MAP_NORESERVE may grow beyond what the machine could ever hold. getrlimit(2), mmap(2). */

#define LEN (16 * MB)
#define HUGE_LEN (1ul << 40)

static char *unreserved(void)
{
	char *p = map_alone(LEN, RW, MAP_PRIVATE | MAP_NORESERVE);
	CHECK(p != NULL);
	fill(p, LEN, 1);
	return p;
}

/* errno, or 0 where it grew as it should. */
static int grow(char *p, size_t len)
{
	errno = 0;
	char *moved = mremap(p, LEN, len, MREMAP_MAYMOVE);
	if (moved == MAP_FAILED) {
		CHECK(intact(p, LEN, 1));
		return errno;
	}
	CHECK(intact(moved, LEN, 1) && zeros(moved + LEN, PAGE) && zeros(moved + len - PAGE, PAGE));
	CHECK(munmap(moved, len) == 0);
	return 0;
}

int main(void)
{
	char *sealed[2] = {unreserved(), memory(LEN, 1)};
	int plain[2] = {grow(unreserved(), HUGE_LEN), grow(memory(LEN, 1), HUGE_LEN)};
	char *limited = memory(LEN, 1);
	seal();
	CHECK(all_sealed(sealed[0], LEN) && all_sealed(sealed[1], LEN));
	for (int i = 0; i < 2; i++)
		CHECK(grow(sealed[i], HUGE_LEN) == plain[i]);
	/* Nothing may be mapped behind it: it has to move. */
	CHECK(mmap(limited + LEN, PAGE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) != MAP_FAILED);
	rlim_t data = (rlim_t)status_kb("VmData") << 10;
	struct rlimit limit = {data + 32 * MB, RLIM_INFINITY};
	CHECK(setrlimit(RLIMIT_DATA, &limit) == 0);
	CHECK(grow(limited, LEN + 64 * MB) == ENOMEM);
	CHECK(grow(limited, LEN + 16 * MB) == 0);
}
