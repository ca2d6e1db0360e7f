/* Memory grows where it is while another thread is inside such calls: what the engine maps for a call of one thread does not lie in the
   gap that the other has just made. mremap(2). */

static char *blocked;
static volatile int over;

static void *calls(void *unused)
{
	while (!over)
		CHECK(mremap(blocked, 8 * MB, 16 * MB, 0) == MAP_FAILED);
	return unused;
}

int main(void)
{
	pthread_t caller[2];
	char *room = map_alone(64 * MB, RW, MAP_PRIVATE);
	blocked = memory(8 * MB, 1);
	CHECK(room != NULL && mmap(blocked + 8 * MB, PAGE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) != MAP_FAILED);
	fill(room, 64 * MB, 2);
	seal();
	for (int i = 0; i < 2; i++)
		START(&caller[i], calls, NULL);
	for (size_t turn = 0; turn < often(100); turn++) {
		CHECK(munmap(room + 8 * MB, 8 * MB) == 0);
		CHECK(mremap(room, 8 * MB, 16 * MB, 0) == room && zeros(room + 15 * MB, MB));
		memset(room + 8 * MB, 1, 8 * MB);
	}
	over = 1;
	for (int i = 0; i < 2; i++)
		JOIN(caller[i]);
	CHECK(intact(room, 8 * MB, 2) && intact(blocked, 8 * MB, 1));
}
