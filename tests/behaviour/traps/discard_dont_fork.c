/* MADV_DONTFORK for sealed memory, then a discard: a child still finds nothing there. madvise(2). */
#include "../beside_plain.h"

static void with(char *p)
{
	NOTE_CALL(madvise(p, 2 * MB, MADV_DONTFORK));
	note_discard(p, MB, MADV_DONTNEED);
	note_flags(p);
	note_flags(p + MB);
	note_flags(p + 3 * MB);
	note_child(p);
	note(intact(p + MB, 0, 1) && *(uint64_t *)(p + MB) == pattern(MB / 8, 1));
	NOTE_CALL(madvise(p, 2 * MB, MADV_DOFORK));
	note_child(p);
}

int main(void)
{
	return same_as_plain(with);
}
