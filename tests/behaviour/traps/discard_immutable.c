/* mseal of sealed memory, then a discard: writable memory is zeros afterwards, read-only memory refuses (EPERM) and keeps its bytes.
   mseal(2), Linux 6.10. */
#include "../beside_plain.h"

#ifndef SYS_mseal
#define SYS_mseal 462
#endif

static void with(char *p)
{
	NOTE_CALL(syscall(SYS_mseal, p, MB, 0));
	note_discard(p + 3 * PAGE, 5 * PAGE, MADV_DONTNEED);
	note_flags(p + 3 * PAGE);
	note(*(uint64_t *)p == pattern(0, 1));
	NOTE_CALL(mprotect(p, PAGE, PROT_READ));
	NOTE_CALL(munmap(p, PAGE));
	NOTE_CALL(mprotect(p + 2 * MB, MB, PROT_READ));
	NOTE_CALL(syscall(SYS_mseal, p + 2 * MB, MB, 0));
	NOTE_CALL(madvise(p + 2 * MB, MB, MADV_DONTNEED));
	note(*(uint64_t *)(p + 2 * MB) == pattern(2 * MB / 8, 1));
	note_discard(p, MB, MADV_DONTNEED);
	note_child(p);
}

int main(void)
{
	if (syscall(SYS_mseal, NULL, 0, 0) != 0)
		SKIP("this kernel has no mseal (Linux 6.10)");
	return same_as_plain(with);
}
