/* Sealed data of libraries in a process that has threads by then: their files show through a discard by one while
   another writes to its neighbour, and nothing that it writes is lost.
   cflags: -ldl */
#include "../libraries.h"

static struct library *all;
static volatile int over;

static void *write_on(void *count)
{
	volatile uint64_t *word = (volatile uint64_t *)(data(&all[1]) + PAGE);
	while (!over)
		++*word, ++*(uint64_t *)count;
	return NULL;
}

int main(void)
{
	all = load_libraries();
	seal();
	pthread_t other;
	uint64_t count = 0, begin = *(uint64_t *)(data(&all[1]) + PAGE);
	CHECK(is_sealed(&all[1]) && pthread_create(&other, NULL, write_on, &count) == 0);
	/* Of the other thread's library a page beside the one it writes to. */
	CHECK(madvise(data(&all[1]), PAGE, MADV_DONTNEED) == 0 && as_in_file(&all[1], 1, 0, PAGE));
	CHECK(madvise(data(&all[2]), DATA_LEN, MADV_DONTNEED) == 0 && as_in_file(&all[2], 2, 0, DATA_LEN));
	CHECK(madvise(data(&all[1]), PAGE, MADV_WIPEONFORK) == -1 && errno == EINVAL);
	IN_CLONE {
		CHECK(madvise(data(&all[3]), DATA_LEN, MADV_DONTNEED) == 0 && as_in_file(&all[3], 3, 0, DATA_LEN));
		CHECK(as_written(&all[4], 4));
	}
	over = 1;
	JOIN(other);
	CHECK(*(uint64_t *)(data(&all[1]) + PAGE) == begin + count && relocated(&all[1], 1));
	for (int i = 3; i < LIBRARIES; i++)
		CHECK(as_written(&all[i], (uint64_t)i));
}
