/* MADV_GUARD_INSTALL in sealed memory: a guard stays one after discards, in clones, after a move, a seal and an unseal, and all other
   pages are what they were. madvise(2), Linux 6.13; 6.15 for memory of files. */
#include "../beside_plain.h"

static void with(char *p)
{
	NOTE_CALL(madvise(p + MB, PAGE, MADV_GUARD_INSTALL));
	note_child(p + MB);
	note_discard(p, MB, MADV_DONTNEED);
	note_child(p + MB);
	NOTE_CALL(madvise(p + MB - PAGE, 3 * PAGE, MADV_DONTNEED));
	note(zeros(p + MB - PAGE, PAGE) && zeros(p + MB + PAGE, PAGE));
	note_child(p + MB);
	note(*(uint64_t *)(p + MB + 2 * PAGE) == pattern((MB + 2 * PAGE) / 8, 1));
	char *at = mremap(p, LEN, LEN, MREMAP_MAYMOVE | MREMAP_FIXED, map_alone(LEN, RW, MAP_PRIVATE));
	note(at != MAP_FAILED);
	call_seal();
	note_child(at + MB);
	flashfork_preload_unseal();
	note_child(at + MB);
	note(*(uint64_t *)(at + MB + 2 * PAGE) == pattern((MB + 2 * PAGE) / 8, 1));
	NOTE_CALL(madvise(at + MB, PAGE, MADV_GUARD_REMOVE));
	note(zeros(at + MB, PAGE));
	note_child(at + MB);
	CHECK(mremap(at, LEN, LEN, MREMAP_MAYMOVE | MREMAP_FIXED, p) == p);
	/* For whoever comes next. */
	fill(p, LEN, 1);
	call_seal();
}

int main(void)
{
	char *probe = memory(PAGE, 1);
	if (madvise(probe, PAGE, MADV_GUARD_INSTALL) != 0)
		SKIP("this kernel has no MADV_GUARD_INSTALL (Linux 6.13)");
	CHECK(munmap(probe, PAGE) == 0);
	return same_as_plain(with);
}
