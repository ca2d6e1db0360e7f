/* A seccomp filter that answers getpid(2) with an error, set by a sealed program or by whoever starts one: the engine, which knows by
   that number who has taken it, does no work under it; nothing hangs, and memory is as in the plain program. seccomp(2). */
#include "../filter.h"

static void use(char *p)
{
	CHECK(discard_zeros(p + MB, MB));
	p = mremap(p, 8 * MB, 12 * MB, MREMAP_MAYMOVE);
	CHECK(p != MAP_FAILED && zeros(p + 8 * MB, 4 * MB) && intact(p, MB, 1));
	for (int i = 0; i < 3; i++) {
		pid_t clone = forked();
		if (clone == 0)
			_exit(!(zeros(p + MB, MB) && intact(p, MB, 1)));
		CHECK(wait_for(clone) == 0);
	}
}

int main(int argc, char **argv)
{
	char *p = memory(8 * MB, 1);
	if (argc > 1) {
		CHECK(call_seal() == -1);
		use(p);
		return 0;
	}
	seal();
	CHECK(all_sealed(p, 8 * MB));
	enter(SYS_getpid, SECCOMP_RET_ERRNO | EPERM, 0);
	CHECK(sealed_bytes(p, 8 * MB) == 0);
	use(p);
	execl("/proc/self/exe", argv[0], "again", NULL);
	CHECK(0);
}
