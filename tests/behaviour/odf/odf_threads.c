/* A process with threads, which can't be sealed, forks on demand while they write: every byte is the writer's, and libc's
   locks and fork handlers work in the clone. pthread_atfork(3).
   env: FLASHFORK_ENGINE=odf */
#include "odf.h"

#define THREADS 3
static char *p[THREADS];
static volatile int over, handled;

static void child(void)
{
	handled++;
}

static void *work(void *arg)
{
	char *own = p[(size_t)arg];
	uint64_t turn = 2;
	do {
		fill(own, 4 * MB, ++turn);
		CHECK(intact(own, 4 * MB, turn));
		free(malloc(1000));
	} while (!over);
	fill(own, 4 * MB, 7);
	return NULL;
}

int main(void)
{
	pthread_t thread[THREADS];
	must_be_on_demand();
	char *quiet = tables(8 * MB, 9);
	CHECK(pthread_atfork(NULL, NULL, child) == 0);
	for (size_t i = 0; i < THREADS; i++) {
		p[i] = tables(4 * MB, 1);
		START(&thread[i], work, (void *)i);
	}
	long before = counter("odf_share");
	for (int turn = 0; turn < 10; turn++)
		IN_CLONE {
			char *own = malloc(100000);
			CHECK(handled == 1 && own != NULL);
			CHECK(intact(quiet, 8 * MB, 9));
			fill(quiet, 8 * MB, 8);
		}
	CHECK(counter("odf_share") > before);
	over = 1;
	for (size_t i = 0; i < THREADS; i++)
		CHECK(pthread_join(thread[i], NULL) == 0 && intact(p[i], 4 * MB, 7));
	CHECK(intact(quiet, 8 * MB, 9));
}
