/* Shared mappings: a clone's writes must reach the parent, so they stay what they are.
   mmap(2), MAP_SHARED; fork skips their page tables anyway (vma_needs_copy in mm/memory.c). */

int main(void)
{
	char *p = map_alone(4 * MB, RW, MAP_SHARED);
	CHECK(p != NULL);
	fill(p, 4 * MB, 1);
	seal();
	CHECK(sealed_bytes(p, 4 * MB) == 0);
	IN_CLONE {
		CHECK(intact(p, 4 * MB, 1));
		fill(p, 4 * MB, 2);
	}
	CHECK(intact(p, 4 * MB, 2));
}
