/* mlockall on a sealed process: all memory becomes anonymous first; with MCL_FUTURE no seal is made any more. mlockall(2). */

int main(void)
{
	char *p = memory(4 * MB, 1);
	seal();
	if (mlockall(MCL_CURRENT | MCL_FUTURE) != 0)
		SKIP("mlockall is not allowed here (RLIMIT_MEMLOCK)");
	CHECK(sealed_bytes(ALL) == 0 && intact(p, 4 * MB, 1));
	CHECK(status_kb("VmLck") >= 4096);
	CHECK(call_seal() == -1 && sealed_bytes(ALL) == 0);
	IN_CLONE
		CHECK(intact(p, 4 * MB, 1));
}
