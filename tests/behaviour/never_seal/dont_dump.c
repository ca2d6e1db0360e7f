/* MADV_DONTDUMP: used for keys. A sealed copy would live on in the memfd after the program has wiped its page.
   madvise(2); OpenSSL's secure heap does this. */

int main(void)
{
	char *secret = memory(4 * MB, 1);
	CHECK(madvise(secret, 4 * MB, MADV_DONTDUMP) == 0);
	seal();
	CHECK(sealed_bytes(secret, 4 * MB) == 0);
	memset(secret, 0, 4 * MB);
	IN_CLONE
		CHECK(zeros(secret, 4 * MB));
}
