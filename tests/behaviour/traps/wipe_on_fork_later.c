/* MADV_WIPEONFORK answers EINVAL on a file mapping; sealed memory becomes anonymous first, so that a clone reads zeros.
   madvise(2); OpenSSL and BoringSSL protect their generators this way when they are first used. */

int main(void)
{
	char *p = memory(4 * MB, 1);
	seal();
	CHECK(madvise(p + MB, MB, MADV_WIPEONFORK) == 0);
	CHECK(intact(p, 4 * MB, 1));
	IN_CLONE
		CHECK(intact(p, MB, 1) && zeros(p + MB, MB));
	CHECK(call_seal() == 0 && sealed_bytes(p + MB, MB) == 0);
}
