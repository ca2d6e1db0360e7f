/* Threads: only the one that forks is in the clone; a lock that another held stays locked for ever. pthread_atfork(3), fork(2).
   clone: missing
   do: fork where no lock is held, or take the locks in pthread_atfork; start threads in the clone */

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static pthread_barrier_t barrier;

static void *holder(void *none)
{
	pthread_mutex_lock(&mutex);
	pthread_barrier_wait(&barrier);
	pthread_barrier_wait(&barrier);
	pthread_mutex_unlock(&mutex);
	return none;
}

int main(void)
{
	pthread_t thread;
	seal();
	CHECK(pthread_barrier_init(&barrier, NULL, 2) == 0 && pthread_create(&thread, NULL, holder, NULL) == 0);
	pthread_barrier_wait(&barrier);
	IN_CLONE
		CHECK(pthread_mutex_trylock(&mutex) == EBUSY && number_in("/proc/self/status", "Threads") == 1);
	pthread_barrier_wait(&barrier);
	CHECK(pthread_join(thread, NULL) == 0 && pthread_mutex_trylock(&mutex) == 0);
}
