/* move_pages(2) says of each page on which node it is; of sealed pages that nothing has touched since the seal, in the process and
   in its clones, as of anonymous ones; and of those that were never touched that there are none. */
#include "../beside_plain.h"

/* Written, read only, never touched, discarded. */
static void ask(char *p)
{
	char *fresh = map_alone(MB, RW, MAP_PRIVATE);
	CHECK(madvise(p + MB, PAGE, MADV_DONTNEED) == 0);
	p[PAGE] = 1;
	void *pages[] = {p, p + PAGE, p + 2 * PAGE + 1, p + MB, p + LEN - 1, fresh, NULL, (char *)-PAGE};
	int status[8] = {99, 99, 99, 99, 99, 99, 99, 99};
	NOTE_CALL(syscall(SYS_move_pages, 0, 8, pages, NULL, status, 0));
	for (int i = 0; i < 8; i++)
		note(status[i]);
	NOTE_CALL(syscall(SYS_move_pages, getpid(), 1, pages + 2, NULL, status, 0));
	note(status[0]);
	NOTE_CALL(syscall(SYS_move_pages, 0, 4, NULL, NULL, status, 0));
	CHECK(munmap(fresh, MB) == 0);
}

int main(void)
{
	void *page = memory(4 * MB, 1);
	int status = -1;
	if (syscall(SYS_move_pages, 0, 1, &page, NULL, &status, 0) != 0)
		SKIP("no move_pages(2) here: %s", strerror(errno));
	return same_as_plain(ask);
}
