/* A process with another thread is refused with EBUSY and words; without it the seal works. */
#include "check.h"
#include <pthread.h>
#include <unistd.h>

static int pipes[2];

static void *wait_for_end(void *arg)
{
	char c;

	(void)arg;
	CHECK(read(pipes[0], &c, 1) == 0);
	return NULL;
}

int main(void)
{
	pthread_t other;
	unsigned char *p = warm();

	CHECK(pipe(pipes) == 0);
	CHECK(pthread_create(&other, NULL, wait_for_end, NULL) == 0);
	errno = 0;
	CHECK(flashfork_seal(NULL, NULL) == -1 && errno == EBUSY);
	CHECK(strstr(flashfork_last_error(), "other threads"));
	CHECK(strstr(flashfork_last_error(), "seal before other threads start"));
	CHECK(!strchr(flashfork_last_error(), '\n'));
	close(pipes[1]);
	CHECK(pthread_join(other, NULL) == 0);
	CHECK(flashfork_seal(NULL, NULL) == 0);
	CHECK(p[12345] == 7);
}
