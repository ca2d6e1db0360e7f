/* Memory with a protection key: the key's owner decides who may read it, and a new mapping has key 0. pkeys(7). */

int main(void)
{
	char *p = memory(4 * MB, 1);
	int key = pkey_alloc(0, 0);
	if (key < 0)
		SKIP("this CPU or kernel has no memory protection keys");
	CHECK(pkey_mprotect(p, 4 * MB, RW, key) == 0);
	seal();
	CHECK(sealed_bytes(p, 4 * MB) == 0 && atoi(smaps(p, "ProtectionKey")) == key);
	IN_CLONE
		CHECK(intact(p, 4 * MB, 1));
}
