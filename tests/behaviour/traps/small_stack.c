/* Calls on sealed memory from stacks as small as coroutines and signal handlers have them: they need no more than 4 KB, most of it for
   vector registers, whatever they have to do; nor does a fork that seals first. sigaltstack(2), makecontext(3).
   cflags: -Wl,-z,now
   env: FLASHFORK_ENGINE=seal */
#include <ucontext.h>

#define STACK (256 * 1024ul)
#define PAINT 0x5a
#define MOST 4096

static ucontext_t back, there;
static void (*what)(char *);
static char *p, *stack;

static void run(void)
{
	what(p);
	setcontext(&back);
}

/* Bytes of stack that a function takes. */
static size_t taken(void (*f)(char *))
{
	memset(stack, PAINT, STACK);
	CHECK(getcontext(&there) == 0);
	there.uc_stack.ss_sp = stack;
	there.uc_stack.ss_size = STACK;
	there.uc_link = NULL;
	what = f;
	makecontext(&there, run, 0);
	CHECK(swapcontext(&back, &there) == 0);
	size_t untouched = 0;
	while (untouched < STACK && stack[untouched] == PAINT)
		untouched++;
	return STACK - untouched;
}

static void nothing(char *q) { CHECK(q != NULL); }
static void discard_page(char *q) { CHECK(madvise(q + 5 * PAGE, PAGE, MADV_DONTNEED) == 0); }
static void discard_much(char *q) { CHECK(madvise(q + 2 * MB, 4 * MB, MADV_DONTNEED) == 0); }
static void grow(char *q) { CHECK(mremap(q, 16 * MB, 20 * MB, MREMAP_MAYMOVE) != MAP_FAILED); }
static void move(char *q) { CHECK(mremap(q, 16 * MB, 16 * MB, MREMAP_MAYMOVE | MREMAP_DONTUNMAP, NULL) != MAP_FAILED); }
static void dont_fork(char *q) { CHECK(madvise(q + 9 * MB, PAGE, MADV_DONTFORK) == 0); }
static void lock(char *q) { mlock(q + 9 * MB, PAGE); }
static void executable(char *q) { CHECK(mprotect(q + 9 * MB, PAGE, PROT_READ | PROT_EXEC) == 0); }
static void device(char *q) { CHECK(q && ioctl(-1, 0, 0) == -1); }
static void ring(char *q) { CHECK(q && syscall(SYS_io_uring_setup, 0, NULL) == -1); }
static void pipe_pages(char *q) { CHECK(vmsplice(-1, &(struct iovec){q, PAGE}, 1, 0) == -1); }

static void fork_once(char *q)
{
	pid_t pid = fork();
	if (pid == 0)
		_exit(q != NULL ? 0 : 1);
	CHECK(wait_for(pid) == 0);
}

static void at_most(size_t most, const char *called, size_t bytes)
{
	if (bytes <= most)
		return;
	fprintf(stderr, "%s takes %zu bytes\n", called, bytes);
	_exit(1);
}

static void measure(const char *called, void (*f)(char *))
{
	if (!in_clone())
		return;
	size_t before = taken(nothing);
	at_most(MOST, called, taken(f) - before);
	_exit(0);
}

int main(void)
{
	stack = map_alone(STACK, RW, MAP_PRIVATE);
	p = memory(16 * MB, 1);
	CHECK(stack != NULL);
	size_t first = taken(fork_once), second = taken(fork_once);
	CHECK(all_sealed(p, 16 * MB));
	at_most(MOST, "a fork that seals", first);
	at_most(MOST, "a fork", second);
	seal();
	CHECK(all_sealed(p, 16 * MB));
#define MEASURE(f) measure(#f, f)
	MEASURE(discard_page);
	MEASURE(discard_much);
	MEASURE(grow);
	MEASURE(move);
	MEASURE(dont_fork);
	MEASURE(lock);
	MEASURE(executable);
	MEASURE(device);
	MEASURE(ring);
	MEASURE(pipe_pages);
}
