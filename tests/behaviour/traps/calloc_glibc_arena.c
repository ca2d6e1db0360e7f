/* calloc after purges in a thread's arena, glibc's malloc: its heaps shrink with MADV_DONTNEED from inside libc, which no shim sees,
   and calloc must not take what comes back for zeros. arena.c, shrink_heap. */

#define BLOCKS 200
#define LEN (100ul * 1024)
static void *blocks[BLOCKS];

static void *allocate(void *unused)
{
	for (int i = 0; i < BLOCKS; i++)
		memset(blocks[i] = malloc(LEN), 0x5a, LEN);
	return unused;
}

static void *free_and_calloc(void *unused)
{
	for (int turn = 0; turn < 3; turn++) {
		for (int i = 0; i < BLOCKS; i++)
			free(blocks[i]);
		malloc_trim(0);
		for (int i = 0; i < BLOCKS; i++) {
			blocks[i] = calloc(1, LEN);
			CHECK(zeros(blocks[i], LEN));
			memset(blocks[i], 0x5b, LEN);
		}
	}
	return unused;
}

static void in_thread(void *(*work)(void *))
{
	pthread_t thread;
	CHECK(pthread_create(&thread, NULL, work, NULL) == 0 && pthread_join(thread, NULL) == 0);
}

int main(void)
{
	mallopt(M_MMAP_THRESHOLD, MB);
	in_thread(allocate);
	seal();
	CHECK(all_sealed(blocks[BLOCKS / 2], LEN));
	in_thread(free_and_calloc);
}
