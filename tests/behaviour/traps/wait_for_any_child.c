/* A thread that waits for any child at all is told of none that the program never made, while others grow, move and discard sealed
   memory. waitpid(2), __WALL, __WCLONE. */

static char *p[2];
static volatile int over;

static void *waits(void *options)
{
	while (!over) {
		int status;
		CHECK(waitpid(-1, &status, *(int *)options) == -1 && errno == ECHILD);
	}
	return NULL;
}

static void *calls(void *at)
{
	char **mine = at;
	for (size_t turn = 0; turn < often(300); turn++) {
		char *moved = mremap(*mine, 4 * MB, 4 * MB + PAGE, MREMAP_MAYMOVE);
		CHECK(moved != MAP_FAILED && intact(moved, PAGE, 1) && zeros(moved + 4 * MB, PAGE));
		CHECK(munmap(moved + 4 * MB, PAGE) == 0);
		*mine = moved;
		CHECK(madvise(*mine + (turn % 500 + 1) * PAGE, PAGE, MADV_DONTNEED) == 0);
	}
	return NULL;
}

int main(void)
{
	static int options[2] = {__WALL, __WCLONE | WNOHANG};
	pthread_t waiter[2], caller[2];
	for (int i = 0; i < 2; i++)
		p[i] = memory(4 * MB, 1);
	seal();
	CHECK(all_sealed(p[0], 4 * MB));
	for (int i = 0; i < 2; i++)
		CHECK(pthread_create(&waiter[i], NULL, waits, &options[i]) == 0 && pthread_create(&caller[i], NULL, calls, &p[i]) == 0);
	for (int i = 0; i < 2; i++)
		JOIN(caller[i]);
	over = 1;
	for (int i = 0; i < 2; i++)
		JOIN(waiter[i]);
}
