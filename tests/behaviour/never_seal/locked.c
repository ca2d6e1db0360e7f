/* mlock: a new mapping is not locked, and locking a sealed one copies every page of it. mlock(2).
   Locked after a seal: traps/mlock_later.c. */

int main(void)
{
	char *p = memory(4 * MB, 1);
	if (mlock(p, 4 * MB) != 0)
		SKIP("RLIMIT_MEMLOCK is too low to lock 4 MB");
	long locked = status_kb("VmLck");
	seal();
	CHECK(sealed_bytes(p, 4 * MB) == 0);
	CHECK(status_kb("VmLck") == locked && locked >= 4096);
	IN_CLONE
		CHECK(intact(p, 4 * MB, 1) && status_kb("VmLck") == 0);
	CHECK(intact(p, 4 * MB, 1));
}
