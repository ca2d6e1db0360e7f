/* Shared mappings: MAP_SHARED memory, System V segments and process-shared locks in them are the same memory for all, sealed or not. mmap(2).
   clone: shares
   do: nothing, if it is meant so; else map it anew in the clone */

int main(void)
{
	char *p = mmap(NULL, MB, RW, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	CHECK(p != MAP_FAILED);
	fill(p, MB, 1);
	seal();
	IN_CLONE
		fill(p, MB, 2);
	CHECK(intact(p, MB, 2));
}
