/* hugetlbfs pages come from a reserved pool and have cheap page tables already. mmap(2), MAP_HUGETLB. */

int main(void)
{
	char *p = map_alone(4 * MB, RW, MAP_PRIVATE | MAP_HUGETLB);
	if (p == NULL)
		SKIP("no huge pages are reserved (/proc/sys/vm/nr_hugepages)");
	fill(p, 4 * MB, 1);
	seal();
	CHECK(sealed_bytes(p, 4 * MB) == 0);
	IN_CLONE
		CHECK(intact(p, 4 * MB, 1));
}
