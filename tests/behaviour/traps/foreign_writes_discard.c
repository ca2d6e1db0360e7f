/* Another process writes into this one's memory all the time while the program discards single pages of it: every write to another
   page that succeeded is found afterwards, as in plain memory. */
#include "foreign_writes.h"

#define LEN (24 * MB)
/* Bytes of which the first page is discarded. */
#define APART (512 * 1024)

/* Whether a page that is discarded is written to before or after that nobody can tell: it is left out below. */
static void discard(char *p)
{
	for (size_t at = 0; at < LEN; at += APART)
		CHECK(madvise(p + at, PAGE, MADV_DONTNEED) == 0);
}

static size_t lost(struct writer *w, char *p)
{
	size_t words = 0;
	lost_words(w, p, LEN, 1);
	for (size_t i = 0; i < LEN / 8; i++)
		if (i * 8 % APART >= PAGE)
			words += ((uint64_t *)p)[i] != (w->last[i] ? w->last[i] : pattern(i, 1));
	return words;
}

int main(void)
{
	char *p = memory(LEN, 1);
	struct writer *w = foreign_writer(p, LEN);
	let_write(w, often(4000));
	discard(p);
	CHECK(lost(w, p) == 0); /* plain */
	for (size_t round = 0; round < often(12); round++) {
		CHECK(call_seal() == 0 && all_sealed(p, LEN));
		let_write(w, often(4000));
		discard(p);
		CHECK(lost(w, p) == 0);
	}
	w->wanted = -1;
}
