/* Pages in swap count as populated: a seal that looked for resident pages only would lose them. proc_pid_pagemap(5).
   Needs a machine with swap (the lab has one). */

int main(void)
{
	char *p = memory(16 * MB, 1);
	CHECK(madvise(p, 16 * MB, MADV_PAGEOUT) == 0);
	if (atol(smaps(p, "Swap")) < 1024)
		SKIP("no swap on this machine, or it took nothing");
	seal();
	CHECK(all_sealed(p, 16 * MB) && intact(p, 16 * MB, 1));
	IN_CLONE
		CHECK(intact(p, 16 * MB, 1));
}
