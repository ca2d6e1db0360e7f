/* A range on a part of which the program asked for something is more than one mapping without any seal: mremap says EFAULT, as for
   plain memory; and grows one for all of which the same was asked. mremap(2). */
#include "../beside_plain.h"

static void parts(char *p)
{
	const size_t len = 12 * MB;
	NOTE_CALL(madvise(p + 4 * MB, 4 * MB, MADV_DONTDUMP));
	note(mremap(p, len, len + 64 * PAGE, MREMAP_MAYMOVE) == MAP_FAILED);
	note(errno);
	NOTE_CALL(madvise(p, 4 * MB, MADV_DONTDUMP));
	NOTE_CALL(madvise(p + 8 * MB, 4 * MB, MADV_DONTDUMP));
	char *moved = mremap(p, len, len + 64 * PAGE, MREMAP_MAYMOVE);
	note(moved != MAP_FAILED);
	if (moved == MAP_FAILED)
		return;
	CHECK(intact(moved, 4 * MB, 1) && zeros(moved + 4 * MB, 4 * MB) && intact(moved + 8 * MB, 4 * MB, 2));
	CHECK(zeros(moved + len, 64 * PAGE));
	note_flags(moved);
	note_flags(moved + 6 * MB);
	note_flags(moved + len);
	NOTE_CALL(mlock(moved, 4 * MB));
	note(mremap(moved, len, len + 128 * PAGE, MREMAP_MAYMOVE) == MAP_FAILED);
	note(errno);
	NOTE_CALL(munlock(moved, len));
}

int main(void)
{
	char *plain = sparse_in_the_middle(), *sealed = sparse_in_the_middle();
	parts(plain);
	int count = notes;
	long plainly[256];
	memcpy(plainly, noted, sizeof noted);
	notes = 0;
	seal();
	CHECK(sealed_bytes(sealed, 12 * MB) == 8 * MB);
	parts(sealed);
	CHECK(notes == count);
	for (int i = 0; i < count; i++)
		if (noted[i] != plainly[i]) {
			fprintf(stderr, "note %d of %d: plain %ld, sealed %ld\n", i, count, plainly[i], noted[i]);
			return 1;
		}
}
