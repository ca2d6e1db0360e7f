/* MADV_DONTDUMP for sealed memory, then a discard of all of it and of single pages: it stays out of core dumps. madvise(2), core(5). */
#include "../beside_plain.h"

static void with(char *p)
{
	NOTE_CALL(madvise(p + MB, 2 * MB, MADV_DONTDUMP));
	for (int i = 0; i < 4; i++)
		note_discard(p + MB + 3 * i * PAGE, PAGE, MADV_DONTNEED);
	note_flags(p + MB);
	note(*(uint64_t *)(p + MB + PAGE) == pattern((MB + PAGE) / 8, 1));
	note_discard(p, 4 * MB, MADV_DONTNEED);
	for (int i = 0; i < 4; i++)
		note_flags(p + i * MB);
}

int main(void)
{
	return same_as_plain(with);
}
