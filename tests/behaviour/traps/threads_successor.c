/* Threads that write, start their successor and end, all the time: one that is gone before it can be stopped has left another behind, which is
   found by the kernel's count of threads. No write is lost in a process sealed meanwhile.
   env: FLASHFORK_THREADS=stop */

#define BLOCKS 16
#define TURNS 15

static char *memory_of_all;
static volatile int over, ended;
static uint64_t generations;

static void *live(void *none)
{
	pthread_attr_t attributes;
	pthread_t next;
	for (int block = 0; block < BLOCKS; block++)
		++*(volatile uint64_t *)(memory_of_all + (size_t)block * 2 * MB);
	generations++;
	if (getenv("FLASHFORK_LAB"))
		usleep(5000); /* at an emulator's speed none would be caught alive */
	if (over) {
		ended = 1;
		return none;
	}
	CHECK(pthread_attr_init(&attributes) == 0 && pthread_attr_setstacksize(&attributes, 64 * 1024) == 0);
	CHECK(pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED) == 0);
	while (pthread_create(&next, &attributes, live, none) != 0)
		usleep(100);
	return none;
}

int main(void)
{
	memory_of_all = memory(BLOCKS * 2 * MB, 1);
	for (int block = 0; block < BLOCKS; block++)
		*(uint64_t *)(memory_of_all + (size_t)block * 2 * MB) = 0;
	live(NULL);
	/* A seal may be refused, where threads come faster than they can be stopped. */
	for (size_t turn = 0; again(turn, TURNS); turn++) {
		call_seal();
		if (in_clone())
			_exit(0);
		flashfork_preload_unseal();
	}
	over = 1;
	while (!ended)
		usleep(1000);
	for (int block = 0; block < BLOCKS; block++)
		CHECK(*(uint64_t *)(memory_of_all + (size_t)block * 2 * MB) == generations);
}
