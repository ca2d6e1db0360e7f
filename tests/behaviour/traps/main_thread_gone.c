/* The main thread has ended by pthread_exit: /proc/self, which is its directory, shows no maps from then on, and no error. What is
   discarded is zero all the same, also where pages are discarded here and there as jemalloc's decay does, and memory that moves,
   grows or is locked keeps its bytes. pthread_exit(3), proc(5). */

#define LEN (8 * MB)
static char *p, *moving;
static pthread_t main_thread;

static size_t maps_of_the_process(void)
{
	char line[8192];
	size_t lines = 0;
	FILE *maps = fopen("/proc/self/maps", "re");
	CHECK(maps != NULL);
	while (fgets(line, sizeof line, maps))
		lines++;
	fclose(maps);
	return lines;
}

static void *rest_of_the_program(void *unused)
{
	JOIN(main_thread);
	/* Joined a moment before it lets go of its memory. */
	while (maps_of_the_process() != 0)
		usleep(1000);
	/* Every third page, then a run of them, then all. */
	for (size_t at = 0; at < often(LEN / 2); at += 3 * PAGE)
		CHECK(discard_zeros(p + at, PAGE));
	for (size_t at = PAGE; at < LEN / 2; at += 3 * PAGE)
		CHECK(*(uint64_t *)(p + at) == pattern(at / 8, 1));
	CHECK(madvise(p + LEN / 2, PAGE, MADV_FREE) == 0 || errno == EINVAL);
	CHECK(discard_zeros(p + LEN / 4, LEN / 2));
	IN_CLONE
		CHECK(discard_zeros(p, LEN));
	CHECK(discard_zeros(p, LEN));
	char *moved = mremap(moving, LEN, 2 * LEN, MREMAP_MAYMOVE);
	CHECK(moved != MAP_FAILED && intact(moved, LEN, 2) && zeros(moved + LEN, LEN));
	CHECK(discard_zeros(moved, 2 * LEN));
	_exit(0);
	return unused;
}

int main(void)
{
	pthread_t other;
	p = memory(LEN, 1);
	moving = memory(LEN, 2);
	seal();
	CHECK(all_sealed(p, LEN) && all_sealed(moving, LEN));
	main_thread = pthread_self();
	START(&other, rest_of_the_program, NULL);
	pthread_exit(NULL);
}
