/* Another process writes into this one's memory all the time while sealed memory becomes anonymous again: every write that succeeded
   is found afterwards, as in a process that does none of this. */
#include "foreign_writes.h"

#define LEN (24 * MB)

int main(void)
{
	char *p = memory(LEN, 1);
	struct writer *w = foreign_writer(p, LEN);
	for (size_t round = 0; round < often(12); round++) {
		CHECK(call_seal() == 0);
		let_write(w, often(4000));
		CHECK(flashfork_preload_unseal() == 0);
		CHECK(lost_words(w, p, LEN, 1) == 0);
		CHECK(sealed_bytes(p, LEN) == 0);
	}
	w->wanted = -1;
}
