/* Another process writes into this one's memory all the time while what was only read is dropped from its page tables: every write
   that succeeded is found afterwards, as in a process that does none of this. */
#include "foreign_writes.h"

#define LEN (24 * MB)

int main(void)
{
	char *p = memory(LEN, 1);
	struct writer *w = foreign_writer(p, LEN);
	CHECK(call_seal() == 0);
	for (size_t round = 0; round < often(60); round++) {
		if (round % 10 == 9) {
			w->wanted = 0;
			CHECK(call_seal() == 0); /* most pages are the memfd's again */
		}
		let_write(w, often(100));
		for (size_t turn = 0; turn < 5; turn++) {
			for (size_t at = 0; at < LEN; at += PAGE)
				*(volatile char *)(p + at);
			CHECK(flashfork_preload_drop_refills() == 0);
		}
		CHECK(lost_words(w, p, LEN, 1) == 0);
	}
	w->wanted = -1;
}
