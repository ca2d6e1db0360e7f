/* Another process writes into this one's memory all the time (process_vm_writev, /proc/PID/mem) while it is sealed and sealed anew:
   every write that succeeded is found afterwards, as in a process that does none of this. */
#include "foreign_writes.h"

#define LEN (24 * MB)

int main(void)
{
	char *p = memory(LEN, 1);
	struct writer *w = foreign_writer(p, LEN);
	let_write(w, often(20000));
	CHECK(lost_words(w, p, LEN, 1) == 0); /* plain */
	for (size_t round = 0; round < often(12); round++) {
		let_write(w, often(2000));
		CHECK(call_seal() == 0);
		CHECK(lost_words(w, p, LEN, 1) == 0);
		CHECK(all_sealed(p, LEN));
		let_write(w, often(2000));
		CHECK(call_seal() == 0); /* what was written, anew */
		CHECK(lost_words(w, p, LEN, 1) == 0);
	}
	w->wanted = -1;
}
