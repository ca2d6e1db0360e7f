/* MADV_COLLAPSE answers EINVAL on a private file mapping that was written to; sealed memory becomes anonymous first, so that it
   is collapsed as plain memory is, in parents and clones, with its bytes. madvise(2). */
#include "../beside_plain.h"

/* Free huge pages are nobody's promise: without them another error comes. */
static void note_collapse(char *p, size_t len)
{
	note(madvise(p, len, MADV_COLLAPSE) == 0 || errno != EINVAL);
}

static void written(char *p)
{
	fill(p + MB, MB, 2);
	note_collapse(p, LEN);
	note(intact(p, MB, 1) && intact(p + MB, MB, 2));
	fill(p + 3 * MB, PAGE, 3);
	note_child(p);
	note(intact(p + 3 * MB, PAGE, 3));
}

/* With one thread a discarded page leaves 2 MB around it in one piece. */
static void discarded(void)
{
	char *p = memory(LEN, 1);
	seal();
	CHECK(madvise(p + PAGE, PAGE, MADV_DONTNEED) == 0);
	p[3 * MB] = 1;
	CHECK(madvise(p, LEN, MADV_COLLAPSE) == 0 || errno != EINVAL);
	CHECK(intact(p, PAGE, 1) && zeros(p + PAGE, PAGE));
}

/* By its own process descriptor, which the kernel takes for all advice since Linux 6.13. */
static void of_the_process(char *p)
{
	struct { char *base; size_t len; } part = {p, LEN};
	int own = (int)syscall(SYS_pidfd_open, getpid(), 0);
	CHECK(own >= 0);
	if (syscall(SYS_process_madvise, own, NULL, 0, MADV_DONTNEED, 0) != 0)
		return;
	p[0] = 7;
	long done = syscall(SYS_process_madvise, own, &part, 1, MADV_COLLAPSE, 0);
	note(done == (long)LEN || (done < 0 && errno != EINVAL));
	CHECK(close(own) == 0);
}

static void what_is_refused(char *p)
{
	NOTE_CALL(madvise(p + 1, MB, MADV_COLLAPSE));
	NOTE_CALL(madvise(p, 0, MADV_COLLAPSE));
	CHECK(munmap(p + 2 * MB, 2 * MB) == 0);
	p[0] = 7;
	errno = 0;
	note(madvise(p, LEN, MADV_COLLAPSE));
	note(errno != EINVAL);
}

int main(void)
{
	static void (*const cases[])(char *) = {written, of_the_process, what_is_refused};
	if (madvise(memory(4 * MB, 1), 4 * MB, MADV_COLLAPSE) != 0 && errno == EINVAL)
		SKIP("the kernel doesn't collapse memory (MADV_COLLAPSE, Linux 6.1)");
	for (size_t c = 0; c < sizeof cases / sizeof *cases; c++)
		if (in_clone())
			_exit(same_as_plain(cases[c]));
	discarded();
}
