/* A process close to vm.max_map_count: a seal splits mappings, which could fail half way. Documentation/admin-guide/sysctl/vm.rst. */

int main(void)
{
	long most = 0;
	FILE *file = fopen("/proc/sys/vm/max_map_count", "re");
	CHECK(file != NULL && fscanf(file, "%ld", &most) == 1 && fclose(file) == 0);
	if (most > 200000)
		SKIP("vm.max_map_count is %ld: so many mappings take too long to make", most);
	size_t len = (most - 150) * PAGE;
	char *p = map_alone(len, PROT_NONE, MAP_PRIVATE | MAP_NORESERVE);
	CHECK(p != NULL);
	/* Every second page another protection, so that none merge. */
	for (size_t at = PAGE; at + PAGE < len; at += 2 * PAGE)
		CHECK(mprotect(p + at, PAGE, PROT_READ) == 0);
	refused();
	CHECK(munmap(p, len) == 0);
	seal();
}
