/* The main thread has ended and one other goes on: that is a process with one thread. Its memory is sealed, wiped in clones if it
   asks for that, and made anonymous again, though threads may not be stopped. What it gives advice for, locks or guards after the
   seal becomes anonymous by that, too. pthread_exit(3), madvise(2), mlock(2). */

#define LEN (8 * MB)
static char *p;
static pthread_t main_thread;

/* Whether the memory is anonymous once it has the property. */
static void with_properties(char *at)
{
	CHECK(madvise(at, MB / 4, MADV_DONTDUMP) == 0 && sealed_bytes(at, MB / 4) == 0);
	at += MB / 2;
	CHECK(madvise(at, MB / 4, MADV_DONTFORK) == 0 && sealed_bytes(at, MB / 4) == 0);
	at += MB / 2;
	/* Not every kernel has these two. */
	CHECK(madvise(at, MB / 4, MADV_MERGEABLE) == 0 || errno == EINVAL);
	CHECK(sealed_bytes(at, MB / 4) == 0);
	char *last = p + LEN - PAGE;
	CHECK(madvise(last, PAGE, MADV_GUARD_INSTALL) == 0 || errno == EINVAL);
	CHECK(sealed_bytes(last, PAGE) == 0);
	at += MB / 2;
	/* RLIMIT_MEMLOCK may allow none. */
	CHECK(mlock(at, PAGE) == 0 || errno == EPERM || errno == ENOMEM);
	CHECK(sealed_bytes(at, PAGE) == 0);
}

static void *rest_of_the_program(void *unused)
{
	JOIN(main_thread);
	seal();
	/* What lies near the stack stays as it is. */
	char *half = p + LEN / 2;
	CHECK(all_sealed(half, LEN / 2) && intact(p, LEN, 1));
	CHECK(madvise(half, 2 * MB, MADV_WIPEONFORK) == 0 && sealed_bytes(half, 2 * MB) == 0);
	IN_CLONE
		CHECK(intact(p, LEN / 2, 1) && zeros(half, 2 * MB));
	with_properties(half + 2 * MB);
	/* The last page may be a guard. */
	CHECK(intact(p, LEN - PAGE, 1));
	unseal();
	CHECK(sealed_bytes(ALL) == 0 && intact(p, LEN - PAGE, 1));
	_exit(0);
	return unused;
}

int main(void)
{
	pthread_t other;
	p = memory(LEN, 1);
	main_thread = pthread_self();
	START(&other, rest_of_the_program, NULL);
	pthread_exit(NULL);
}
