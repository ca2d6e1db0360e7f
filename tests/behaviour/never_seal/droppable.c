/* MAP_DROPPABLE (Linux 6.11): the kernel may drop its pages at any moment and wipes them on fork; getrandom in the vdso
   keeps its state there. mmap(2). */

#ifndef MAP_DROPPABLE
#define MAP_DROPPABLE 0x08
#endif

int main(void)
{
	char *p = map_alone(4 * MB, RW, MAP_DROPPABLE);
	if (p == NULL)
		SKIP("this kernel has no MAP_DROPPABLE (Linux 6.11)");
	fill(p, 4 * MB, 1);
	seal();
	CHECK(sealed_bytes(p, 4 * MB) == 0);
	IN_CLONE
		CHECK(zeros(p, 4 * MB));
}
