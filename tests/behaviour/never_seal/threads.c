/* A process with other threads: what they write between copy and remap would be lost. Refused until they are gone. */

static pthread_barrier_t begun, end;

static void *wait_there(void *arg)
{
	pthread_barrier_wait(&begun);
	pthread_barrier_wait(&end);
	return arg;
}

static void *end_at_once(void *arg)
{
	return arg;
}

int main(void)
{
	pthread_t thread;
	pthread_barrier_init(&begun, NULL, 2);
	pthread_barrier_init(&end, NULL, 2);
	START(&thread, wait_there, NULL);
	pthread_barrier_wait(&begun);
	refused();
	pthread_barrier_wait(&end);
	JOIN(thread);
	seal();
	/* Joined is gone, even where the kernel takes a moment longer to forget the thread. */
	for (int turn = 0; turn < 50; turn++) {
		CHECK(pthread_create(&thread, NULL, end_at_once, NULL) == 0 && pthread_join(thread, NULL) == 0);
		CHECK(call_seal() == 0);
	}
}
