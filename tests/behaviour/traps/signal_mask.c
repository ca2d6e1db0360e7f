/* Calls on memory in a process that was sealed leave the signal mask as it was, with one thread and with two, whether they succeed or
   not; and a handler that comes meanwhile finds the program's own stack, all of it. sigprocmask(2), madvise(2), mremap(2). */

static void same_mask(const char *after)
{
	sigset_t now;
	CHECK(sigprocmask(SIG_SETMASK, NULL, &now) == 0);
	for (int signal = 1; signal < NSIG; signal++)
		if (sigismember(&now, signal) != (signal == SIGUSR2)) {
			fprintf(stderr, "signal %d after %s\n", signal, after);
			_exit(1);
		}
}

#define CALL(call) (call, same_mask(#call))

static void all_calls(char *p)
{
	CALL(madvise(p, PAGE, MADV_DONTNEED));
	CALL(madvise(p + MB, PAGE, MADV_DONTFORK));
	CALL(madvise(p + MB, PAGE, MADV_DONTDUMP));
	CALL(madvise(p + MB, PAGE, MADV_MERGEABLE));
	CALL(madvise(p + MB, PAGE, MADV_WIPEONFORK));
	CALL(madvise(p + 2 * MB, PAGE, 102 /* MADV_GUARD_INSTALL */));
	CALL(madvise(p, PAGE, MADV_HUGEPAGE));
	CALL(madvise(p + 1, PAGE, MADV_DONTNEED));
	CALL(mlock(p, PAGE));
	CALL(munlock(p, PAGE));
	CALL(prctl(0x53564d41 /* PR_SET_VMA */, 0, p, PAGE, "name"));
	CALL(mremap(p + 6 * MB, 2 * MB, 4 * MB, MREMAP_MAYMOVE));
	CALL(mremap(p + 5 * MB, MB, MB / 2, 0));
	CALL(mremap(p + 5 * MB, MB, 1ul << 50, MREMAP_MAYMOVE));
	CALL(free(realloc(malloc(4 * MB), 16 * MB)));
	CALL(flashfork_preload_unseal());
	CALL(mremap(p + 4 * MB, MB, MB / 2, 0));
}

static volatile sig_atomic_t handled;

static void needs_much_stack(int signal)
{
	volatile char much[512 * 1024];
	for (size_t i = 0; i < sizeof much; i += PAGE)
		much[i] = (char)signal;
	handled++;
}

static void handlers_have_stack(char *p)
{
	struct itimerval every = {{0, 400}, {0, 400}}, never = {{0, 0}, {0, 0}};
	signal(SIGALRM, needs_much_stack);
	CHECK(setitimer(ITIMER_REAL, &every, NULL) == 0);
	int wanted = (int)often(120);
	for (size_t i = 0; handled < wanted; i++) {
		madvise(p + i % 500 * PAGE, PAGE, i % 2 ? MADV_DONTFORK : MADV_DONTNEED);
		char *moved = mremap(p + 4 * MB, MB, 2 * MB, MREMAP_MAYMOVE);
		CHECK(moved != MAP_FAILED && mremap(moved, 2 * MB, MB, MREMAP_MAYMOVE | MREMAP_FIXED, p + 4 * MB) == p + 4 * MB);
	}
	CHECK(setitimer(ITIMER_REAL, &never, NULL) == 0);
}

int main(void)
{
	int end[2];
	pthread_t other;
	sigset_t one;
	sigemptyset(&one);
	sigaddset(&one, SIGUSR2);
	CHECK(sigprocmask(SIG_SETMASK, &one, NULL) == 0);
	char *p = memory(8 * MB, 1);
	seal();
	same_mask("seal");
	for (int threads = 1; threads <= 2; threads++)
		IN_CLONE {
			if (threads == 2)
				make_other(&other, end);
			all_calls(p);
		}
	handlers_have_stack(p);
	same_mask("handlers");
}
