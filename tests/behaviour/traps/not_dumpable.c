/* A daemon that gave up root, or asked for it (PR_SET_DUMPABLE), may not open its own /proc/self/pagemap: the seal fails cleanly
   and clones are plain. proc(5), "dumpable". What is sealed before stays right, and becomes anonymous where it must. */
#include <grp.h>

int main(void)
{
	char *p = memory(4 * MB, 1), *gone = memory(4 * MB, 2);
	seal();
	if (geteuid() == 0)
		CHECK(setgroups(0, NULL) == 0 && setresgid(65534, 65534, 65534) == 0 && setresuid(65534, 65534, 65534) == 0);
	else
		CHECK(prctl(PR_SET_DUMPABLE, 0) == 0);
	CHECK(prctl(PR_GET_DUMPABLE) != 1);
	char *later = memory(4 * MB, 3);
	CHECK(call_seal() == -1 && sealed_bytes(later, 4 * MB) == 0);
	IN_CLONE {
		CHECK(intact(p, 4 * MB, 1) && intact(gone, 4 * MB, 2) && intact(later, 4 * MB, 3));
		CHECK(discard_zeros(gone, 4 * MB));
	}
	fill(p + 3 * MB, MB, 4);
	CHECK(madvise(p, MB, MADV_WIPEONFORK) == 0);
	char *moved = mremap(gone, 2 * MB, 2 * MB, MREMAP_MAYMOVE | MREMAP_DONTUNMAP, NULL);
	CHECK(moved != MAP_FAILED && intact(moved, 2 * MB, 2) && zeros(gone, 2 * MB));
	IN_CLONE
		CHECK(zeros(p, MB) && intact(p + 3 * MB, MB, 4));
	/* Before a ring all memory must. */
	unsigned long context = 0;
	CHECK(syscall(SYS_io_setup, 1, &context) == 0 && sealed_bytes(ALL) == 0);
	CHECK(intact(p, MB, 1) && intact(p + 3 * MB, MB, 4) && intact(moved, 2 * MB, 2));
}
