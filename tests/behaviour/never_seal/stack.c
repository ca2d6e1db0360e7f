/* The main stack: it grows by faults, which a file mapping doesn't, and it is written all the time.
   mmap(2), MAP_GROWSDOWN; the pages around any other stack pointer: traps/coroutine.c. */

int main(void)
{
	char deep[4 * MB];
	fill(deep, sizeof deep, 1);
	seal();
	CHECK(sealed_bytes(deep, sizeof deep) == 0);
	IN_CLONE
		CHECK(intact(deep, sizeof deep, 1));
	CHECK(intact(deep, sizeof deep, 1));
}
