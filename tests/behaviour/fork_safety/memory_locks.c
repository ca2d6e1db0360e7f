/* Memory locks: mlock and mlockall are not inherited. mlock(2).
   clone: missing
   do: lock in the clone, which copies what it locks */

int main(void)
{
	char *p = map_alone(16 * PAGE, RW, MAP_PRIVATE);
	CHECK(p != NULL);
	seal();
	if (mlock(p, 16 * PAGE) != 0)
		SKIP("memory may not be locked here: %s", strerror(errno));
	CHECK(status_kb("VmLck") == 64);
	IN_CLONE
		CHECK(status_kb("VmLck") == 0);
}
