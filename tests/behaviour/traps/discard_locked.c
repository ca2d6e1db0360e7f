/* mlock of sealed memory, then a discard: EINVAL, and the bytes stay; MADV_DONTNEED_LOCKED gives zeros and the lock holds.
   mlock(2), madvise(2). */
#include "../beside_plain.h"

static void with(char *p)
{
	long before = status_kb("VmLck");
	NOTE_CALL(mlock(p + MB, MB));
	NOTE_CALL(madvise(p + MB, MB, MADV_DONTNEED));
	NOTE_CALL(madvise(p + MB, MB, MADV_FREE));
	note(*(uint64_t *)(p + MB) == pattern(MB / 8, 1));
	NOTE_CALL(madvise(p, 2 * MB, MADV_DONTNEED));
	note(zeros(p, MB) && *(uint64_t *)(p + MB) == pattern(MB / 8, 1));
	note_discard(p + MB + PAGE, PAGE, MADV_DONTNEED_LOCKED);
	note(*(uint64_t *)(p + MB) == pattern(MB / 8, 1));
	note_flags(p + MB + PAGE);
	note(status_kb("VmLck") - before);
	NOTE_CALL(munlock(p, 2 * MB));
	NOTE_CALL(mlock2(p + 2 * MB, MB, MLOCK_ONFAULT));
	note_flags(p + 2 * MB);
	NOTE_CALL(madvise(p + 2 * MB, MB, MADV_DONTNEED));
	note_discard(p + 2 * MB, MB, MADV_DONTNEED_LOCKED);
	note_flags(p + 2 * MB);
	note(status_kb("VmLck") - before);
	NOTE_CALL(munlock(p, 4 * MB));
	note_discard(p, 4 * MB, MADV_DONTNEED);
}

int main(void)
{
	if (mlock(smaps(with, "VmFlags"), 1) != 0)
		SKIP("RLIMIT_MEMLOCK allows no lock");
	munlockall();
	return same_as_plain(with);
}
