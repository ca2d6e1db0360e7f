/* mlock, mlock2 and their numbers on sealed memory: locking a private file mapping would copy every page and keep both copies.
   It becomes anonymous first. mlock(2). */

int main(void)
{
	char *p = memory(10 * MB, 1);
	seal();
	if (mlock(p, 2 * MB) != 0)
		SKIP("RLIMIT_MEMLOCK is too low to lock 2 MB");
	CHECK(sealed_bytes(p, 2 * MB) == 0 && status_kb("VmLck") == 2048);
	CHECK(mlock2(p + 2 * MB, 2 * MB, MLOCK_ONFAULT) == 0);
	CHECK(syscall(SYS_mlock, p + 4 * MB, 2 * MB) == 0);
	CHECK(syscall(SYS_mlock2, p + 6 * MB, 2 * MB, MLOCK_ONFAULT) == 0);
	CHECK(sealed_bytes(p, 8 * MB) == 0 && all_sealed(p + 8 * MB, 2 * MB));
	CHECK(status_kb("VmLck") == 8 * 1024 && status_kb("RssAnon") >= 8 * 1024);
	IN_CLONE
		CHECK(intact(p, 10 * MB, 1));
	CHECK(munlock(p, 8 * MB) == 0 && intact(p, 10 * MB, 1));
	CHECK(call_seal() == 0 && all_sealed(p, 10 * MB) && intact(p, 10 * MB, 1));
}
